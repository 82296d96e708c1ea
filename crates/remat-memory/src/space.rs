//! Space: the memory of an engine, as an arena or as a count of bytes, with a limit that changes.
//!
//! The constructor takes the maximum: the most bytes that the space may ever hold. The limit may be
//! any number from 0 to the maximum, and no byte at or above the limit is handed out. Before the
//! limit is lowered below the end of a block, that block must be moved.
//!
//! The memory belongs to the device. Either all memory is present from the start, or the space
//! takes regions from the device as blocks need them. Each region is twice as long as the region
//! before, and starts where that region ended, so all regions together are one. A space that takes
//! regions as needed takes all memory up to the limit before the engine evicts anything.

mod counted;
#[cfg(test)]
mod model;
mod placed;
#[cfg(test)]
mod tests;

use self::counted::Counted;
use self::placed::Placed;
use super::{Arena, Block, Move, RegionSource, Snapshot, SplitRule};

/// Memory held from the allocation until the release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Held {
    /// Bytes that the allocation takes up.
    pub bytes: u64,
    /// Handle of the block. If the space only counts bytes, a number stored as a handle.
    block: Block,
}

impl Held {
    /// Handle of the block in the arena.
    pub const fn block(&self) -> Block {
        self.block
    }
}

/// Record of the bytes in use, with or without an address for each storage. All sizes are in bytes.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // An engine has one space, so its size does not matter.
pub enum Space {
    /// Every storage has an address, and a request needs a hole that is large enough.
    Placed(Placed),
    /// Bytes are only counted: any free bytes fit a request.
    Counted(Counted),
}

impl Space {
    /// Makes a space with addresses, whose `maximum` bytes are all present from the start.
    pub fn placed(maximum: u64, granularity: u64, split: SplitRule) -> Self {
        Self::Placed(Placed::new(maximum, granularity, split, false))
    }

    /// Makes a space with addresses whose memory is taken as needed, by [`Space::grow`].
    pub fn growing(maximum: u64, granularity: u64, split: SplitRule) -> Self {
        Self::Placed(Placed::new(maximum, granularity, split, true))
    }

    /// Makes a space that only counts bytes.
    pub fn counted(maximum: u64) -> Self {
        Self::Counted(Counted::new(maximum))
    }

    /// The arena, if storages have addresses.
    pub const fn arena(&self) -> Option<&Arena> {
        match self {
            Self::Placed(placed) => Some(&placed.arena),
            Self::Counted(_) => None,
        }
    }

    /// Takes memory; `None` if the request does not fit at present.
    #[inline]
    pub fn alloc(&mut self, bytes: u64, owner: u64) -> Option<Held> {
        match self {
            Self::Placed(placed) => placed.alloc(bytes, owner),
            Self::Counted(counted) => counted.alloc(bytes),
        }
    }

    /// Takes memory at `offset`; `None` if some of these bytes are not free, or the space only
    /// counts bytes.
    pub fn alloc_at(&mut self, offset: u64, bytes: u64, owner: u64) -> Option<Held> {
        match self {
            Self::Placed(placed) => placed.alloc_at(offset, bytes, owner),
            Self::Counted(_) => None,
        }
    }

    /// Frees memory.
    #[inline]
    pub fn free(&mut self, held: Held) {
        match self {
            Self::Placed(placed) => placed.arena.free(held.block),
            Self::Counted(counted) => counted.free(held),
        }
    }

    /// Gives memory another owner.
    pub fn set_owner(&mut self, held: Held, owner: u64) {
        if let Self::Placed(placed) = self {
            placed.arena.set_owner(held.block, owner);
        }
    }

    /// Offset of the first byte. If the space only counts bytes, a number from 1 up that is never
    /// used twice.
    #[inline]
    pub fn offset(&self, held: Held) -> u64 {
        match self {
            Self::Placed(placed) => placed.arena.offset(held.block),
            Self::Counted(_) => held.block.number(),
        }
    }

