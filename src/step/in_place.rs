//! Updates in place: the condition for a new value to take over the old value's storage.

use crate::layout::Layout;

/// Whether the new value of an update's target takes over the target's storage of `bytes` bytes.
///
/// Three conditions must hold. No other handle names the old value (`handles` is 1). The update
/// reads the old value only once (`reads` is 1). The target's layout spans the whole storage.
/// `handles` counts the handle of the target itself, and a second handle if the target is not
/// consumed.
#[inline(always)]
pub(crate) fn takes_over(layout: &Layout, bytes: u64, handles: u32, reads: usize) -> bool {
    handles == 1 && reads == 1 && layout.offset() == 0 && layout.bytes() == bytes
}
