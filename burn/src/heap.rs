//! What the allocator of the process keeps of freed memory.

use std::hint::black_box;
use std::sync::Once;

/// glibc maps larger blocks one by one, whatever comes.
const LARGEST: usize = 31 << 20;

/// Has the allocator keep freed memory for the tensors to come, up to some 60 MiB a thread.
///
/// glibc gives free memory at the end of a heap back to the system as soon as it is more than a threshold, of 128 KiB to begin
/// with: several times in each step of training, and its pages are taken anew, and zeroed, in the next. (Measured: a tenth of a step of
/// a transformer.) The threshold becomes twice the size of the largest block that was mapped for itself and freed. So one such
/// block comes and goes here; nothing of it is touched. What is kept is never more than what was in use. Other allocators do not mind.
pub(crate) fn keep_freed_memory() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| drop(black_box(Vec::<u8>::with_capacity(LARGEST))));
}