    /// Least bytes that a request for `bytes` bytes takes up. With a split rule that adds small
    /// rests to blocks, a block may take more.
    #[inline]
    pub fn round(&self, bytes: u64) -> u64 {
        match self {
            Self::Placed(placed) => placed.arena.round(bytes).unwrap_or(u64::MAX),
            Self::Counted(_) => bytes,
        }
    }

    /// Most bytes that a request for `bytes` bytes takes up.
    pub fn at_most(&self, bytes: u64) -> u64 {
        let least = self.round(bytes);
        self.arena().map_or(least, |arena| arena.split.most(least, arena.granularity()))
    }

    /// Free bytes directly before and after the memory; 0 if the space only counts bytes.
    pub fn free_neighbour_bytes(&self, held: Held) -> u64 {
        match self {
            Self::Placed(placed) => placed.arena.free_neighbors(held.block).total(),
            Self::Counted(_) => 0,
        }
    }

    /// Bytes in use.
    pub const fn used(&self) -> u64 {
        match self {
            Self::Placed(placed) => placed.arena.used(),
            Self::Counted(counted) => counted.used,
        }
    }

    /// Bytes that the limit allows and no block uses. If a block does not fit even after
    /// [`Space::grow`], all free bytes are in holes.
    pub const fn free_bytes(&self) -> u64 {
        self.capacity() - self.used()
    }

    /// Most bytes ever in use at once.
    pub const fn peak(&self) -> u64 {
        match self {
            Self::Placed(placed) => placed.arena.peak(),
            Self::Counted(counted) => counted.peak,
        }
    }

    /// Bytes that may be in use: the limit, rounded down to the granularity. After a refusal of the
    /// device, the capacity is at most the bytes taken so far.
    pub const fn capacity(&self) -> u64 {
        match self {
            Self::Placed(placed) => placed.capacity(),
            Self::Counted(counted) => counted.limit,
        }
    }

    /// Part of the free bytes outside the largest hole: `(free - largest free) / free`; 0 if the
    /// space only counts bytes.
    pub fn fragmentation(&self) -> f64 {
        match self.free_bytes() {
            0 => 0.0,
            free => (free - self.largest_free()) as f64 / free as f64,
        }
    }

    /// Plans moves that make a hole of `bytes` bytes. Only blocks whose owner is `movable` are
    /// moved. `None` if too few bytes are free, if [`Space::grow`] must take some of them first, or
    /// if no plan was found.
    pub fn plan_compaction(&self, bytes: u64, movable: impl Fn(u64) -> bool) -> Option<Vec<Move>> {
        match self {
            Self::Placed(placed) => placed.arena.plan_compaction(bytes, movable),
            Self::Counted(_) => (self.free_bytes() >= bytes).then(Vec::new),
        }
    }

    /// Records a move in the arena.
    pub fn apply_move(&mut self, step: &Move) {
        if let Self::Placed(placed) = self {
            placed.arena.apply_moves(std::slice::from_ref(step));
        }
    }

    /// Records a move of a block to a free offset. Does nothing if the block already starts at
    /// `to`.
    pub fn move_to(&mut self, held: Held, to: u64) {
        let step = Move { block: held.block, from: self.offset(held), to, bytes: held.bytes };
        if step.from != to {
            self.apply_move(&step);
        }
    }

    /// Bytes of the largest request that fits, at present or after taking more memory.
    pub fn largest_free(&self) -> u64 {
        match self {
            Self::Placed(placed) => placed.largest_free(),
            Self::Counted(_) => self.free_bytes(),
        }
    }

    /// Lists all chunks; no chunks if the space only counts bytes.
    pub fn snapshot(&self, name: impl Fn(u64) -> String) -> Snapshot {
        match self {
            Self::Placed(placed) => placed.arena.snapshot(name),
            Self::Counted(_) => Arena::new(0).snapshot(name),
        }
    }

