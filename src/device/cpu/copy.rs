//! Packing what lies anyhow.

use super::split::{PIECE, pieces};
use crate::device::walk::Walk;
use crate::layout::Layout;

/// Packs the elements of `layout` in row-major order.
pub fn strided<T: Copy + Send + Sync>(out: &mut [T], x: &[T], layout: &Layout) {
    let walk = Walk::new(layout.shape(), [layout.strides()]);
    let [step] = walk.steps();
    let work = out.len();
    pieces(out, PIECE, work, |i, part| {
        let first = i * PIECE;
        walk.runs(first, first + part.len(), |i, len, [at]| {
            let out = &mut part[i - first..][..len];
            match step {
                1 => out.copy_from_slice(&x[at..][..len]),
                _ => out.iter_mut().enumerate().for_each(|(j, out)| *out = x[at + j * step]),
            }
        });
    });
}

/// The elements of `layout` in row-major order. `elements` starts with the first one.
pub fn packed<T: Copy + Default + Send + Sync>(elements: &[T], layout: &Layout) -> Vec<T> {
    let mut out = vec![T::default(); layout.elements()];
    strided(&mut out, elements, layout);
    out
}
