//! GE's reuse in two levels: buffers of equal size share blocks, and smaller blocks lie inside
//! larger blocks.

use std::cmp::Reverse;

use super::blocks::{Block, ROUND, Take, chain, in_a_row};
use super::{Knows, Life, lives, meet, rounded_to};
use crate::{Lifetimes, Limits, PlanError, Planned, Planner};

/// `two-level`, `two-level:1`, `two-level:3` and so on: lets buffers of equal size share blocks,
/// and puts blocks inside larger blocks.
///
/// On the first level, buffers of the same size use blocks one after another. On the second level,
/// blocks lie inside larger blocks that are not in use at the same times. On a third level, blocks
/// lie inside blocks of the second level, and so on.
///
/// Source: the article on memory reuse in CANN. On the first level, buffers are visited in order of
/// time, and buffers that begin at the same instant in the order of their numbers. A buffer takes
/// the free block that was released last; on a tie, the block that was made last.
///
/// The second level visits blocks from the largest to the smallest; on a tie, the block that was
/// made first comes first. A block is placed into the first outermost block in which it
/// fits. The block gets the lowest address at which it shares no bytes with blocks in use at the
/// same times. The lowest address is the begin of the outermost block, or the end of another block
/// inside. A block that fits into no outermost block becomes an outermost block. Outermost blocks
/// lie one after another.
///
/// On more than two levels, the blocks inside an outermost block are tried before the outermost
/// block. The innermost blocks come first; on a tie the smallest block, then the block at the
/// lowest address. (The article does not define this order. The article only says that further
/// levels work in the same way.) All blocks are aligned to a multiple of all alignments. A buffer
/// with gaps is a block of its own, in which other blocks may lie during the gaps. The planner does
/// not support colours, bytes kept in gaps, or, with one level, gaps.
///
/// The first level takes time O(n log n) for n buffers, without a limit on n. The second level
/// takes time O(n^2) for n blocks, where n is at most [`TwoLevel::LIMIT`]. Further levels take more
/// time. Training steps have far fewer blocks than buffers. The planner is weak if few sizes are
/// equal. The planner is also weak if a block is in use many times for a short while, because a
/// block has one address for all these times.
///
/// No placement has fewer bytes than the [load](crate::Lifetimes::load). On steps of three networks,
/// placements by two levels had 1.002 to 1.037 times as many bytes as the load, and placements by
/// the first level alone 1.18 to 2.25 times as many. Further levels made hardly any difference. On
/// MiniMalloc's six hard instances, placements by two levels had 1.26 to 1.81 times as many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TwoLevel {
    /// Number of levels. With 1 (or 0), only buffers of equal size share blocks. With 2, blocks may
    /// also lie inside outermost blocks. With 3, blocks may also lie inside these inner blocks, and
    /// so on.
    pub levels: u32,
    /// Sizes of blocks are rounded up to a multiple of this number of bytes: 512 as in CANN, or 1
    /// to waste no bytes. The name of the planner does not contain this number.
    pub round: u64,
}

impl Default for TwoLevel {
    fn default() -> Self {
        Self { levels: 2, round: ROUND }
    }
}

impl TwoLevel {
    /// Limit on the number of blocks if there is more than one level. A block holds buffers of one
    /// size.
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

/// Times at which the buffers of a block take memory.
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

/// Position of a block in an outermost block. Addresses are counted from the begin of the outermost
/// block.
#[derive(Debug)]
struct Place {
    block: usize,
    begin: u64,
    end: u64,
    /// Number of blocks that the block lies in.
    depth: u32,
}

/// An outermost block and all blocks in it.
#[derive(Debug)]
struct Nest {
    /// Positions in the order in which the blocks were added. The first position is that of the
    /// outermost block.
    places: Vec<Place>,
}

impl Nest {
    fn new(block: usize, size: u64) -> Self {
        Self { places: vec![Place { block, begin: 0, end: size, depth: 0 }] }
    }

    /// Puts a block into the first block of the nest in which it fits. Returns whether the new
    /// block fits into some block of the nest; `None` if the time is up.
    fn put(
        &mut self,
        block: usize,
        size: u64,
        levels: u32,
        lives: &[Life],
        limits: &Limits,
    ) -> Option<bool> {
        let life = &lives[block];
        // All other blocks of the nest lie in the outermost block. If the outermost block is in use
        // at the same times, the block fits nowhere in the nest.
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
            // Each search for a gap scans all busy blocks, so the time limit is also checked here.
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

/// Number of blocks that are tried between two checks of the time limit.
const LOOKS: usize = 64;

/// Lowest address inside `parent` at which `size` bytes overlap no busy block. `busy` is sorted by
/// address.
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
