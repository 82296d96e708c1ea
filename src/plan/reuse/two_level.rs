//! GE's reuse in two levels: equal sizes share blocks, and smaller blocks lie inside larger ones.

use std::cmp::Reverse;

use super::super::{Lifetimes, Limits, PlanError, Planned, Planner};
use super::blocks::{Block, ROUND, Take, chain, in_a_row};
use super::{Knows, Life, lives, meet, rounded_to};

/// `two-level`, `two-level:1`, `two-level:3` and so on: shares blocks among equal sizes, and puts
/// blocks inside larger blocks.
///
/// On the first level, buffers of the same size use blocks one after another. On the second, blocks
/// lie inside larger blocks that are not in use at the same times. On further levels, blocks lie
/// inside blocks that lie in others.
///
/// Source: the article on memory reuse in CANN. On the first level buffers come in order of time,
/// at one instant in the order of their numbers. A buffer takes the free block that was released
/// last; on a tie the one that was made last. Blocks come next, the largest first, on a tie the one
/// made first. Each block goes into the first outermost block, in the same order, that has room for
/// it. Inside, it takes the lowest address at which it shares no bytes with blocks in use at the
/// same times: the begin of the outer block, or behind blocks that lie there already. A block
/// without room anywhere is itself an outermost one. Outermost blocks lie one behind another.
///
/// On more than two levels, the blocks inside an outermost block are tried before that block
/// itself. The innermost come first, on a tie the smallest, then the lowest. (The article says only
/// that the method continues like this.) Buffers of more than one colour are refused. All blocks
/// are aligned to a multiple of all alignments. A buffer with gaps is a block of its own, in which
/// others may lie during the gaps. On one level gaps are refused; bytes kept in gaps are always
/// refused.
///
/// The first level takes O(n log n) time for n buffers, without a limit. The second takes O(n^2)
/// for n blocks, of which there may be [`TwoLevel::LIMIT`], and further levels take more. Training
/// steps have far fewer blocks than buffers. The planner is weak where few sizes are equal. It is
/// also weak where a block is in use for a short time again and again, because a block is moved as
/// a whole. On steps of three networks two levels took 1.002 to 1.037 times the load, and the first
/// level alone 1.18 to 2.25 times; further levels made hardly any difference. On MiniMalloc's six
/// hard instances two levels took 1.26 to 1.81 times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TwoLevel {
    /// Number of levels: 1 (or 0) for equal sizes alone, 2 for blocks inside blocks, more for
    /// blocks inside those.
    pub levels: u32,
    /// Granule of blocks in bytes: 512 as in CANN, 1 to waste nothing. Not part of the name.
    pub round: u64,
}

impl Default for TwoLevel {
    fn default() -> Self {
        Self { levels: 2, round: ROUND }
    }
}

impl TwoLevel {
    /// Limit on the blocks, each of which holds buffers of one size, for more than one level.
    pub const LIMIT: usize = 30_000;

    /// Planner with this number of levels.
    #[must_use]
    pub fn of(levels: u32) -> Self {
        Self { levels, ..Self::default() }
    }
}

impl Planner for TwoLevel {
    fn name(&self) -> String {
        match self.levels {
            2 => "two-level".to_owned(),
            levels => format!("two-level:{levels}"),
        }
    }

