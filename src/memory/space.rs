//! What the engine takes memory from: an arena, or a number.

use super::{Arena, Block, Holder, Move, Snapshot};

/// Memory that is held, from the allocation until it is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Bytes it takes up.
    pub bytes: u64,
    /// Where it is; `None` where bytes are only counted.
    block: Option<Block>,
}

/// Where storages are, or only how much they take.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // There is one of it.
pub(crate) enum Space {
    /// Every storage has its place, and holes count.
    Placed(Arena),
    /// Free bytes are free bytes.
    Counted(Count),
}

/// Bytes in use, and a limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Count {
    capacity: u64,
    used: u64,
    peak: u64,
}

impl Space {
    /// Bytes without places.
    pub fn counted(capacity: u64) -> Self {
        Self::Counted(Count { capacity, used: 0, peak: 0 })
    }

    /// The arena, where there is one.
    pub const fn arena(&self) -> Option<&Arena> {
        match self {
            Self::Placed(arena) => Some(arena),
            Self::Counted(_) => None,
        }
    }

    /// Takes memory; `None` if it does not fit.
    #[inline]
    pub fn alloc(&mut self, bytes: u64, owner: u64) -> Option<Held> {
        match self {
            Self::Placed(arena) => {
                let block = arena.alloc(bytes, owner)?;
                Some(Held { bytes: arena.size(block), block: Some(block) })
            }
            Self::Counted(count) => {
                let used = count.used.checked_add(bytes).filter(|&used| used <= count.capacity)?;
                count.used = used;
                count.peak = count.peak.max(used);
                Some(Held { bytes, block: None })
            }
        }
    }

    /// Gives memory back.
    #[inline]
    pub fn free(&mut self, held: Held) {
        match (self, held.block) {
            (Self::Placed(arena), Some(block)) => arena.free(block),
            (Self::Counted(count), None) => count.used -= held.bytes,
            _ => unreachable!("memory goes back to where it came from"),
        }
    }

    /// First byte; 0 where bytes are only counted.
    #[inline]
    pub fn offset(&self, held: Held) -> u64 {
        match (self, held.block) {
            (Self::Placed(arena), Some(block)) => arena.offset(block),
            _ => 0,
        }
    }

    /// What `bytes` bytes take up.
    pub fn round(&self, bytes: u64) -> u64 {
        match self {
            Self::Placed(arena) => {
                bytes.max(1).checked_next_multiple_of(arena.granularity()).unwrap_or(u64::MAX)
            }
            Self::Counted(_) => bytes,
        }
    }

    /// Free bytes directly left and right.
    pub fn free_neighbour_bytes(&self, held: Held) -> u64 {
        match (self, held.block) {
            (Self::Placed(arena), Some(block)) => {
                let free = arena.free_neighbors(block);
                free.left + free.right
            }
            _ => 0,
        }
    }

    /// Bytes in use now.
    pub const fn used(&self) -> u64 {
        match self {
            Self::Placed(arena) => arena.used(),
            Self::Counted(count) => count.used,
        }
    }

    /// Bytes not in use.
    pub const fn free_bytes(&self) -> u64 {
        match self {
            Self::Placed(arena) => arena.free_bytes(),
            Self::Counted(count) => count.capacity - count.used,
        }
    }

    /// Most bytes ever in use.
    pub const fn peak(&self) -> u64 {
        match self {
            Self::Placed(arena) => arena.peak(),
            Self::Counted(count) => count.peak,
        }
    }

    /// All bytes.
    pub const fn capacity(&self) -> u64 {
        match self {
            Self::Placed(arena) => arena.reserved(),
            Self::Counted(count) => count.capacity,
        }
    }

    /// `(free - largest free) / free`; 0 where bytes are only counted.
    pub fn fragmentation(&self) -> f64 {
        self.arena().map_or(0.0, Arena::fragmentation)
    }

    /// The moves that make a hole of `bytes` bytes; `None` if free bytes do not suffice.
    pub fn plan_compaction(&self, bytes: u64) -> Option<Vec<Move>> {
        match self {
            Self::Placed(arena) => arena.plan_compaction(bytes, |_| true),
            Self::Counted(_) => (self.free_bytes() >= bytes).then(Vec::new),
        }
    }

    /// Does a move in the books.
    pub fn apply_move(&mut self, step: &Move) {
        if let Self::Placed(arena) = self {
            arena.apply_moves(std::slice::from_ref(step));
        }
    }

    /// The largest request that fits as things are.
    pub fn largest_free(&self) -> u64 {
        self.arena().map_or_else(|| self.free_bytes(), Arena::largest_free)
    }

    /// Who holds most; nobody is known where bytes are only counted.
    pub fn holders(&self) -> Vec<Holder> {
        self.arena().map_or_else(Vec::new, |arena| arena.report().holders)
    }

    /// Every chunk; none where bytes are only counted.
    pub fn snapshot(&self, name: impl Fn(u64) -> String) -> Snapshot {
        match self {
            Self::Placed(arena) => arena.snapshot(name),
            Self::Counted(_) => Arena::new(0).snapshot(name),
        }
    }

    /// Panics if the books contradict themselves.
    pub fn check(&self) {
        if let Self::Placed(arena) = self {
            arena.check();
        }
    }
}
