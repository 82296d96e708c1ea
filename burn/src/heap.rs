//! Setting of the process's allocator: freed memory is kept for later tensors.

use std::hint::black_box;
use std::sync::Once;

/// Size of the block to allocate and free, in bytes. glibc's limit is 32 MiB: larger blocks are
/// always mapped one by one, and do not change the threshold.
const LARGEST: usize = 31 << 20;

/// Makes the allocator keep freed memory for later tensors, up to about 60 MiB per thread.
///
/// When the free memory at the end of a heap exceeds a threshold, at first 128 KiB, glibc returns
/// this memory to the system. In training, glibc returns memory several times per step, and in the
/// next step the system must provide and zero the pages again. Returning and zeroing pages takes a
/// tenth of a step of a transformer. glibc maps a large block separately. When a separately mapped
/// block is freed, the threshold becomes twice the size of the block. Therefore this function
/// allocates and frees one large block, without touching its pages. The process never keeps more
/// memory than its peak of memory in use. Allocators other than glibc's are not affected.
pub(crate) fn keep_freed_memory() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| drop(black_box(Vec::<u8>::with_capacity(LARGEST))));
}
