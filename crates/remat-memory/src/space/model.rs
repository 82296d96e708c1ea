//! Brute-force model of a space: lists of ranges, compared after each operation. The model also
//! checks what the engine assumes of a space.

use super::{Held, Space};
use crate::{Content, Move, Region, RegionSource, SplitRule};
use std::collections::HashSet;

/// Kind of space to test.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mode {
    pub kind: Kind,
    pub maximum: u64,
    pub granularity: u64,
    pub split: SplitRule,
    /// Sizes are up to `2^scale` granules.
    pub scale: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    Placed,
    Growing,
    Counted,
}

/// Modes of all kinds with all their split rules: few large blocks and many small blocks, exact
/// bytes and granules, maxima that are and are not multiples of a granule.
pub(super) fn modes() -> Vec<Mode> {
    let tf = |bytes| SplitRule::TensorFlow { max_internal_fragmentation: bytes };
    // Only spaces of more than 2 MiB have several regions, because the first region has 2 MiB. A
    // large granule keeps the number of granules small.
    let large = 1 << 18;
    let mut modes = vec![];
    for scale in [2, 4, 6] {
        for (maximum, granularity) in [(200, 1), (256 * 100 + 77, 256)] {
            let kind = Kind::Placed;
            for split in [SplitRule::Exact, SplitRule::tensorflow(), tf(3 * granularity), tf(0)] {
                modes.push(Mode { kind, maximum, granularity, split, scale });
            }
        }
        for maximum in [100 * large, 90 * large + 7] {
            let (kind, granularity) = (Kind::Growing, large);
            for split in [SplitRule::Exact, SplitRule::tensorflow(), tf(3 * large)] {
                modes.push(Mode { kind, maximum, granularity, split, scale });
            }
        }
        let (kind, granularity, split) = (Kind::Counted, 1, SplitRule::Exact);
        modes.push(Mode { kind, maximum: 150, granularity, split, scale });
    }
    modes
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Operation {
    /// Allocates as the engine does: grows, then evicts and compacts.
    Alloc {
        bytes: u64,
        victim: u64,
    },
    Free {
        nth: u64,
    },
    Compact {
        bytes: u64,
    },
    /// Sets the limit as the engine sets its budget: evicts and moves.
    SetLimit {
        bytes: u64,
        victim: u64,
    },
    /// Lowers the limit to the bytes in use, and raises it again.
    Squeeze,
    Trim,
    AskAgain,
    /// Limits what the source gives from now on. The source gives `all` granules in total, at most
    /// `most` granules at once, and `spare` granules more than requested.
    Ration {
        all: u64,
        most: u64,
        spare: u64,
    },
}

impl Operation {
    pub fn from_word(word: u64, mode: &Mode) -> Self {
        let (kind, power, rest) = (word % 64, word / 64 % 64, word >> 12);
        let bytes = match power {
            0 => 0,
            1 => u64::MAX - rest % 1000,
            _ => rest % (mode.granularity << (power % (mode.scale + 1))) + 1,
        };
        let victim = rest >> 30;
        match kind {
            0..28 => Self::Alloc { bytes, victim },
            28..48 => Self::Free { nth: rest },
            48..52 => Self::Compact { bytes },
            52..57 => Self::SetLimit { bytes: rest % (mode.maximum + 1), victim },
            57..59 => Self::Squeeze,
            59 => Self::Trim,
            60 => Self::AskAgain,
            _ => Self::Ration {
                all: if victim.is_multiple_of(3) { 1 << 20 } else { victim % 120 },
                most: if victim.is_multiple_of(2) { 1 << 20 } else { (victim >> 8) % 30 },
                spare: (victim >> 16) % 7 / 4,
            },
        }
    }
}

/// Source that gives memory from address 0 up.
#[derive(Debug)]
struct Upward {
    given: u64,
    all: u64,
    most: u64,
    spare: u64,
    asked: Vec<u64>,
}

impl RegionSource for Upward {
    fn take(&mut self, bytes: u64) -> Option<Region> {
        self.asked.push(bytes);
        if bytes > self.most || self.given + bytes > self.all {
            return None;
        }
        let region = Region { start: self.given, bytes: bytes + self.spare };
        self.given = region.end();
        Some(region)
    }

    fn give_back(&mut self, region: Region) {
        assert!(region.bytes > 0 && region.end() == self.given, "{region:?} is not the upper end");
        self.given = region.start;
    }
}

/// Block of the model.
#[derive(Clone, Copy, Debug)]
struct Known {
    held: Held,
    offset: u64,
    requested: u64,
    owner: u64,
}

impl Known {
    fn end(&self) -> u64 {
        self.offset + self.held.bytes
    }
}

/// Space, and its expected state.
#[derive(Debug)]
pub(super) struct Model {
    mode: Mode,
    space: Space,
    source: Upward,
    limit: u64,
    /// Whether the source refused, and no new request is allowed yet.
    refused: bool,
    /// Blocks, in any order.
    blocks: Vec<Known>,
    /// Owner that last wrote to each granule.
    memory: Vec<u64>,
    numbers: HashSet<u64>,
    owners: u64,
    peak: u64,
}

impl Model {
    pub fn new(mode: Mode) -> Self {
        let Mode { kind, maximum, granularity, split, .. } = mode;
        let space = match kind {
            Kind::Placed => Space::placed(maximum, granularity, split),
            Kind::Growing => Space::growing(maximum, granularity, split),
            Kind::Counted => Space::counted(maximum),
        };
        let source =
            Upward { given: 0, all: u64::MAX / 2, most: u64::MAX, spare: 0, asked: vec![] };
        Self {
            mode,
            space,
            source,
            limit: maximum,
            refused: false,
            blocks: vec![],
            memory: vec![0; maximum.div_ceil(granularity) as usize],
            numbers: HashSet::new(),
            owners: 0,
            peak: 0,
        }
    }

    pub fn apply(&mut self, operation: Operation) {
        match operation {
            Operation::Alloc { bytes, victim } => self.allocate(bytes, victim),
            Operation::Free { nth } => self.evict(nth),
            Operation::Compact { bytes } => {
                if let Some(moves) = self.space.plan_compaction(bytes, |_| true) {
                    self.carry_out(&moves);
                    assert!(self.best_fit(bytes).is_some(), "no hole for {bytes}");
                }
            }
            Operation::SetLimit { bytes, victim } => self.set_limit(bytes, victim),
            Operation::Squeeze => {
                self.space.ask_again();
                self.refused = false;
                let (limit, free) = (self.limit, self.space.free_bytes());
                self.set_limit(self.space.used(), 0);
                assert_eq!(self.space.free_bytes(), 0);
                self.compare();
                self.set_limit(limit, 0);
                assert_eq!(self.space.free_bytes(), free);
            }
            Operation::Trim => {
                let highest = self.blocks.iter().map(Known::end).max().unwrap_or(0);
                let given = self.source.given;
                let bytes = self.space.trim(&mut self.source);
                assert_eq!(self.source.given, given - bytes);
                if self.mode.kind == Kind::Growing {
                    assert_eq!(self.source.given, highest);
                    self.refused &= bytes == 0;
                }
            }
            Operation::AskAgain => {
                self.space.ask_again();
                self.refused = false;
            }
            Operation::Ration { all, most, spare } => {
                let granularity = self.mode.granularity;
                self.source.all = all * granularity;
                self.source.most = most * granularity;
                self.source.spare = spare * granularity;
            }
        }
        self.compare();
    }

    /// Runs the engine's loop, with every block evictable. The loop must end, and must find a
    /// compaction whenever enough bytes are free.
    fn allocate(&mut self, bytes: u64, victim: u64) {
        if self.alloc(bytes) {
            return;
        }
        let size = self.space.round(bytes);
        if size > self.space.capacity() {
            return;
        }
        self.grow(bytes);
        self.compare();
        if self.alloc(bytes) {
            return;
        }
        // The space took all memory that it can get, so all free bytes are in holes.
        let Some(arena) = self.space.arena() else { return };
        assert_eq!(self.space.free_bytes(), arena.free_bytes());
        if size > self.space.capacity() {
            return;
        }
        loop {
            if self.space.free_bytes() < size {
                assert!(!self.blocks.is_empty(), "{size} bytes do not fit into nothing");
                self.evict(victim);
            } else {
                let moves =
                    self.space.plan_compaction(bytes, |_| true).expect("all blocks may move");
                self.carry_out(&moves);
            }
            if self.alloc(bytes) {
                return;
            }
        }
    }

    fn grow(&mut self, bytes: u64) {
        let taken = self.space.taken();
        self.source.asked.clear();
        let grew = self.space.grow(bytes, &mut self.source);
        assert_eq!(grew, self.space.taken() > taken);
        let asked = &self.source.asked;
        if self.mode.kind != Kind::Growing || self.refused {
            assert!(asked.is_empty(), "{asked:?}");
            return;
        }
        assert!(asked.iter().all(|&bytes| taken + bytes <= self.limit), "{asked:?}");
        // Each request is smaller than the request before. At the end, the source gave all its
        // memory, or the block fits, or all memory up to the limit is taken.
        assert!(asked.windows(2).all(|pair| pair[1] < pair[0]), "{asked:?}");
        let fits = self.best_fit(bytes).is_some();
        let all = self.space.taken() + self.mode.granularity > self.limit;
        if !fits && !all {
            self.refused = true;
            assert!(grew || *asked.last().unwrap() == self.mode.granularity, "{asked:?}");
            assert_eq!(self.space.capacity(), self.space.taken());
        } else if self.space.capacity() < self.limit / self.mode.granularity * self.mode.granularity
        {
            // The source refused, and then gave enough.
            self.refused = true;
        }
    }

    /// Takes a block, and checks its offset, or that it fits nowhere, against the model.
    fn alloc(&mut self, bytes: u64) -> bool {
        self.owners += 1;
        let owner = self.owners;
        let expected = self.best_fit(bytes);
        let got = self.space.alloc(bytes, owner);
        assert_eq!(got.is_some(), expected.is_some());
        let (Some(held), Some((offset, size))) = (got, expected) else { return false };
        assert_eq!(held.bytes, size);
        assert!(self.space.round(bytes) <= size && size <= self.space.at_most(bytes));
        let known = Known { held, offset: self.space.offset(held), requested: bytes, owner };
        if self.mode.kind == Kind::Counted {
            assert!(self.numbers.insert(known.offset), "{known:?} has the number of another");
        } else {
            assert_eq!(known.offset, offset);
            let written = self.granules(offset, bytes);
            self.memory[written].fill(owner);
        }
        self.blocks.push(known);
        self.peak = self.peak.max(self.used());
        true
    }

    fn evict(&mut self, nth: u64) {
        if !self.blocks.is_empty() {
            let known = self.blocks.swap_remove((nth % self.blocks.len() as u64) as usize);
            self.space.free(known.held);
        }
    }

    /// Sets the limit as the engine does: evicts while too many bytes are in use, then moves
    /// blocks.
    fn set_limit(&mut self, bytes: u64, victim: u64) {
        let rounded = bytes / self.mode.granularity * self.mode.granularity;
        let moves = loop {
            let plan = self.space.plan_shrink(bytes);
            assert_eq!(plan.is_some(), self.used() <= rounded);
            match plan {
                Some(moves) => break moves,
                None => self.evict(victim),
            }
        };
        if self.mode.kind != Kind::Counted {
            let cost: u64 = moves.iter().map(|m| m.bytes).sum();
            assert!(cost <= self.slide_cost(rounded), "{cost} for {moves:?}");
            let above = self.blocks.iter().any(|known| known.end() > rounded);
            assert_eq!(!moves.is_empty(), above);
        }
        self.carry_out(&moves);
        self.space.set_limit(bytes);
        self.limit = bytes;
        self.refused = false;
    }

    /// Fewest bytes to move if the blocks above some offset are packed downwards. Tries every
    /// offset.
    fn slide_cost(&self, bytes: u64) -> u64 {
        let mut blocks = self.blocks.clone();
        blocks.sort_unstable_by_key(|known| known.offset);
        let plans = (0..=blocks.len()).filter_map(|first| {
            let start = first.checked_sub(1).map_or(0, |below| blocks[below].end());
            let used: u64 = blocks[first..].iter().map(|known| known.held.bytes).sum();
            let moved = blocks[first..].iter().map(|known| known.requested).sum();
            (start + used <= bytes).then_some(moved)
        });
        // The first block of a plan may not have to move.
        plans.min().expect("it fits")
    }

    /// Carries out the moves one by one, each as a `memmove`.
    fn carry_out(&mut self, moves: &[Move]) {
        for m in moves {
            let at = self.blocks.iter().position(|known| known.held.block == m.block).unwrap();
            let mut known = self.blocks.swap_remove(at);
            assert_eq!((m.from, m.bytes), (known.offset, known.requested));
            assert!(m.to != m.from, "{m:?} goes nowhere");
            known.offset = m.to;
            let clear = |other: &Known| other.end() <= m.to || known.end() <= other.offset;
            assert!(self.blocks.iter().all(clear), "{m:?} goes to where something is");
            assert!(known.end() <= self.reserved(), "{m:?} leaves the arena");
            let (from, to) = (self.granules(m.from, m.bytes), self.granules(m.to, m.bytes));
            self.memory.copy_within(from, to.start);
            self.blocks.push(known);
            self.space.apply_move(m);
            self.compare();
        }
    }

    /// Bytes that the arena covers.
    fn reserved(&self) -> u64 {
        let bytes = if self.mode.kind == Kind::Growing {
            self.limit.min(self.source.given)
        } else {
            self.limit
        };
        bytes / self.mode.granularity * self.mode.granularity
    }

    fn used(&self) -> u64 {
        self.blocks.iter().map(|known| known.held.bytes).sum()
    }

    /// Offsets and sizes of the holes, in address order.
    fn holes(&self) -> Vec<(u64, u64)> {
        let mut blocks: Vec<_> =
            self.blocks.iter().map(|known| (known.offset, known.end())).collect();
        blocks.sort_unstable();
        let starts = [0].into_iter().chain(blocks.iter().map(|&(_, end)| end));
        let ends = blocks.iter().map(|&(start, _)| start).chain([self.reserved()]);
        let holes = starts.zip(ends).map(|(start, end)| (start, end.checked_sub(start).unwrap()));
        holes.filter(|&(_, size)| size > 0).collect()
    }

    /// Offset and size of the best fit for a block.
    fn best_fit(&self, bytes: u64) -> Option<(u64, u64)> {
        if self.mode.kind == Kind::Counted {
            let free = self.limit - self.used();
            return (bytes <= free).then_some((0, bytes));
        }
        let size = bytes.max(1).checked_next_multiple_of(self.mode.granularity)?;
        let fitting = self.holes().into_iter().filter(|&(_, has)| has >= size);
        let (offset, has) = fitting.min_by_key(|&(offset, has)| (has, offset))?;
        Some(match self.mode.split {
            SplitRule::TensorFlow { max_internal_fragmentation: most }
                if has < 2 * size && has - size < most =>
            {
                (offset, has)
            }
            _ => (offset, size),
        })
    }

    fn compare(&self) {
        let space = &self.space;
        space.check();
        let used = self.used();
        assert_eq!((space.used(), space.peak()), (used, self.peak));
        let granularity = self.mode.granularity;
        let ceiling = if self.refused { self.source.given.min(self.limit) } else { self.limit };
        assert_eq!(space.capacity(), ceiling / granularity * granularity);
        assert!(used <= space.capacity() && space.capacity() <= self.limit);
        assert_eq!(space.free_bytes(), space.capacity() - used);
        let Some(arena) = space.arena() else {
            assert_eq!((space.largest_free(), space.fragmentation()), (space.free_bytes(), 0.0));
            return;
        };
        let reserved = self.reserved();
        assert_eq!(arena.reserved(), reserved);
        assert_eq!(arena.stats().regions, usize::from(reserved > 0));
        let holes = self.holes();
        let growable = space.capacity() - reserved;
        let top = holes.last().filter(|&&(offset, size)| offset + size == reserved);
        let top = if growable > 0 { top.map_or(0, |&(_, size)| size) + growable } else { 0 };
        let largest = holes.iter().map(|&(_, size)| size).max().unwrap_or(0).max(top);
        assert_eq!(space.largest_free(), largest);
        let free = space.free_bytes();
        let fragmentation = if free == 0 { 0.0 } else { (free - largest) as f64 / free as f64 };
        assert_eq!(space.fragmentation(), fragmentation);
        assert!(space.fragmentation() >= 0.0);

        let mut at = 0;
        let mut free_chunks = vec![];
        for chunk in arena.chunks() {
            assert_eq!(chunk.offset, at, "all bytes tile");
            at = chunk.end();
            match chunk.content {
                Content::Free => free_chunks.push((chunk.offset, chunk.size)),
                Content::Used { block, owner, requested } => {
                    let known = self.blocks.iter().find(|known| known.held.block == block).unwrap();
                    assert_eq!((known.owner, known.requested), (owner, requested));
                    assert_eq!((known.offset, known.held.bytes), (chunk.offset, chunk.size));
                    let content = &self.memory[self.granules(chunk.offset, requested)];
                    assert!(content.iter().all(|&wrote| wrote == owner), "{known:?} is clobbered");
                }
            }
        }
        assert_eq!((at, free_chunks), (reserved, holes));
        let snapshot = space.snapshot(|owner| owner.to_string());
        assert_eq!((snapshot.stats.reserved, snapshot.stats.used), (reserved, used));
        assert!(snapshot.chunks.iter().all(|chunk| chunk.offset + chunk.size <= self.limit));
    }

    /// Granules that the `bytes` bytes at `offset` touch.
    fn granules(&self, offset: u64, bytes: u64) -> std::ops::Range<usize> {
        let granularity = self.mode.granularity;
        let start = offset / granularity;
        start as usize..(start + bytes.div_ceil(granularity)) as usize
    }
}
