//! All allocators behind one face. Sizes come in multiples of 256 bytes.

use memmap2::{MmapMut, MmapOptions};
use remat::memory::{ALIGNMENT, Arena, Block, SplitRule};
use std::alloc::Layout;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::NonNull;

/// What each has to give.
const BYTES: u64 = 32 << 30;

pub trait Peer {
    const NAME: &'static str;
    type Block: Copy;
    fn new() -> Self;
    fn alloc(&mut self, bytes: u64) -> Option<Self::Block>;
    fn free(&mut self, block: Self::Block, bytes: u64);
    /// Just past the last byte.
    fn end(&self, block: Self::Block) -> u64;
}

/// The default: exact best fit.
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

/// The same arena with the rule of TensorFlow's BFC allocator.
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

/// In units of 256 bytes, as it counts in 32 bits.
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

/// Address space, backed by memory where it is touched.
fn map() -> MmapMut {
    MmapOptions::new()
        .len(2 * BYTES as usize)
        .no_reserve_swap()
        .map_anon()
        .expect("64 GiB of address space")
}

/// Its pointers are aligned to 16 bytes only, which makes it faster and denser than the others may be.
pub struct Rlsf {
    tlsf: rlsf::Tlsf<'static, u32, u32, 31, 32>,
    /// Where offsets count from.
    start: usize,
    /// What `tlsf` manages, so it goes last.
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
        // SAFETY: the mapping is that long, nothing else looks into it, and it is unmapped only after
        // the allocator, the one holder of the slice, is gone.
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
        // SAFETY: `alloc` made it with this alignment, and each block is freed once.
        unsafe { self.tlsf.deallocate(block.0, 16) }
    }
    fn end(&self, block: Self::Block) -> u64 {
        (block.0.addr().get() - self.start) as u64 + block.1
    }
}

/// 36 orders: the largest block is all of it.
pub struct Buddy {
    heap: buddy_system_allocator::Heap<36>,
    /// Where offsets count from: a multiple of the whole size, so that the heap is one block.
    start: usize,
    /// What `heap` manages, so it goes last.
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
        // SAFETY: the mapping is twice as long as what is managed, nothing else looks into it, and it
        // is unmapped only after the heap is gone.
        unsafe { heap.init(start, BYTES as usize) };
        Self { heap, start, _map: map }
    }
    #[inline]
    fn alloc(&mut self, bytes: u64) -> Option<Self::Block> {
        Some((self.heap.alloc(Self::layout(bytes)).ok()?, bytes))
    }
    #[inline]
    fn free(&mut self, block: Self::Block, bytes: u64) {
        // SAFETY: `alloc` made it with this layout, and each block is freed once.
        unsafe { self.heap.dealloc(block.0, Self::layout(bytes)) }
    }
    fn end(&self, block: Self::Block) -> u64 {
        (block.0.addr().get() - self.start) as u64 + block.1.next_power_of_two()
    }
}
