//! Chunk records, linked in address order, and handles of blocks.

use std::fmt;
use std::num::NonZeroU32;

use super::bin::Hole;

/// Slot that closes the ring, before the first chunk and after the last. The slot has 0 bytes and
/// counts as used, so that no hole is ever merged with it.
pub(super) const EDGE: u32 = 0;

/// Handle of a block in an [`Arena`](super::Arena). A handle has eight bytes, also inside an
/// `Option`.
///
/// A handle stays valid until the block is freed, even if compaction moves the block. Each slot
/// counts its uses. The count reveals a handle that is used after `free`, unless its slot has been
/// used 2^31 times since.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Block {
    index: NonZeroU32,
    /// Generation of the slot, which is odd while the slot holds a block.
    generation: u32,
}

/// Handles for spaces that only count bytes: each number below 2^63 is a different `Block`.
impl Block {
    #[inline]
    pub(super) const fn numbered(number: u64) -> Self {
        let low = (number & LOW) as u32;
        Self { index: NonZeroU32::MIN.saturating_add(low), generation: (number >> 31) as u32 }
    }

    #[inline]
    pub(super) const fn number(self) -> u64 {
        (self.generation as u64) << 31 | (self.index.get() - 1) as u64
    }
}

/// Mask of the bits of a number that are stored in `index`.
const LOW: u64 = (1 << 31) - 1;

/// Prints `Block(12v3)` for slot 12 in generation 3.
impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block({}v{})", self.index, self.generation)
    }
}

/// Record of one chunk of the arena, or a vacant record.
///
/// A slot is half a cache line. Freeing a block reads three slots at unpredictable addresses, which
/// is most of the cost of `free`.
#[derive(Clone, Debug)]
#[repr(align(32))]
pub(super) struct Slot {
    /// Offset of the first byte. A chunk starts where the chunk before it ends.
    pub offset: u64,
    /// Size in bytes. The size is 0 only at [`EDGE`], in walls and in vacant slots.
    pub size: u64,
    /// Slot of the chunk that ends where this chunk starts.
    pub prev: u32,
    /// Slot of the chunk that starts where this chunk ends. In a vacant slot: the next vacant slot,
    /// or `EDGE`.
    pub next: u32,
    /// Number of times that the slot was used or freed. The number is odd iff the slot is a block,
    /// a wall or [`EDGE`]; it is even in a hole or a vacant slot.
    pub generation: u32,
    /// Index of a hole in its bin, unless the bin is a tree; for a block, the granules beyond the
    /// request. The field is meaningless in other slots.
    pub place_or_tail: u32,
}

/// Data about a block that only callers of the arena read. A note is meaningless for a slot without
/// a block.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Note {
    /// Caller's name for the block.
    pub owner: u64,
    /// Requested bytes.
    pub requested: u64,
}

impl Slot {
    const fn new(offset: u64, size: u64) -> Self {
        Self { offset, size, prev: EDGE, next: EDGE, generation: 0, place_or_tail: 0 }
    }

    pub fn is_used(&self) -> bool {
        self.generation % 2 == 1
    }

    pub fn end(&self) -> u64 {
        self.offset + self.size
    }

    /// Whether the slot is [`EDGE`] or a wall between two regions: in the ring, but no chunk.
    pub fn is_barrier(&self) -> bool {
        self.size == 0
    }
}

/// All slots. Chunks form a ring through [`EDGE`]; vacant slots form a stack.
#[derive(Clone, Debug)]
pub(super) struct Slab {
    slots: Vec<Slot>,
    /// Notes of the blocks: `notes[i]` belongs to `slots[i]`.
    notes: Vec<Note>,
    /// Top of the stack of vacant slots, `EDGE` if there is none.
    vacant: u32,
    /// Length of the stack of vacant slots.
    vacancies: usize,
}

