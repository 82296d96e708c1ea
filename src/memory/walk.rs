//! Looking at the arena chunk by chunk, in address order.

use std::iter::{FusedIterator, Rev};

use super::Arena;
use super::slab::{Block, EDGE, Note};

/// A run of bytes: one block or one hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Chunk {
    /// First byte.
    pub offset: u64,
    /// Bytes, a multiple of the granularity and never 0.
    pub size: u64,
    /// What is in it.
    pub content: Content,
}

/// What a [`Chunk`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum Content {
    /// A hole. Its neighbours are blocks.
    Free,
    /// A block.
    Used {
        /// Its handle.
        block: Block,
        /// The name its holder gave it.
        owner: u64,
        /// Bytes that were asked for.
        requested: u64,
    },
}

impl Chunk {
    /// Just past the last byte.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.offset + self.size
    }

    /// Whether this is a hole.
    #[must_use]
    pub const fn is_free(&self) -> bool {
        matches!(self.content, Content::Free)
    }
}

/// The free bytes directly beside a block: what its going would add to its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreeNeighbors {
    /// Bytes of the hole that ends where the block starts, 0 if there is none.
    pub left: u64,
    /// Bytes of the hole that starts where the block ends, 0 if there is none.
    pub right: u64,
}

impl FreeNeighbors {
    /// Both together.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.left + self.right
    }
}

/// Chunks in address order, from either end. Made by [`Arena::chunks`] and its like.
///
/// Neither `front` nor `back` is ever a wall: between two walls there is a chunk.
#[derive(Clone, Debug)]
pub struct Chunks<'a> {
    arena: &'a Arena,
    /// The next chunk to come; [`EDGE`] iff there is none.
    front: u32,
    /// The last chunk to come; [`EDGE`] iff there is none.
    back: u32,
}

impl<'a> Chunks<'a> {
    /// The chunks from slot `front` to slot `back`; either may be a wall on the way from a chunk to
    /// the other. None if one of them is [`EDGE`].
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
    /// Every chunk of every region, lowest address first.
    pub fn chunks(&self) -> Chunks<'_> {
        self.chunks_from(self.slab[EDGE].next)
    }

    /// The chunks above a block in the same region, nearest first: each starts where the one before
    /// it ends. O(log regions), and then O(1) for each chunk.
    #[track_caller]
    pub fn chunks_after(&self, block: Block) -> Chunks<'_> {
        let slot = &self.slab[self.slab.resolve(block)];
        let (_, fence) = self.fences(slot.offset);
        let front = if slot.next == fence { EDGE } else { slot.next };
        Chunks::new(self, front, self.slab[fence].prev)
    }

    /// The chunks below a block in the same region, nearest first. O(log regions), and then O(1) for
    /// each chunk.
    #[track_caller]
    pub fn chunks_before(&self, block: Block) -> Rev<Chunks<'_>> {
        let slot = &self.slab[self.slab.resolve(block)];
        let (fence, _) = self.fences(slot.offset);
        let back = if slot.prev == fence { EDGE } else { slot.prev };
        Chunks::new(self, self.slab[fence].next, back).rev()
    }

    /// The free bytes directly left and right of a block, as far as they would become one hole with
    /// it: those of another region do not. O(1).
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

    /// The chunk in slot `index` and those above it.
    pub(super) fn chunks_from(&self, index: u32) -> Chunks<'_> {
        Chunks::new(self, index, self.slab[EDGE].prev)
    }

    /// The chunk in slot `index`.
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
