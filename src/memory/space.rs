//! What the engine takes memory from: an arena, or a number, and a limit that changes.
//!
//! A space is made with the most it may ever hold, and works below a limit that is anywhere from 0 to that. No
//! byte at or above the limit is handed out. To lower it below what blocks reach up to, there are moves.
//!
//! Memory is the device's. Either all of it is there from the start, or it is taken region by region as blocks need
//! it, each twice as long as the one before: then every region starts where the one before it ended, and they are
//! one. Such a space takes memory up to the limit before the engine evicts anything.

mod counted;
#[cfg(test)]
mod model;
mod placed;
#[cfg(test)]
mod tests;

use self::counted::Counted;
use self::placed::Placed;
use super::{Arena, Block, Holder, Move, RegionSource, Snapshot, SplitRule};

/// Memory that is held, from the allocation until it is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Held {
    /// Bytes it takes up.
    pub bytes: u64,
    /// Where it is; a number in a block's clothes where bytes are only counted.
    block: Block,
}

impl Held {
    /// What an arena calls it.
    pub const fn block(&self) -> Block {
        self.block
    }
}

/// Where storages are, or only how much they take. All sizes in bytes.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // There is one of it.
pub(crate) enum Space {
    /// Every storage has its place, and holes count.
    Placed(Placed),
    /// Free bytes are free bytes.
    Counted(Counted),
}

impl Space {
    /// Places of which all `maximum` bytes are there already.
    pub fn placed(maximum: u64, granularity: u64, split: SplitRule) -> Self {
        Self::Placed(Placed::new(maximum, granularity, split, false))
    }

    /// Places for which memory is taken as needed, by [`Space::grow`].
    pub fn growing(maximum: u64, granularity: u64, split: SplitRule) -> Self {
        Self::Placed(Placed::new(maximum, granularity, split, true))
    }

    /// Bytes without places.
    pub fn counted(maximum: u64) -> Self {
        Self::Counted(Counted::new(maximum))
    }

    /// The arena, where there is one.
    pub const fn arena(&self) -> Option<&Arena> {
        match self {
            Self::Placed(placed) => Some(&placed.arena),
            Self::Counted(_) => None,
        }
    }

    /// Takes memory; `None` if it does not fit as things are.
    #[inline]
    pub fn alloc(&mut self, bytes: u64, owner: u64) -> Option<Held> {
        match self {
            Self::Placed(placed) => placed.alloc(bytes, owner),
            Self::Counted(counted) => counted.alloc(bytes),
        }
    }

    /// Takes memory from this first byte on; `None` if not all of it is free, or bytes are only counted.
    pub fn alloc_at(&mut self, offset: u64, bytes: u64, owner: u64) -> Option<Held> {
        match self {
            Self::Placed(placed) => placed.alloc_at(offset, bytes, owner),
            Self::Counted(_) => None,
        }
    }

    /// Gives memory back.
    #[inline]
    pub fn free(&mut self, held: Held) {
        match self {
            Self::Placed(placed) => placed.arena.free(held.block),
            Self::Counted(counted) => counted.free(held),
        }
    }

    /// First byte. Where bytes are only counted: a number from 1 up, which nothing else has or had.
    #[inline]
    pub fn offset(&self, held: Held) -> u64 {
        match self {
            Self::Placed(placed) => placed.arena.offset(held.block),
            Self::Counted(_) => held.block.number(),
        }
    }

    /// The least that `bytes` bytes take up: with a split rule that hands out what would be too little to keep, a
    /// block may take more.
    pub fn round(&self, bytes: u64) -> u64 {
        match self {
            Self::Placed(placed) => placed.arena.round(bytes).unwrap_or(u64::MAX),
            Self::Counted(_) => bytes,
        }
    }

    /// The most that `bytes` bytes take up.
    pub fn at_most(&self, bytes: u64) -> u64 {
        let least = self.round(bytes);
        self.arena().map_or(least, |arena| arena.split.most(least, arena.granularity()))
    }

    /// Free bytes directly left and right.
    pub fn free_neighbour_bytes(&self, held: Held) -> u64 {
        match self {
            Self::Placed(placed) => placed.arena.free_neighbors(held.block).total(),
            Self::Counted(_) => 0,
        }
    }

    /// Bytes in use now.
    pub const fn used(&self) -> u64 {
        match self {
            Self::Placed(placed) => placed.arena.used(),
            Self::Counted(counted) => counted.used,
        }
    }

    /// Bytes not in use, of those that may be. After [`Space::grow`] all of them are there, in holes.
    pub const fn free_bytes(&self) -> u64 {
        self.capacity() - self.used()
    }

    /// Most bytes ever in use.
    pub const fn peak(&self) -> u64 {
        match self {
            Self::Placed(placed) => placed.arena.peak(),
            Self::Counted(counted) => counted.peak,
        }
    }

    /// Bytes that may be in use: the limit, rounded down to the granularity, or what the device had where it refused
    /// to give more.
    pub const fn capacity(&self) -> u64 {
        match self {
            Self::Placed(placed) => placed.capacity(),
            Self::Counted(counted) => counted.limit,
        }
    }

    /// `(free - largest free) / free`; 0 where bytes are only counted.
    pub fn fragmentation(&self) -> f64 {
        match self.free_bytes() {
            0 => 0.0,
            free => (free - self.largest_free()) as f64 / free as f64,
        }
    }

