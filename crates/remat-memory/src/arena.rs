//! The arena itself: taking and freeing blocks.

use std::fmt;

use super::ALIGNMENT;
use super::bin::Hole;
use super::bins::Bins;
use super::region::{Fenced, Region};
use super::slab::{Block, Note, Slab, Slot};
use super::split::SplitRule;
use super::stats::Counts;

/// Range of offsets `0..capacity`, handed out in blocks by best fit. In a [`Pool`](super::Pool), an
/// arena has several ranges, and the pool adds and removes ranges.
///
/// An arena only keeps records: it touches no memory, and the caller decides the meaning of an
/// offset. The [module](super) documentation explains the algorithm. All sizes and offsets are in
/// bytes.
///
/// A handle of another arena, or of a freed block, is a bug of the caller. Every method that takes
/// a [`Block`] panics on a freed block. A method that takes a handle of another arena may panic or
/// act on a wrong block.
///
/// ```
/// use remat_memory::Arena;
///
/// let mut arena = Arena::new(1024);
/// let a = arena.alloc(300, 1).unwrap();
/// let b = arena.alloc(100, 2).unwrap();
/// assert_eq!((arena.offset(b), arena.size(a), arena.used()), (512, 512, 768));
/// assert!(arena.alloc(300, 3).is_none());
/// arena.free(a);
/// assert_eq!(arena.largest_free(), 512);
/// ```
#[derive(Clone)]
#[doc(alias("BFC", "caching allocator", "coalescing"))]
pub struct Arena {
    /// All chunks: blocks and holes tile the regions in the order of the ring, and no two holes are
    /// neighbours. Between two regions lies a wall: a record of 0 bytes that keeps their holes
    /// apart.
    pub(super) slab: Slab,
    /// All holes of `slab` and nothing else, by size class.
    pub(super) bins: Bins,
    /// Regions that `slab` tiles, lowest first; no two overlap.
    pub(super) regions: Vec<Fenced>,
    /// Power of two; offsets and sizes are multiples of it.
    granularity: u64,
    /// Rule for how much of a hole a block takes.
    pub(super) split: SplitRule,
    pub(super) counts: Counts,
}

impl Arena {
    /// Makes an empty arena whose granularity is [`ALIGNMENT`].
    #[must_use]
    pub fn new(capacity: u64) -> Self {
        Self::with_granularity(capacity, ALIGNMENT)
    }

    /// Makes an empty arena whose offsets and sizes are multiples of `granularity`; 1 counts exact
    /// bytes. `capacity` is rounded down to a multiple of `granularity`.
    ///
    /// # Panics
    /// If `granularity` is not a power of two up to 2^31.
    #[must_use]
    pub fn with_granularity(capacity: u64, granularity: u64) -> Self {
        Self::with_rule(capacity, granularity, SplitRule::Exact)
    }

    /// Makes an empty arena as [`Arena::with_granularity`] does, with a split rule. Under any rule,
    /// a block takes fewer than 2^32 granules beyond its request.
    ///
    /// # Panics
    /// If `granularity` is not a power of two up to 2^31.
    #[must_use]
    pub fn with_rule(capacity: u64, granularity: u64, split: SplitRule) -> Self {
        assert!(
            granularity.is_power_of_two() && granularity <= 1 << 31,
            "granularity {granularity} is not a power of two up to 2^31"
        );
        let split = split.at_most(granularity.saturating_mul(u32::MAX.into()));
        let mut arena = Self {
            slab: Slab::new(),
            bins: Bins::new(granularity),
            regions: vec![],
            granularity,
            split,
            counts: Counts::default(),
        };
        let bytes = capacity & !(granularity - 1);
        if bytes > 0 {
            arena.add_region(Region { start: 0, bytes }, |_, _| false);
        }
        arena
    }

    /// Takes a block of at least `bytes` bytes from the low end of the smallest hole that is large
    /// enough; on a tie, the lowest hole. `None` if the block fits nowhere.
    ///
    /// A block of 0 bytes takes one granule, so that every block has an offset of its own. `owner`
    /// is the caller's name for the block, returned by [`Arena::owner`], chunks and reports.
    ///
    /// # Time complexity
    /// Time: O(log holes). In practice, the search scans fewer than ten holes of about the block's
    /// size.
    #[must_use = "a block that is not kept can never be freed"]
    pub fn alloc(&mut self, bytes: u64, owner: u64) -> Option<Block> {
        let size = self.round(bytes)?;
        let hole = self.bins.fit(size, &self.slab)?;
        let size = self.split.taken(size, hole.size);
        Some(self.occupy(hole, hole.offset, size, bytes, owner))
    }

    /// Frees a block, and merges its bytes with the holes on both sides.
    ///
    /// # Panics
    /// Panics if `block` has already been freed.
    ///
    /// # Time complexity
    /// Time: O(log holes), in practice O(1).
    #[track_caller]
    pub fn free(&mut self, block: Block) {
        let index = self.slab.resolve(block);
        self.slab.flip(index);
        let slot = &self.slab[index];
        self.counts.give_back(slot.size, self.tail(slot));
        self.join(index);
        self.debug_check();
    }

    /// First byte of a block.
    #[must_use]
    #[inline]
    #[track_caller]
    pub fn offset(&self, block: Block) -> u64 {
        self.slab[self.slab.resolve(block)].offset
    }

    /// Bytes that a block takes up: the requested bytes, rounded up to the granularity, or more
    /// under a split rule.
    #[must_use]
    #[inline]
    #[track_caller]
    pub fn size(&self, block: Block) -> u64 {
        self.slab[self.slab.resolve(block)].size
    }

