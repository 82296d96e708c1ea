//! Resampling along the middle dimension of `[outer, n, inner]`, on the CPU.

use super::Taps;
use crate::device::cpu::split::{PIECE, pieces};

/// Computes the entries of `y` from the entries of `x`.
pub fn resize(y: &mut [f32], x: &[f32], taps: Taps, inner: usize) {
    each_part(y, x, [taps.size, taps.n], inner, |y, x| {
        for (j, y) in y.chunks_exact_mut(inner).enumerate() {
            let (from, [first, other]) = taps.of(j as u64);
            let entry = |i: usize| &x[i * inner..][..inner];
            y.iter_mut().zip(entry(from.start)).for_each(|(y, x)| *y = x * first);
            for i in from.skip(1) {
                y.iter_mut().zip(entry(i)).for_each(|(y, x)| *y += x * other);
            }
        }
    });
}

/// Computes the gradient of [`resize`]: adds each entry `j` of `x`, times its weights, to the
/// entries of `y` that `taps` lists for `j`.
pub fn transposed(y: &mut [f32], x: &[f32], taps: Taps, inner: usize) {
    each_part(y, x, [taps.n, taps.size], inner, |y, x| {
        y.fill(0.0);
        for (j, x) in x.chunks_exact(inner).enumerate() {
            let (to, [first, other]) = taps.of(j as u64);
            for (k, i) in to.enumerate() {
                let weight = if k == 0 { first } else { other };
                let y = &mut y[i * inner..][..inner];
                y.iter_mut().zip(x).for_each(|(y, x)| *y += x * weight);
            }
        }
    });
}

/// Calls `body` with the entries of `y` and of `x` at each position of the outer dimension; `sizes`
/// has the number of entries of `y` and of `x`.
fn each_part(
    y: &mut [f32],
    x: &[f32],
    sizes: [u64; 2],
    inner: usize,
    body: impl Fn(&mut [f32], &[f32]) + Sync,
) {
    if y.is_empty() {
        return;
    }
    let [of_y, of_x] = sizes.map(|size| size as usize * inner);
    let (parts, work) = ((PIECE / of_y).max(1), y.len() + x.len());
    pieces(y, parts * of_y, work, |piece, y| {
        for (i, y) in y.chunks_exact_mut(of_y).enumerate() {
            body(y, &x[(piece * parts + i) * of_x..][..of_x]);
        }
    });
}
