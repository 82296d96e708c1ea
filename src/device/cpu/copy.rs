//! Packing what lies anyhow, shared among threads.

use super::split::{PIECE, pieces};
use crate::device::pack;
use crate::device::walk::Walk;
use crate::layout::Layout;

/// Packs the elements of `layout` in row-major order.
pub fn strided<T: Copy + Send + Sync>(out: &mut [T], x: &[T], layout: &Layout) {
    let walk = Walk::new(layout.shape(), [layout.strides()]);
    let work = out.len();
    pieces(out, PIECE, work, |i, part| pack::part(part, x, &walk, i * PIECE));
}

/// The elements of `layout` in row-major order. `elements` starts with the first one.
pub fn packed<T: Copy + Default + Send + Sync>(elements: &[T], layout: &Layout) -> Vec<T> {
    let mut out = vec![T::default(); layout.elements()];
    strided(&mut out, elements, layout);
    out
}