impl Slab {
    pub fn new() -> Self {
        let edge = Slot { generation: 1, ..Slot::new(0, 0) };
        Self { slots: vec![edge], notes: vec![Note::default()], vacant: EDGE, vacancies: 0 }
    }

    /// Number of chunks and walls in the ring, [`EDGE`] not counted.
    pub fn len(&self) -> usize {
        self.slots.len() - 1 - self.vacancies
    }

    /// Makes a hole of the given range, and links the hole into the ring before `next`.
    #[inline(always)]
    pub fn insert_before(&mut self, next: u32, offset: u64, size: u64) -> u32 {
        let index = self.vacant;
        let index = if index == EDGE {
            self.slots.push(Slot::new(offset, size));
            self.notes.push(Note::default());
            u32::try_from(self.slots.len() - 1).expect("no arena has 2^32 chunks")
        } else {
            self.vacant = self[index].next;
            self.vacancies -= 1;
            (self[index].offset, self[index].size) = (offset, size);
            index
        };
        self.link_before(next, index);
        index
    }

    /// Takes a slot out of the ring without making it vacant. [`Slab::link_before`] can link the
    /// slot again.
    pub fn unlink(&mut self, index: u32) {
        let Slot { prev, next, .. } = self[index];
        self[prev].next = next;
        self[next].prev = prev;
    }

    /// Links an unlinked slot into the ring, before `next`.
    pub fn link_before(&mut self, next: u32, index: u32) {
        let prev = self[next].prev;
        (self[index].prev, self[index].next) = (prev, next);
        self[prev].next = index;
        self[next].prev = index;
    }

    /// Takes a hole out of the ring, and makes its slot vacant.
    pub fn remove(&mut self, index: u32) {
        self.unlink(index);
        let vacant = self.vacant;
        let slot = &mut self[index];
        slot.size = 0;
        slot.next = vacant;
        self.vacant = index;
        self.vacancies += 1;
    }

    /// Turns a hole into a block or a block into a hole.
    pub fn flip(&mut self, index: u32) {
        let slot = &mut self[index];
        slot.generation = slot.generation.wrapping_add(1);
    }

    /// Note of the block in slot `index`.
    pub fn note(&self, index: u32) -> &Note {
        &self.notes[index as usize]
    }

    /// Mutable note of the block in slot `index`.
    pub fn note_mut(&mut self, index: u32) -> &mut Note {
        &mut self.notes[index as usize]
    }

    /// Hole in slot `index`.
    pub fn hole(&self, index: u32) -> Hole {
        let &Slot { size, offset, .. } = &self[index];
        Hole { size, offset, slot: index }
    }

    /// Handle of the block in slot `index`.
    pub fn handle(&self, index: u32) -> Block {
        let slot = &self[index];
        debug_assert!(slot.is_used(), "slot {index} holds no block");
        let index = NonZeroU32::new(index).expect("the edge is not a block");
        Block { index, generation: slot.generation }
    }

    /// Slot of a block.
    ///
    /// # Panics
    /// If `block` was freed. A handle of another arena does not always panic.
    #[inline]
    #[track_caller]
    pub fn resolve(&self, block: Block) -> u32 {
        let index = block.index.get();
        match self.slots.get(index as usize) {
            Some(slot) if slot.generation == block.generation => index,
            slot => stale(block, slot.map(|slot| slot.generation)),
        }
    }
}

#[cold]
#[inline(never)]
#[track_caller]
fn stale(block: Block, now: Option<u32>) -> ! {
    match now {
        Some(now) => {
            panic!("{block:?} is stale: it was freed, and its slot is at generation {now}")
        }
        None => panic!("{block:?} is not of this arena: there is no such slot"),
    }
}

impl std::ops::Index<u32> for Slab {
    type Output = Slot;
    fn index(&self, index: u32) -> &Slot {
        &self.slots[index as usize]
    }
}

impl std::ops::IndexMut<u32> for Slab {
    fn index_mut(&mut self, index: u32) -> &mut Slot {
        &mut self.slots[index as usize]
    }
}