    fn plan(&self, lifetimes: &Lifetimes, limits: &Limits) -> Result<Planned, PlanError> {
        let knows = if self.levels < 2 { Knows::NoGaps } else { Knows::Gaps };
        knows.check(self, lifetimes)?;
        let sizes = rounded_to(self.round, lifetimes)?;
        let has_gaps = |&i: &usize| sizes[i] > 0 && !lifetimes.gaps(i).is_empty();
        let (mut chained, mut alone) = (sizes.clone(), Vec::new());
        for i in (0..sizes.len()).filter(has_gaps) {
            alone.push(Block { size: std::mem::take(&mut chained[i]), buffers: vec![i] });
        }
        let mut blocks = chain(lifetimes, &chained, |size| size, Take::Newest);
        blocks.append(&mut alone);
        if self.levels < 2 {
            return Planned::new(lifetimes, in_a_row(&blocks, sizes.len()));
        }
        if blocks.len() > Self::LIMIT {
            let (planner, limit) = (self.name(), Self::LIMIT);
            return Err(PlanError::TooMany { planner, limit, buffers: blocks.len() });
        }
        blocks.sort_by_key(|block| Reverse(block.size));
        let of_buffers = lives(lifetimes);
        let lives: Vec<_> = blocks.iter().map(|block| life(block, &of_buffers)).collect();
        let mut outermost: Vec<Nest> = Vec::new();
        for (block, it) in blocks.iter().enumerate() {
            let mut is_inside = false;
            let late = || PlanError::TooLong { planner: self.name(), quicker: "pushdown" };
            for (tried, nest) in outermost.iter_mut().enumerate() {
                if tried % LOOKS == 0 && limits.over() {
                    return Err(late());
                }
                let found = nest.put(block, it.size, self.levels, &lives, limits);
                is_inside = found.ok_or_else(late)?;
                if is_inside {
                    break;
                }
            }
            if !is_inside {
                outermost.push(Nest::new(block, it.size));
            }
        }
        let mut offsets = vec![0; sizes.len()];
        let mut top = 0;
        for nest in outermost {
            for place in &nest.places {
                for &i in &blocks[place.block].buffers {
                    offsets[i] = top + place.begin;
                }
            }
            top += nest.places[0].end;
        }
        Planned::new(lifetimes, offsets)
    }
}

/// Times of use of a block.
fn life(block: &Block, lives: &[Life]) -> Life {
    let mut life = Life::new();
    for &(lower, upper) in block.buffers.iter().flat_map(|&i| &lives[i]) {
        match life.last_mut() {
            Some((_, end)) if *end == lower => *end = upper,
            _ => life.push((lower, upper)),
        }
    }
    life
}

/// Place of a block inside an outermost one, in addresses from its begin.
#[derive(Debug)]
struct Place {
    block: usize,
    begin: u64,
    end: u64,
    /// Number of blocks around the block.
    depth: u32,
}

/// An outermost block and all blocks in it.
#[derive(Debug)]
struct Nest {
    /// Places in the order in which the blocks came; the outermost block is the first.
    places: Vec<Place>,
}

impl Nest {
    fn new(block: usize, size: u64) -> Self {
        Self { places: vec![Place { block, begin: 0, end: size, depth: 0 }] }
    }

    /// Puts a block into the first block that has room for it. Returns whether one has; `None` if
    /// the time is up.
    fn put(
        &mut self,
        block: usize,
        size: u64,
        levels: u32,
        lives: &[Life],
        limits: &Limits,
    ) -> Option<bool> {
        let life = &lives[block];
        // All blocks here lie in the outermost one. If that is in use at the same times, no block
        // has room.
        if meet(life, &lives[self.places[0].block]) {
            return Some(false);
        }
        if limits.over() {
            return None;
        }
        let mut busy: Vec<&Place> =
            self.places.iter().filter(|place| meet(life, &lives[place.block])).collect();
        busy.sort_unstable_by_key(|place| place.begin);
        let mut parents: Vec<&Place> =
            self.places.iter().filter(|parent| parent.depth + 1 < levels).collect();
        parents.sort_by_key(|it| (Reverse(it.depth), it.end - it.begin, it.begin));
        let mut found = None;
        for (tried, parent) in parents.into_iter().enumerate() {
            // Each try looks at all busy blocks.
            if tried % LOOKS == LOOKS - 1 && limits.over() {
                return None;
            }
            if let Some(begin) = lowest_gap(parent, size, &busy) {
                found = Some(Place { block, begin, end: begin + size, depth: parent.depth + 1 });
                break;
            }
        }
        let is_inside = found.is_some();
        self.places.extend(found);
        Some(is_inside)
    }
}

/// Number of blocks tried between two looks at the clock.
const LOOKS: usize = 64;

/// Lowest address inside a block at which `size` bytes overlap no busy block. Busy blocks are
/// sorted by address.
fn lowest_gap(parent: &Place, size: u64, busy: &[&Place]) -> Option<u64> {
    let mut begin = parent.begin;
    for it in busy.iter().filter(|it| it.end > parent.begin) {
        if it.begin.saturating_sub(begin) >= size {
            break;
        }
        begin = begin.max(it.end);
    }
    (parent.end.saturating_sub(begin) >= size).then_some(begin)
}
