//! The arena against a sorted list of ranges that does everything by brute force.
//!
//! Uses the public interface alone, so a fuzz target can take this file in (`#[path]`, with the
//! names below in scope), cut its input into words, and play [`Operation::from_word`] of each.

use super::{Arena, Block, Content, FreeNeighbors, Move};

/// One call on an arena.
#[derive(Clone, Copy, Debug)]
pub enum Operation {
    Alloc { bytes: u64 },
    AllocHigh { bytes: u64 },
    AllocAt { granule: u64, bytes: u64 },
    Free { nth: u64 },
    Compact { bytes: u64, pinned: u64 },
    ResetPeak,
}

impl Operation {
    /// Every word is an operation. Sizes are up to `2^scale` granules, the small ones as likely as
    /// the large ones; a few are far too large for any arena.
    pub fn from_word(word: u64, granularity: u64, scale: u64) -> Self {
        let (kind, power, rest) = (word % 32, word / 32 % 64, word >> 11);
        let bytes = match power {
            0 => 0,
            1 => u64::MAX - rest % 1000,
            _ => rest % (granularity << (power % (scale + 1))) + 1,
        };
        match kind {
            0..10 => Self::Alloc { bytes },
            10..13 => Self::AllocHigh { bytes },
            13..16 => Self::AllocAt { granule: rest >> 20 & 0xff, bytes },
            16..29 => Self::Free { nth: rest },
            // 0: everything may move.
            29..31 => Self::Compact { bytes, pinned: rest >> 30 & 3 },
            _ => Self::ResetPeak,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Range {
    offset: u64,
    size: u64,
    requested: u64,
    owner: u64,
    block: Block,
}

/// An arena and what it should be.
#[derive(Debug)]
pub struct Model {
    arena: Arena,
    /// By offset.
    blocks: Vec<Range>,
    /// For each granule, the owner who last wrote to it.
    memory: Vec<u64>,
    owners: u64,
    peak: u64,
    high_water: u64,
}

impl Model {
    pub fn new(capacity: u64, granularity: u64) -> Self {
        let arena = Arena::with_granularity(capacity, granularity);
        let memory = vec![0; (capacity / granularity) as usize];
        Self { arena, blocks: vec![], memory, owners: 0, peak: 0, high_water: 0 }
    }

    /// Does the same to both and compares them.
    pub fn apply(&mut self, operation: Operation) {
        self.owners += 1;
        match operation {
            Operation::Alloc { bytes } => {
                let expected = self.best_fit(bytes).map(|(offset, _)| offset);
                let got = self.arena.alloc(bytes, self.owners);
                self.enter(got, expected, bytes);
            }
            Operation::AllocHigh { bytes } => {
                let expected = self.best_fit(bytes).map(|hole| hole.0 + hole.1 - self.round(bytes));
                let got = self.arena.alloc_high(bytes, self.owners);
                self.enter(got, expected, bytes);
            }
            Operation::AllocAt { granule, bytes } => {
                let at = granule * self.arena.granularity();
                let (start, end) = (u128::from(at), u128::from(at) + self.round_wide(bytes));
                let inside = |hole: &(u64, u64)| {
                    u128::from(hole.0) <= start && end <= u128::from(hole.0 + hole.1)
                };
                let expected = self.holes().iter().any(inside).then_some(at);
                let got = self.arena.alloc_at(at, bytes, self.owners);
                self.enter(got, expected, bytes);
            }
            Operation::Free { nth } => {
                if !self.blocks.is_empty() {
                    let range = self.blocks.remove((nth % self.blocks.len() as u64) as usize);
                    self.arena.free(range.block);
                }
            }
            Operation::Compact { bytes, pinned } => self.compact(bytes, pinned),
            Operation::ResetPeak => {
                self.arena.reset_peak();
                self.peak = self.used();
            }
        }
        self.compare();
    }

    fn enter(&mut self, got: Option<Block>, expected: Option<u64>, requested: u64) {
        assert_eq!(got.map(|block| self.arena.offset(block)), expected);
        let Some(block) = got else { return };
        let (offset, size, owner) = (self.arena.offset(block), self.round(requested), self.owners);
        let at = self.blocks.partition_point(|range| range.offset < offset);
        self.blocks.insert(at, Range { offset, size, requested, owner, block });
        self.peak = self.peak.max(self.used());
        self.high_water = self.high_water.max(offset + size);
        let written = self.granules(offset, requested);
        self.memory[written].fill(owner);
    }

    fn compact(&mut self, bytes: u64, pinned: u64) {
        let movable = |owner: u64| pinned == 0 || owner % 4 != pinned;
        let plan = self.arena.plan_compaction(bytes, movable);
        let free = self.arena.free_bytes();
        let Some(moves) = plan else {
            assert!(self.slide_cost(bytes, movable).is_none(), "sliding would have done");
            assert!(pinned != 0 || u128::from(free) < self.round_wide(bytes));
            return;
        };
        let cost = moves.iter().map(|m| m.bytes).sum::<u64>();
        let slide = self.slide_cost(bytes, movable);
        assert!(slide.is_none_or(|slide| cost <= slide), "{cost} is above {slide:?}");
        assert!(moves.is_empty() == (self.best_fit(bytes).is_some()));
        for m in &moves {
            self.carry_out(*m, movable);
        }
        self.arena.apply_moves(&moves);
        assert!(self.best_fit(bytes).is_some(), "no hole for {bytes} after {moves:?}");
        for range in &self.blocks {
            let content = &self.memory[self.granules(range.offset, range.requested)];
            assert!(content.iter().all(|&owner| owner == range.owner), "{range:?} is clobbered");
        }
    }

    /// One `memmove`.
    fn carry_out(&mut self, m: Move, movable: impl Fn(u64) -> bool) {
        let at = self.blocks.iter().position(|range| range.block == m.block).unwrap();
        let mut range = self.blocks.remove(at);
        assert_eq!((m.from, m.bytes), (range.offset, range.requested));
        assert!(movable(range.owner), "{range:?} was not to be moved");
        let fits = |hole: &(u64, u64)| hole.0 <= m.to && m.to + range.size <= hole.0 + hole.1;
        assert!(self.holes().iter().any(fits), "{m:?} goes to where something is");
        let (from, to) = (self.granules(m.from, m.bytes), self.granules(m.to, m.bytes));
        self.memory.copy_within(from, to.start);
        range.offset = m.to;
        let at = self.blocks.partition_point(|other| other.offset < m.to);
        self.blocks.insert(at, range);
        self.high_water = self.high_water.max(m.to + range.size);
    }

    /// Fewest bytes moved by packing any run of blocks, tried one by one.
    fn slide_cost(&self, bytes: u64, movable: impl Fn(u64) -> bool) -> Option<u64> {
        let size = self.round_wide(bytes);
        if self.best_fit(bytes).is_some() {
            return Some(0);
        }
        let start_of = |i: usize| i.checked_sub(1).map_or(0, |i| self.end_of(i));
        let runs =
            (0..self.blocks.len()).flat_map(|i| (i + 1..=self.blocks.len()).map(move |j| (i, j)));
        let cost = |(i, j): (usize, usize)| {
            let run = &self.blocks[i..j];
            let next = self.blocks.get(j).map_or(self.arena.capacity(), |range| range.offset);
            let free = next - start_of(i) - run.iter().map(|range| range.size).sum::<u64>();
            let possible = u128::from(free) >= size && run.iter().all(|r| movable(r.owner));
            possible.then(|| run.iter().map(|range| range.requested).sum())
        };
        runs.filter_map(cost).min()
    }

    fn compare(&self) {
        let arena = &self.arena;
        let holes = self.holes();
        let size_at = |offset| holes.iter().find(|hole| hole.0 == offset).map_or(0, |hole| hole.1);
        let largest = holes.iter().map(|hole| hole.1).max().unwrap_or(0);
        assert_eq!(arena.largest_free(), largest);
        assert_eq!((arena.blocks(), arena.holes()), (self.blocks.len(), holes.len()));
        assert_eq!(
            (arena.used(), arena.peak(), arena.high_water()),
            (self.used(), self.peak, self.high_water)
        );
        for range in &self.blocks {
            let &Range { offset, size, requested, owner, block } = range;
            assert_eq!(
                (
                    arena.offset(block),
                    arena.size(block),
                    arena.requested(block),
                    arena.owner(block)
                ),
                (offset, size, requested, owner)
            );
            let left = holes.iter().find(|hole| hole.0 + hole.1 == offset).map_or(0, |hole| hole.1);
            let right = size_at(offset + size);
            assert_eq!(arena.free_neighbors(block), FreeNeighbors { left, right });
        }
        let chunks: Vec<_> = arena.chunks().collect();
        let mut listed: Vec<_> = holes.iter().map(|&(offset, size)| (offset, size, None)).collect();
        listed.extend(self.blocks.iter().map(|r| (r.offset, r.size, Some(r.block))));
        listed.sort_unstable_by_key(|chunk| chunk.0);
        let content = |content| match content {
            Content::Free => None,
            Content::Used { block, .. } => Some(block),
        };
        assert!(chunks.iter().map(|c| (c.offset, c.size, content(c.content))).eq(listed));
        assert!(arena.chunks().rev().eq(chunks.iter().rev().copied()));
        if let Some(range) = self.blocks.get(self.blocks.len() / 2) {
            let at = chunks.iter().position(|chunk| chunk.offset == range.offset).unwrap();
            let (before, after) = (&chunks[..at], &chunks[at + 1..]);
            assert!(arena.chunks_after(range.block).eq(after.iter().copied()));
            assert!(arena.chunks_before(range.block).eq(before.iter().rev().copied()));
        }
        arena.check();
    }

    /// Offset and size of every hole, by offset.
    fn holes(&self) -> Vec<(u64, u64)> {
        let starts =
            (0..=self.blocks.len()).map(|i| i.checked_sub(1).map_or(0, |i| self.end_of(i)));
        let ends = self.blocks.iter().map(|range| range.offset).chain([self.arena.capacity()]);
        starts
            .zip(ends)
            .map(|(start, end)| (start, end - start))
            .filter(|hole| hole.1 > 0)
            .collect()
    }

    fn best_fit(&self, bytes: u64) -> Option<(u64, u64)> {
        let size = self.round_wide(bytes);
        let holes = self.holes().into_iter().filter(|hole| u128::from(hole.1) >= size);
        holes.min_by_key(|&(offset, size)| (size, offset))
    }

    fn end_of(&self, i: usize) -> u64 {
        self.blocks[i].offset + self.blocks[i].size
    }

    fn used(&self) -> u64 {
        self.blocks.iter().map(|range| range.size).sum()
    }

    fn round_wide(&self, bytes: u64) -> u128 {
        u128::from(bytes.max(1)).next_multiple_of(u128::from(self.arena.granularity()))
    }

    fn round(&self, bytes: u64) -> u64 {
        self.round_wide(bytes) as u64
    }

    /// The granules that `bytes` from `offset` on touch.
    fn granules(&self, offset: u64, bytes: u64) -> std::ops::Range<usize> {
        let granularity = self.arena.granularity();
        let start = offset / granularity;
        start as usize..(start + bytes.div_ceil(granularity)) as usize
    }
}