    /// Checks all records.
    ///
    /// # Panics
    /// If records contradict each other.
    pub fn check(&self) {
        match self {
            Self::Placed(placed) => placed.check(),
            Self::Counted(counted) => counted.check(),
        }
    }
}

/// Methods for the limit, and for memory that is taken as needed.
impl Space {
    /// Upper bound of the limit.
    pub const fn maximum(&self) -> u64 {
        match self {
            Self::Placed(placed) => placed.maximum,
            Self::Counted(counted) => counted.maximum,
        }
    }

    /// Limit as the last [`Space::set_limit`] set it, not rounded.
    pub const fn limit(&self) -> u64 {
        match self {
            Self::Placed(placed) => placed.limit,
            Self::Counted(counted) => counted.limit,
        }
    }

    /// Whether a refusal of the source keeps the space below its limit.
    pub const fn is_refused(&self) -> bool {
        matches!(self, Self::Placed(placed) if placed.ceiling < placed.limit)
    }

    /// Whether memory is taken as needed.
    pub const fn grows(&self) -> bool {
        matches!(self, Self::Placed(placed) if placed.grower.is_some())
    }

    /// Plans moves that empty all memory at and above `bytes`. The caller must carry out the moves
    /// one by one in the order of the list. `None` if more than `bytes` bytes are in use: storages
    /// must be freed first.
    pub fn plan_shrink(&self, bytes: u64) -> Option<Vec<Move>> {
        match self {
            Self::Placed(placed) => placed.arena.plan_shrink(bytes),
            Self::Counted(counted) => (counted.used <= bytes).then(Vec::new),
        }
    }

    /// Sets the limit: from now on no byte at or above `bytes` is handed out, and every byte below
    /// may be. Memory taken from the device is kept: see [`Space::trim`].
    ///
    /// # Panics
    /// If `bytes` is above the maximum, or a block is at or above `bytes`: see
    /// [`Space::plan_shrink`].
    pub fn set_limit(&mut self, bytes: u64) {
        let maximum = self.maximum();
        assert!(bytes <= maximum, "a limit of {bytes} bytes is above the maximum of {maximum}");
        match self {
            Self::Placed(placed) => placed.set_limit(bytes),
            Self::Counted(counted) => counted.set_limit(bytes),
        }
    }

    /// Takes memory from `source` for a block of `bytes` bytes that does not fit at present.
    /// Returns whether memory was taken.
    ///
    /// If the limit allows less than the block needs, all memory up to the limit is taken. If the
    /// source has less, all memory of the source is taken. After a refusal, no request is made
    /// until the limit is set, memory is given back, or [`Space::ask_again`] is called. Bytes that
    /// the source refused do not count as free.
    ///
    /// If the block still does not fit, all free bytes are in holes, so evicting and compacting can
    /// help.
    ///
    /// # Panics
    /// If `source` gives fewer bytes than requested, or a region that does not start at the end of
    /// the memory taken so far.
    pub fn grow(&mut self, bytes: u64, source: &mut impl RegionSource) -> bool {
        match self {
            Self::Placed(placed) => placed.grow(bytes, source),
            Self::Counted(_) => false,
        }
    }

    /// Gives all memory above the highest block back to `source` as one region, and returns its
    /// bytes. The returned region may start inside a region that the source gave, and may span
    /// several regions of the source. Returns 0 if all memory was present from the start.
    pub fn trim(&mut self, source: &mut impl RegionSource) -> u64 {
        match self {
            Self::Placed(placed) => placed.trim(source),
            Self::Counted(_) => 0,
        }
    }

    /// Allows another request to a source that refused. Call this if the source may have more
    /// memory now.
    pub const fn ask_again(&mut self) {
        if let Self::Placed(placed) = self {
            placed.ask_again();
        }
    }

    /// Bytes of memory, taken from the device or present from the start. The number may exceed a
    /// limit that was lowered.
    pub const fn taken(&self) -> u64 {
        match self {
            Self::Placed(placed) => placed.taken,
            Self::Counted(counted) => counted.limit,
        }
    }
}