    /// The moves that make a hole of `bytes` bytes, of blocks whose owner is `movable`; `None` if free bytes do not suffice,
    /// or memory is still to be taken for them, or none were found.
    pub fn plan_compaction(&self, bytes: u64, movable: impl Fn(u64) -> bool) -> Option<Vec<Move>> {
        match self {
            Self::Placed(placed) => placed.arena.plan_compaction(bytes, movable),
            Self::Counted(_) => (self.free_bytes() >= bytes).then(Vec::new),
        }
    }

    /// Does a move in the books.
    pub fn apply_move(&mut self, step: &Move) {
        if let Self::Placed(placed) = self {
            placed.arena.apply_moves(std::slice::from_ref(step));
        }
    }

    /// Moves a block in the books to where there is room for it.
    pub fn move_to(&mut self, held: Held, to: u64) {
        let step = Move { block: held.block, from: self.offset(held), to, bytes: held.bytes };
        if step.from != to {
            self.apply_move(&step);
        }
    }

    /// The largest request that fits as things are, or once memory is taken for it.
    pub fn largest_free(&self) -> u64 {
        match self {
            Self::Placed(placed) => placed.largest_free(),
            Self::Counted(_) => self.free_bytes(),
        }
    }

    /// Who holds most; nobody is known where bytes are only counted.
    pub fn holders(&self) -> Vec<Holder> {
        self.arena().map_or_else(Vec::new, |arena| arena.report().holders)
    }

    /// Every chunk; none where bytes are only counted.
    pub fn snapshot(&self, name: impl Fn(u64) -> String) -> Snapshot {
        match self {
            Self::Placed(placed) => placed.arena.snapshot(name),
            Self::Counted(_) => Arena::new(0).snapshot(name),
        }
    }

    /// Panics if the books contradict themselves.
    pub fn check(&self) {
        match self {
            Self::Placed(placed) => placed.check(),
            Self::Counted(counted) => counted.check(),
        }
    }
}

/// The limit, and memory that is taken as needed.
impl Space {
    /// The limit is never above this.
    pub const fn maximum(&self) -> u64 {
        match self {
            Self::Placed(placed) => placed.maximum,
            Self::Counted(counted) => counted.maximum,
        }
    }

    /// The limit, as it was set.
    pub const fn limit(&self) -> u64 {
        match self {
            Self::Placed(placed) => placed.limit,
            Self::Counted(counted) => counted.limit,
        }
    }

    /// Whether the source gave less than the limit when it was last asked.
    pub const fn is_refused(&self) -> bool {
        matches!(self, Self::Placed(placed) if placed.ceiling < placed.limit)
    }

    /// Whether memory is taken as needed.
    pub const fn grows(&self) -> bool {
        matches!(self, Self::Placed(placed) if placed.grower.is_some())
    }

    /// The moves that empty everything at and above `bytes`, in an order in which each can be carried out by itself.
    /// `None` if what is in use needs more than `bytes`: then something has to be freed first.
    pub fn plan_shrink(&self, bytes: u64) -> Option<Vec<Move>> {
        match self {
            Self::Placed(placed) => placed.arena.plan_shrink(bytes),
            Self::Counted(counted) => (counted.used <= bytes).then(Vec::new),
        }
    }

    /// From here on, no byte at or above `bytes` is handed out, and every byte below is. Memory that was taken stays
    /// taken: see [`Space::trim`].
    ///
    /// # Panics
    /// If `bytes` is above the maximum, or something is at or above `bytes`: see [`Space::plan_shrink`].
    pub fn set_limit(&mut self, bytes: u64) {
        let maximum = self.maximum();
        assert!(bytes <= maximum, "a limit of {bytes} bytes is above the maximum of {maximum}");
        match self {
            Self::Placed(placed) => placed.set_limit(bytes),
            Self::Counted(counted) => counted.set_limit(bytes),
        }
    }

    /// Takes memory from `source`, so that a block of `bytes` fits that does not fit as things are. Where that is more
    /// than may be taken, all that may be; where the source has less, what it has. It is not asked again then before
    /// the limit is set, memory is given back, or [`Space::ask_again`]: what it did not give does not count
    /// as free. Whether memory was taken.
    ///
    /// If the block still does not fit, all free bytes are in holes, and evicting and compacting help.
    ///
    /// # Panics
    /// If `source` gives less than it was asked for, or a region that does not start where the last one ended (0 at
    /// first, and the start of what was last given back, if that was later).
    pub fn grow(&mut self, bytes: u64, source: &mut impl RegionSource) -> bool {
        match self {
            Self::Placed(placed) => placed.grow(bytes, source),
            Self::Counted(_) => false,
        }
    }

    /// Gives all memory above the highest block back to `source` as one region, which may end a region that it gave or
    /// begin inside of one, and returns its bytes. 0 where memory is not taken as needed.
    pub fn trim(&mut self, source: &mut impl RegionSource) -> u64 {
        match self {
            Self::Placed(placed) => placed.trim(source),
            Self::Counted(_) => 0,
        }
    }

    /// A source that refused may have more by now.
    pub const fn ask_again(&mut self) {
        if let Self::Placed(placed) = self {
            placed.ask_again();
        }
    }

    /// Bytes there is memory for, taken from the device or there from the start. It may be above a limit that was lowered.
    pub const fn taken(&self) -> u64 {
        match self {
            Self::Placed(placed) => placed.taken,
            Self::Counted(counted) => counted.limit,
        }
    }
}
