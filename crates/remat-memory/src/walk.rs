//! Chunks of the arena, in address order.

use std::iter::{FusedIterator, Rev};

use super::Arena;
use super::slab::{Block, EDGE, Note};

/// Range of bytes: one block or one hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Chunk {
    /// Offset of the first byte.
    pub offset: u64,
    /// Size in bytes, a multiple of the granularity and never 0.
    pub size: u64,
    /// Block or hole.
    pub content: Content,
}

/// Content of a [`Chunk`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum Content {
    /// Hole. The neighbours of a hole are blocks.
    Free,
    /// Block.
    Used {
        /// Handle of the block.
        block: Block,
        /// Name that the caller gave to the block.
        owner: u64,
        /// Requested bytes.
        requested: u64,
    },
}

impl Chunk {
    /// Offset just past the last byte.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.offset + self.size
    }

    /// Whether the chunk is a hole.
    #[must_use]
    pub const fn is_free(&self) -> bool {
        matches!(self.content, Content::Free)
    }
}

/// Free bytes directly before and after a block. Freeing the block merges these free bytes with the
/// bytes of the block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreeNeighbors {
    /// Bytes of the hole directly before the block, 0 if none.
    pub left: u64,
    /// Bytes of the hole directly after the block, 0 if none.
    pub right: u64,
}

impl FreeNeighbors {
    /// Total of both sides.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.left + self.right
    }
}

/// Iterator over chunks in address order, from either end. Returned by [`Arena::chunks`],
/// [`Arena::chunks_after`] and [`Arena::chunks_before`].
///
/// Neither `front` nor `back` is ever a wall: between two walls there is a chunk.
#[derive(Clone, Debug)]
pub struct Chunks<'a> {
    arena: &'a Arena,
    /// Slot of the first remaining chunk; [`EDGE`] iff no chunk remains.
    front: u32,
    /// Slot of the last remaining chunk; [`EDGE`] iff no chunk remains.
    back: u32,
}

impl<'a> Chunks<'a> {
    /// Chunks from slot `front` to slot `back`. If `front` or `back` is a wall, the iterator begins
    /// or ends at the next chunk inside. The iterator has no chunks if `front` or `back` is
    /// [`EDGE`].
    fn new(arena: &'a Arena, front: u32, back: u32) -> Self {
        if front == EDGE || back == EDGE {
            return Self { arena, front: EDGE, back: EDGE };
        }
        let (first, last) = (&arena.slab[front], &arena.slab[back]);
        let front = if first.is_barrier() { first.next } else { front };
        let back = if last.is_barrier() { last.prev } else { back };
        Self { arena, front, back }
    }
}

impl Iterator for Chunks<'_> {
    type Item = Chunk;

    fn next(&mut self) -> Option<Chunk> {
        let index = self.front;
        let after = self.arena.slab[index].next;
        *self = Self::new(self.arena, if index == self.back { EDGE } else { after }, self.back);
        (index != EDGE).then(|| self.arena.chunk(index))
    }
}

impl DoubleEndedIterator for Chunks<'_> {
    fn next_back(&mut self) -> Option<Chunk> {
        let index = self.back;
        let before = self.arena.slab[index].prev;
        *self = Self::new(self.arena, self.front, if index == self.front { EDGE } else { before });
        (index != EDGE).then(|| self.arena.chunk(index))
    }
}

impl FusedIterator for Chunks<'_> {}

impl Arena {
    /// All chunks of all regions, lowest address first.
    pub fn chunks(&self) -> Chunks<'_> {
        self.chunks_from(self.slab[EDGE].next)
    }

    /// Chunks above a block in its region, nearest first, without gaps. Time: O(log regions), and
    /// then O(1) for each chunk.
    #[track_caller]
    pub fn chunks_after(&self, block: Block) -> Chunks<'_> {
        let slot = &self.slab[self.slab.resolve(block)];
        let (_, fence) = self.fences(slot.offset);
        let front = if slot.next == fence { EDGE } else { slot.next };
        Chunks::new(self, front, self.slab[fence].prev)
    }

    /// Chunks below a block in its region, nearest first. Time: O(log regions), and then O(1) for
    /// each chunk.
    #[track_caller]
    pub fn chunks_before(&self, block: Block) -> Rev<Chunks<'_>> {
        let slot = &self.slab[self.slab.resolve(block)];
        let (fence, _) = self.fences(slot.offset);
        let back = if slot.prev == fence { EDGE } else { slot.prev };
        Chunks::new(self, self.slab[fence].next, back).rev()
    }

    /// Free bytes directly before and after a block. Freeing the block merges these free bytes with
    /// the bytes of the block. Free bytes of another region do not count. Time: O(1).
    #[must_use]
    #[track_caller]
    pub fn free_neighbors(&self, block: Block) -> FreeNeighbors {
        let slot = &self.slab[self.slab.resolve(block)];
        let free = |index| {
            let slot = &self.slab[index];
            if slot.is_used() { 0 } else { slot.size }
        };
        FreeNeighbors { left: free(slot.prev), right: free(slot.next) }
    }

    /// Chunks from slot `index` upwards.
    pub(super) fn chunks_from(&self, index: u32) -> Chunks<'_> {
        Chunks::new(self, index, self.slab[EDGE].prev)
    }

    /// Chunk in slot `index`.
    fn chunk(&self, index: u32) -> Chunk {
        let slot = &self.slab[index];
        let content = if slot.is_used() {
            let block = self.slab.handle(index);
            let &Note { owner, requested } = self.slab.note(index);
            Content::Used { block, owner, requested }
        } else {
            Content::Free
        };
        Chunk { offset: slot.offset, size: slot.size, content }
    }
}
