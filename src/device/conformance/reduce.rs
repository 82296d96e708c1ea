use super::{Arg, Rig, Rng, each_index};
use crate::device::Device;
use crate::host::HostTensor;
use crate::layout::Dims;
use crate::ops::{Op, Reduce, Reduction};

/// Shape and elements of the result.
fn reference(kind: Reduction, x: &Arg, axes: &[usize], keep_dims: bool) -> (Vec<usize>, Vec<f64>) {
    let shape = x.shape();
    let kept: Vec<usize> =
        (0..shape.len()).map(|i| if axes.contains(&i) { 1 } else { shape[i] }).collect();
    let start = if kind == Reduction::Max { f64::NEG_INFINITY } else { 0.0 };
    let mut out = vec![start; kept.iter().product()];
    let elements = x.elements();
    let mut next = 0;
    each_index(shape, |index| {
        let at = kept
            .iter()
            .zip(index)
            .fold(0, |at, (&size, &i)| at * size + if size == 1 { 0 } else { i });
        let x = elements[next];
        next += 1;
        out[at] = match kind {
            Reduction::Max if x.is_nan() || out[at].is_nan() => f64::NAN,
            Reduction::Max => out[at].max(x),
            _ => out[at] + x,
        };
    });
    if kind == Reduction::Mean {
        let count: usize = axes.iter().map(|&axis| shape[axis]).product();
        out.iter_mut().for_each(|x| *x /= count as f64);
    }
    let shape =
        (0..shape.len()).filter(|i| keep_dims || !axes.contains(i)).map(|i| kept[i]).collect();
    (shape, out)
}

fn check<D: Device<Op = Op, Host = HostTensor>>(
    rig: &mut Rig<D>,
    x: &Arg,
    axes: &[usize],
    keep_dims: bool,
) {
    for kind in [Reduction::Sum, Reduction::Mean, Reduction::Max] {
        let (shape, expected) = reference(kind, x, axes, keep_dims);
        if kind == Reduction::Max && expected.contains(&f64::NEG_INFINITY) {
            // There is no largest of none.
            continue;
        }
        let op: Op = Reduce { kind, axes: Dims::new(axes), keep_dims }.into();
        let found = rig.run(&op, std::slice::from_ref(x));
        super::close(&found[0], &shape, &expected, 1e-6, &format!("{op:?} of {:?}", x.layout));
    }
}

pub fn any_axes_and_strides<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    let mut rng = Rng::new(4);
    for _ in 0..400 {
        let shape = rng.shape(5, 7);
        let x = rng.arranged(&shape);
        let mut axes = rng.axes(shape.len());
        axes.truncate(rng.below(shape.len() + 1));
        check(rig, &x, &axes, rng.below(2) == 0);
    }
    let x = Arg::f32([2, 3], vec![1.0, f32::NAN, 5.0, 2.0, -1.0, f32::INFINITY]);
    check(rig, &x, &[1], false);
    check(rig, &x, &[0], false);
}

pub fn large_reductions<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    let mut rng = Rng::new(5);
    let x = rng.floats([400_000]);
    check(rig, &x, &[0], false);
    for shape in [[3, 100_001], [100_001, 3], [700, 500], [9, 33_333], [40_000, 9]] {
        let x = rng.floats(shape);
        check(rig, &x, &[0], false);
        check(rig, &x, &[1], true);
        check(rig, &x, &[0, 1], false);
        let turned = x.view(|l| l.permute(&[1, 0]));
        check(rig, &turned, &[0], false);
        check(rig, &turned, &[0, 1], false);
    }
    let x = rng.floats([8, 10, 57, 57]);
    check(rig, &x, &[0, 2, 3], false);
    check(rig, &x, &[1], false);
    check(rig, &x.view(|l| l.permute(&[0, 2, 3, 1])?.slice(2, 1, 50)), &[0, 1], false);
    // Ten million equal numbers, in a few bytes: sums do not drift.
    let ones = Arg::f32([1], vec![0.1]).view(|l| l.broadcast_to(&Dims::new(&[10_000_000])));
    let op: Op = Reduce { kind: Reduction::Mean, axes: Dims::new(&[0]), keep_dims: false }.into();
    rig.expect(&op, &[ones], &[], &[f64::from(0.1f32)], 1e-7);
}

pub fn nothing_to_join<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    let empty = Arg::f32([3, 0], vec![]);
    let op =
        |kind, axis| -> Op { Reduce { kind, axes: Dims::new(&[axis]), keep_dims: false }.into() };
    rig.expect(&op(Reduction::Sum, 1), std::slice::from_ref(&empty), &[3], &[0.0; 3], 0.0);
    rig.expect(&op(Reduction::Mean, 1), std::slice::from_ref(&empty), &[3], &[f64::NAN; 3], 0.0);
    rig.expect(&op(Reduction::Sum, 0), std::slice::from_ref(&empty), &[0], &[], 0.0);
    rig.expect(&op(Reduction::Max, 0), &[empty], &[0], &[], 0.0);
}