    /// Requested bytes of a block, not rounded.
    #[must_use]
    #[track_caller]
    pub fn requested(&self, block: Block) -> u64 {
        self.slab.note(self.slab.resolve(block)).requested
    }

    /// Name that the caller gave to a block.
    #[must_use]
    #[track_caller]
    pub fn owner(&self, block: Block) -> u64 {
        self.slab.note(self.slab.resolve(block)).owner
    }

    /// Gives a block another name.
    #[track_caller]
    pub fn set_owner(&mut self, block: Block, owner: u64) {
        let index = self.slab.resolve(block);
        self.slab.note_mut(index).owner = owner;
    }

    /// Granularity in bytes: offsets and sizes are multiples of it.
    #[must_use]
    pub const fn granularity(&self) -> u64 {
        self.granularity
    }

    /// Rule for how much of a hole a block takes.
    #[must_use]
    pub const fn split_rule(&self) -> SplitRule {
        self.split
    }

    /// Size of a block for `bytes` bytes; `None` if the rounded size exceeds `u64::MAX`.
    #[inline]
    pub(super) fn round(&self, bytes: u64) -> Option<u64> {
        let below = self.granularity - 1;
        Some(bytes.max(1).checked_add(below)? & !below)
    }

    /// Bytes of a block beyond its rounded request, which is the request rounded up to the
    /// granularity.
    #[inline(always)]
    pub(super) fn tail(&self, block: &Slot) -> u64 {
        u64::from(block.place_or_tail) * self.granularity
    }

    // `occupy`, `cut` and `join` are always inlined. Without inlining, holes are passed through
    // memory, which takes 2 of 16 ns.
    #[inline(always)]
    pub(super) fn occupy(
        &mut self,
        hole: Hole,
        offset: u64,
        size: u64,
        bytes: u64,
        owner: u64,
    ) -> Block {
        let index = self.cut(hole, offset, size);
        self.slab.flip(index);
        *self.slab.note_mut(index) = Note { owner, requested: bytes };
        let mut tail = 0;
        if self.split != SplitRule::Exact {
            tail = size - bytes.max(1).next_multiple_of(self.granularity);
        }
        self.slab[index].place_or_tail = (tail >> self.granularity.trailing_zeros()) as u32;
        self.counts.take(size, tail, offset + size);
        self.debug_check();
        self.slab.handle(index)
    }

    /// Cuts `size` bytes at `offset` out of a hole, and returns the slot of these bytes. The
    /// returned slot is in the ring and in no bin. The hole's slot keeps the bytes before the cut;
    /// if there are none, it keeps the bytes after the cut.
    #[inline(always)]
    pub(super) fn cut(&mut self, hole: Hole, offset: u64, size: u64) -> u32 {
        let before = offset - hole.offset;
        let after = Hole { size: hole.size - before - size, offset: offset + size, ..hole };
        if before > 0 {
            self.bins.update(hole, Hole { size: before, ..hole }, &mut self.slab);
            self.slab[hole.slot].size = before;
            let next = self.slab[hole.slot].next;
            if after.size > 0 {
                let slot = self.slab.insert_before(next, after.offset, after.size);
                self.bins.insert(Hole { slot, ..after }, &mut self.slab);
                self.slab.insert_before(slot, offset, size)
            } else {
                self.slab.insert_before(next, offset, size)
            }
        } else if after.size > 0 {
            self.bins.update(hole, after, &mut self.slab);
            let slot = &mut self.slab[hole.slot];
            (slot.offset, slot.size) = (after.offset, after.size);
            self.slab.insert_before(hole.slot, offset, size)
        } else {
            self.bins.remove(hole, &mut self.slab);
            hole.slot
        }
    }

    /// Merges a free chunk outside the bins with the holes beside it, and returns the resulting
    /// hole.
    #[inline(always)]
    pub(super) fn join(&mut self, index: u32) -> Hole {
        let chunk = self.slab.hole(index);
        let slot = &self.slab[index];
        let (prev, next) = (slot.prev, slot.next);
        let left = self.hole_at(prev);
        let right = self.hole_at(next);
        let joined = match (left, right) {
            (None, None) => {
                self.bins.insert(chunk, &mut self.slab);
                return chunk;
            }
            (Some(left), None) => {
                let joined = Hole { size: left.size + chunk.size, ..left };
                self.bins.update(left, joined, &mut self.slab);
                joined
            }
            (None, Some(right)) => {
                let size = chunk.size + right.size;
                let joined = Hole { size, offset: chunk.offset, ..right };
                self.bins.update(right, joined, &mut self.slab);
                joined
            }
            (Some(left), Some(right)) => {
                let joined = Hole { size: left.size + chunk.size + right.size, ..left };
                self.bins.remove(right, &mut self.slab);
                self.bins.update(left, joined, &mut self.slab);
                self.slab.remove(next);
                joined
            }
        };
        self.slab.remove(index);
        let slot = &mut self.slab[joined.slot];
        (slot.offset, slot.size) = (joined.offset, joined.size);
        joined
    }

    /// Hole in slot `index`; `None` if the slot holds no hole.
    fn hole_at(&self, index: u32) -> Option<Hole> {
        (!self.slab[index].is_used()).then(|| self.slab.hole(index))
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena")
            .field("reserved", &self.reserved())
            .field("used", &self.used())
            .field("blocks", &self.blocks())
            .field("holes", &self.holes())
            .finish_non_exhaustive()
    }
}
