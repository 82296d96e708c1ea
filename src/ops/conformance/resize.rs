use super::{Arg, Rig, Rng};
use crate::device::Device;
use crate::host::HostTensor;
use crate::layout::Dims;
use crate::ops::{Interpolation, Op, Resize};

/// Weights `[size, n]` by which a resampling multiplies the entries, computed from the definition
/// of the resampling.
fn matrix(sampling: Interpolation, n: usize, size: usize) -> Vec<f64> {
    let mut all = vec![0.0; size * n];
    for (j, row) in all.chunks_exact_mut(n).enumerate() {
        let (wide, ratio) = (j as f64, n as f64 / size as f64);
        let mut between = |at: f64| {
            let at = at.clamp(0.0, (n - 1) as f64);
            let first = at.floor() as usize;
            row[first] += 1.0 - (at - at.floor());
            if first + 1 < n {
                row[first + 1] += at - at.floor();
            }
        };
        match sampling {
            Interpolation::Nearest => row[j * n / size] = 1.0,
            Interpolation::Linear => between((wide + 0.5) * ratio - 0.5),
            Interpolation::LinearAlignCorners => {
                between(wide * (n - 1) as f64 / (size.max(2) - 1) as f64);
            }
            Interpolation::Area => {
                let (start, end) = (j * n / size, ((j + 1) * n).div_ceil(size));
                row[start..end].fill(1.0 / (end - start) as f64);
            }
        }
    }
    all
}

pub fn resampling_and_its_transpose<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    let mut rng = Rng::new(22);
    let each = [
        Interpolation::Nearest,
        Interpolation::Linear,
        Interpolation::LinearAlignCorners,
        Interpolation::Area,
    ];
    let mut cases: Vec<[usize; 4]> =
        (0..60).map(|_| [0, 0, 0, 0].map(|_: usize| 1 + rng.below(7))).collect();
    cases.extend([[3, 20, 55, 30], [2, 300, 7, 1], [1, 5, 4001, 2], [4, 64, 128, 1]]);
    for [outer, n, size, inner] in cases {
        for sampling in each {
            let matrix = matrix(sampling, n, size);
            for transposed in [false, true] {
                let (from, to) = if transposed { (size, n) } else { (n, size) };
                let x = rng.floats([outer, from, inner]);
                let elements = x.elements();
                let mut expected = vec![0.0; outer * to * inner];
                for (i, found) in expected.iter_mut().enumerate() {
                    let (o, j, k) = (i / inner / to, i / inner % to, i % inner);
                    *found = (0..from)
                        .map(|l| {
                            let at = if transposed { l * n + j } else { j * n + l };
                            matrix[at] * elements[(o * from + l) * inner + k]
                        })
                        .sum();
                }
                let op: Op = Resize { axis: 1, size: to, sampling, transposed }.into();
                rig.expect(&op, &[x], &Dims::new(&[outer, to, inner]), &expected, 5e-5);
            }
        }
    }
    let x = Arg::f32([4], vec![1.0, 2.0, 3.0, 4.0]);
    let op = Resize { axis: 0, size: 2, sampling: Interpolation::Linear, transposed: false };
    rig.expect(&op.into(), &[x], &[2], &[1.5, 3.5], 0.0);
}
