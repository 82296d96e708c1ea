//! Packing what lies anyhow.

use super::walk::Walk;

#[cfg(feature = "cuda")]
use crate::layout::Layout;

/// Fills `out` with the elements of a walk over `x` from number `first` on.
pub fn part<T: Copy>(out: &mut [T], x: &[T], walk: &Walk<1>, first: usize) {
    let [step] = walk.steps();
    walk.runs(first, first + out.len(), |i, len, [at]| {
        let out = &mut out[i - first..][..len];
        match step {
            1 => out.copy_from_slice(&x[at..][..len]),
            _ => out.iter_mut().enumerate().for_each(|(j, out)| *out = x[at + j * step]),
        }
    });
}

/// The elements of `layout` in row-major order. `x` starts with the first one.
#[cfg(feature = "cuda")]
pub fn packed<T: Copy + Default>(x: &[T], layout: &Layout) -> Vec<T> {
    let mut out = vec![T::default(); layout.elements()];
    part(&mut out, x, &Walk::new(layout.shape(), [layout.strides()]), 0);
    out
}
