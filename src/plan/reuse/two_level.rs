//! GE's reuse in two levels: equal sizes share blocks, and smaller blocks lie inside larger ones.

use std::cmp::Reverse;

use super::super::{Lifetimes, Limits, PlanError, Planned, Planner};
use super::blocks::{Block, ROUND, Take, chain, in_a_row};
use super::{Knows, Life, lives, meet, rounded_to};

/// `two-level`, `two-level:1`, `two-level:3` and so on: on the first level, buffers of the same size use blocks one after
/// another. On the second, blocks lie inside larger ones that are not in use at the same times; on further levels, inside
/// those that lie in others.
///
/// Source: the article on memory reuse in CANN. On the first level buffers come in order of time, those of one instant in
/// the order of their numbers, and take the block that was released last, of several the one that was made last. Then the
/// blocks come, the largest first, of equal ones the first made. Each goes into the first of the outermost blocks, in the
/// same order, that has room for it: at its lowest address, or behind (at higher addresses than) some that lie there
/// already, where it shares no bytes with any that are in use at the same times. If none has, it is an outermost one
/// itself. The outermost ones lie one behind another. On more than two levels, the blocks inside an outermost one are
/// tried before that itself, the innermost first, of equally deep ones the smallest and then the lowest. (The article says
/// that it goes on like this, and no more.) Buffers of more than one colour are refused; all blocks are aligned to a
/// multiple of all alignments. A buffer with gaps is a block of its own, in which others may lie meanwhile; on one level gaps
/// are refused, and bytes kept in gaps on all.
///
/// The first level takes n log n time for n buffers and has no limit; the second n^2 for n blocks, of which there may be
/// [`TwoLevel::LIMIT`], and further levels some more. In steps of training there are far fewer blocks than buffers. Weak
/// where few sizes are equal, and where a block is in use for a short time again and again: it is moved as one. On steps of
/// three networks two levels took 1.002 to 1.037 times the load, the first alone 1.18 to 2.25 times; more than two made no
/// difference to speak of. On MiniMalloc's six hard instances two took 1.26 to 1.81 times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TwoLevel {
    /// How many: 1 (or 0) for equal sizes alone, 2 for blocks inside blocks, more for blocks inside those.
    pub levels: u32,
    /// Blocks are multiples of this, in bytes: 512 as in CANN, 1 to waste nothing. It is no part of the name.
    pub round: u64,
}

impl Default for TwoLevel {
    fn default() -> Self {
        Self { levels: 2, round: ROUND }
    }
}

impl TwoLevel {
    /// With more blocks, each of which holds buffers of one size, levels beyond the first are refused.
    pub const LIMIT: usize = 30_000;

    /// That many.
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

/// When a block is in use.
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

/// Where a block lies in an outermost one.
#[derive(Debug)]
struct Place {
    block: usize,
    begin: u64,
    end: u64,
    /// In how many others it lies.
    depth: u32,
}

/// An outermost block and all that lie in it.
#[derive(Debug)]
struct Nest {
    /// In the order in which they came; the outermost one is the first.
    places: Vec<Place>,
}

impl Nest {
    fn new(block: usize, size: u64) -> Self {
        Self { places: vec![Place { block, begin: 0, end: size, depth: 0 }] }
    }

    /// Puts a block into the first that has room for it. Returns whether one has; `None` where it is time to answer.
    fn put(
        &mut self,
        block: usize,
        size: u64,
        levels: u32,
        lives: &[Life],
        limits: &Limits,
    ) -> Option<bool> {
        let life = &lives[block];
        // Since whatever lies here lies in the first one, nothing has room if that is in use at the same times.
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
            // Each looks through all that are busy.
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

/// Blocks that are looked into before it is asked again whether it is time to answer.
const LOOKS: usize = 64;

/// The lowest address inside a block from which on `size` bytes are not in those busy ones, which are given by address.
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
