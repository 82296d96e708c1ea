//! Updates in place: when a new value takes over the storage of the old one.

use crate::layout::Layout;

/// Whether the new value of a target takes over a storage of so many bytes, at which the target looks by this layout. Nobody
/// but the update may hold the old value (`handles`), or read it beside (`reads`), and the target must look at all of it.
///
/// Handles count the target itself, and one more where the target is not given away.
#[inline(always)]
pub(crate) fn takes_over(layout: &Layout, bytes: u64, handles: u32, reads: usize) -> bool {
    handles == 1 && reads == 1 && layout.offset() == 0 && layout.bytes() == bytes
}
