//! Packing of strided tensors; threads share the work.

use super::split::{PIECE, pieces};
use crate::device::pack::{self, by_size};
use crate::device::walk::Walk;
use crate::layout::Layout;

/// Packs the elements of `layout` in row-major order.
pub fn strided<T: Copy + Send + Sync>(out: &mut [T], x: &[T], layout: &Layout) {
    let walk = Walk::new(layout.shape(), [layout.strides()]);
    let work = out.len();
    pieces(out, PIECE, work, |i, part| pack::part(part, x, &walk, i * PIECE));
}

/// Fills `out` with the elements of `layout`, which may be of any type, in row-major order. `x`
/// begins at the first element of `layout`.
pub fn packed(out: &mut [u8], x: &[u8], layout: &Layout) {
    if !out.is_empty() {
        by_size!(layout.dtype(), Word => {
            strided::<Word>(bytemuck::cast_slice_mut(out), bytemuck::cast_slice(x), layout);
        });
    }
}
