//! All allocators, with a common trait. Sizes are multiples of 256 bytes.

use memmap2::{MmapMut, MmapOptions};
use remat::unstable::memory::{ALIGNMENT, Arena, Block, SplitRule};
use std::alloc::Layout;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::NonNull;

/// Bytes that each allocator manages.
const BYTES: u64 = 32 << 30;

pub trait Peer {
    const NAME: &'static str;
    type Block: Copy;
    fn new() -> Self;
    fn alloc(&mut self, bytes: u64) -> Option<Self::Block>;
    fn free(&mut self, block: Self::Block, bytes: u64);
    /// Offset just past the block's last byte.
    fn end(&self, block: Self::Block) -> u64;
}

/// Arena with the default rule: exact best fit.
pub struct Remat(Arena);

impl Peer for Remat {
    const NAME: &'static str = "remat";
    type Block = Block;
    fn new() -> Self {
        Self(Arena::new(BYTES))
    }
    #[inline]
    fn alloc(&mut self, bytes: u64) -> Option<Block> {
        self.0.alloc(bytes, 0)
    }
    #[inline]
    fn free(&mut self, block: Block, _: u64) {
        self.0.free(block);
    }
    fn end(&self, block: Block) -> u64 {
        self.0.offset(block) + self.0.size(block)
    }
}

/// Arena with the split rule of TensorFlow's BFC allocator.
pub struct RematTensorFlow(Arena);

impl Peer for RematTensorFlow {
    const NAME: &'static str = "remat, split rule";
    type Block = Block;
    fn new() -> Self {
        Self(Arena::with_rule(BYTES, ALIGNMENT, SplitRule::tensorflow()))
    }
    #[inline]
    fn alloc(&mut self, bytes: u64) -> Option<Block> {
        self.0.alloc(bytes, 0)
    }
    #[inline]
    fn free(&mut self, block: Block, _: u64) {
        self.0.free(block);
    }
    fn end(&self, block: Block) -> u64 {
        self.0.offset(block) + self.0.size(block)
    }
}

/// `offset-allocator` in units of 256 bytes, because its offsets have 32 bits.
pub struct OffsetAllocator(offset_allocator::Allocator<u32>);

impl Peer for OffsetAllocator {
    const NAME: &'static str = "offset-allocator";
    type Block = (offset_allocator::Allocation<u32>, u32);
    fn new() -> Self {
        Self(offset_allocator::Allocator::with_max_allocs((BYTES / 256) as u32, 128 * 1024))
    }
    #[inline]
    fn alloc(&mut self, bytes: u64) -> Option<Self::Block> {
        let units = (bytes / 256) as u32;
        Some((self.0.allocate(units)?, units))
    }
    #[inline]
    fn free(&mut self, block: Self::Block, _: u64) {
        self.0.free(block.0);
    }
    fn end(&self, block: Self::Block) -> u64 {
        u64::from(block.0.offset + block.1) * 256
    }
}

pub struct RangeAlloc(range_alloc::RangeAllocator<u64>);

impl Peer for RangeAlloc {
    const NAME: &'static str = "range-alloc";
    type Block = (u64, u64);
    fn new() -> Self {
        Self(range_alloc::RangeAllocator::new(0..BYTES))
    }
    #[inline]
    fn alloc(&mut self, bytes: u64) -> Option<Self::Block> {
        let Range { start, end } = self.0.allocate_range(bytes).ok()?;
        Some((start, end))
    }
    #[inline]
    fn free(&mut self, block: Self::Block, _: u64) {
        self.0.free_range(block.0..block.1);
    }
    fn end(&self, block: Self::Block) -> u64 {
        block.1
    }
}

/// Maps address space. The system provides memory for a page on its first use.
fn map() -> MmapMut {
    MmapOptions::new()
        .len(2 * BYTES as usize)
        .no_reserve_swap()
        .map_anon()
        .expect("64 GiB of address space")
}

/// `rlsf`. Its pointers are aligned to only 16 bytes, so it can be faster and denser than the other
/// allocators.
pub struct Rlsf {
    tlsf: rlsf::Tlsf<'static, u32, u32, 31, 32>,
    /// Address of offset 0.
    start: usize,
    /// Memory that `tlsf` manages, declared last so that it is dropped last.
    _map: MmapMut,
}

impl Rlsf {
    fn layout(bytes: u64) -> Layout {
        Layout::from_size_align(bytes as usize, 16).expect("sizes are far below the limit")
    }
}

impl Peer for Rlsf {
    const NAME: &'static str = "rlsf";
    type Block = (NonNull<u8>, u64);
    fn new() -> Self {
        let mut map = map();
        let start = map.as_mut_ptr();
        // SAFETY: the mapping has at least `BYTES` bytes from `start` on. No other code accesses
        // it. `_map` is dropped after `tlsf`, the only holder of the slice.
        let pool = unsafe {
            std::slice::from_raw_parts_mut(start.cast::<MaybeUninit<u8>>(), BYTES as usize)
        };
        let mut tlsf = rlsf::Tlsf::new();
        let _ = tlsf.insert_free_block(pool);
        Self { tlsf, start: start.addr(), _map: map }
    }
    #[inline]
    fn alloc(&mut self, bytes: u64) -> Option<Self::Block> {
        Some((self.tlsf.allocate(Self::layout(bytes))?, bytes))
    }
    #[inline]
    fn free(&mut self, block: Self::Block, _: u64) {
        // SAFETY: `alloc` made the block with an alignment of 16, and the benchmark frees each
        // block once.
        unsafe { self.tlsf.deallocate(block.0, 16) }
    }
    fn end(&self, block: Self::Block) -> u64 {
        (block.0.addr().get() - self.start) as u64 + block.1
    }
}

/// `buddy_system_allocator` with 36 orders, so that the largest block is all the memory.
pub struct Buddy {
    heap: buddy_system_allocator::Heap<36>,
    /// Address of offset 0: a multiple of `BYTES`, so that the heap is one block.
    start: usize,
    /// Memory that `heap` manages, declared last so that it is dropped last.
    _map: MmapMut,
}

impl Buddy {
    fn layout(bytes: u64) -> Layout {
        Layout::from_size_align(bytes as usize, 256).expect("sizes are far below the limit")
    }
}

impl Peer for Buddy {
    const NAME: &'static str = "buddy_system_allocator";
    type Block = (NonNull<u8>, u64);
    fn new() -> Self {
        let map = map();
        let start = map.as_ptr().addr().next_multiple_of(BYTES as usize);
        let mut heap = buddy_system_allocator::Heap::empty();
        // SAFETY: the mapping is twice as long as `BYTES`, and `start` is in its first half. No
        // other code accesses it. `_map` is dropped after `heap`.
        unsafe { heap.init(start, BYTES as usize) };
        Self { heap, start, _map: map }
    }
    #[inline]
    fn alloc(&mut self, bytes: u64) -> Option<Self::Block> {
        Some((self.heap.alloc(Self::layout(bytes)).ok()?, bytes))
    }
    #[inline]
    fn free(&mut self, block: Self::Block, bytes: u64) {
        // SAFETY: `alloc` made the block with this layout, and the benchmark frees each block once.
        unsafe { self.heap.dealloc(block.0, Self::layout(bytes)) }
    }
    fn end(&self, block: Self::Block) -> u64 {
        (block.0.addr().get() - self.start) as u64 + block.1.next_power_of_two()
    }
}
