//! Exact search for the least memory, with a proof.

mod capacity;
mod memory;
mod preorder;
mod restarts;
mod search;
mod sections;
mod state;
#[cfg(test)]
mod tests;

use self::capacity::Descent;
use self::sections::{Part, Sections};
use self::state::{Rules, State};
use super::super::{Lifetimes, Limits, PlanError, Planned, Planner};
use super::hints::by_hints;
use super::{Gaps, Knows, Pushdown};
use crate::rng::SplitMix64;

/// `exact`, or `exact:NODES`: finds the least placement by trying all placements that cannot be
/// pushed down, in an order that finds good ones soon.
///
/// The search is MiniMalloc's (Moffitt, ASPLOS 2023). Buffers are placed upwards, each on top of
/// the placed buffers that it meets. For every set of buffers alive at once, the lowest free
/// address plus the bytes to be placed must not exceed the capacity. No buffer is placed so high
/// that another one would fit below it. Buffers that are cut off in time are placed apart. At each
/// capacity, the buffers are tried in three orders in turn. If none gives an answer within a limit
/// on nodes, the limit is doubled for the next round.
///
/// Three rules are added. A buffer that was passed over must be lifted by another one, which raises
/// the bound. Buffers with equal lives are tried in one order. States that failed are remembered.
/// Capacities are tried from the load up. Between them, short searches in randomly varied orders
/// (always the same) lower the best height. The answer is proven if it takes no more than the load,
/// or if all smaller capacities have failed.
///
/// The search begins with the placements by hints, if there are any. Alignments and gaps are kept
/// exactly. Colours are refused, and so are bytes kept in gaps, and more than [`Exact::LIMIT`]
/// buffers linked in time. The time for a proof is exponential at worst: instances of 200 buffers
/// take from milliseconds to forever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exact {
    /// Limit on placements of a buffer that are tried if there is no time limit.
    pub nodes: u64,
}

impl Default for Exact {
    fn default() -> Self {
        Self { nodes: 2_000_000 }
    }
}

impl Exact {
    /// Limit on the buffers linked in time: no instant between them is without a live buffer.
    pub const LIMIT: usize = 2_000;
    /// Limit on the pieces, into which gaps cut such buffers.
    pub const PIECES: usize = 10 * Self::LIMIT;

    /// Name with the number of nodes, unless the number is the default.
    pub(super) fn called(&self, name: &str) -> String {
        if *self == Self::default() { name.to_owned() } else { format!("{name}:{}", self.nodes) }
    }

    /// Improves `best`, a placement of the same lifetimes. The result is no worse.
    pub(super) fn improve(
        &self,
        lifetimes: &Lifetimes,
        best: Planned,
        limits: &Limits,
    ) -> Result<Planned, PlanError> {
        self.search(lifetimes, best, limits, Rules::ALL)
    }

    fn search(
        &self,
        lifetimes: &Lifetimes,
        best: Planned,
        limits: &Limits,
        rules: Rules,
    ) -> Result<Planned, PlanError> {
        Knows::Gaps.check(self, lifetimes)?;
        let Sections { unit, parts } = Sections::new(lifetimes);
        // Instances beyond the limits are refused.
        let largest = parts.iter().map(|part| part.items.len()).max().unwrap_or(0);
        if largest > Self::LIMIT {
            let (planner, limit) = (self.name(), Self::LIMIT);
            return Err(PlanError::TooMany { planner, limit, buffers: largest });
        }
        let pieces = |part: &Part| part.items.iter().map(|item| item.sections.len()).sum();
        let pieces: usize = parts.iter().map(pieces).max().unwrap_or(0);
        if pieces > Self::PIECES {
            let (planner, limit) = (self.name(), Self::PIECES);
            return Err(PlanError::TooManyPieces { planner, limit, pieces });
        }
        let units = lifetimes.buffers().iter().map(|buffer| buffer.size + buffer.align - 1);
        if units.sum::<u64>() / unit >= State::MOST {
            let what = "2^53 bytes or more";
            return Err(PlanError::Unknown { planner: self.name(), what });
        }
        if best.proven {
            return Ok(best);
        }
        // Each part begins a descent from its height in `best`.
        let mut offsets = best.placement.offsets().to_vec();
        let mut descents: Vec<Descent> = parts
            .iter()
            .map(|part| {
                let top = |i: usize| offsets[i] + lifetimes.buffers()[i].size;
                let high = part.items.iter().map(|item| top(item.buffer)).max().unwrap_or(0);
                Descent::new(part, high.div_ceil(unit), rules)
            })
            .collect();
        let mut nodes = if limits.until.is_some() { u64::MAX } else { self.nodes };
        // Only the highest part matters, so this one is lowered.
        let mut last = 0;
        let proven = loop {
            let floor = descents.iter().map(|descent| descent.floor).max().unwrap_or(0);
            let highest = (0..parts.len()).max_by_key(|&part| descents[part].height);
            let Some(part) = highest.filter(|&part| descents[part].height > floor) else {
                break true;
            };
            if nodes == 0 || limits.over() {
                break false;
            }
            if part != last {
                descents[last].pause();
                last = part;
            }
            descents[part].step(&parts[part], floor, &mut nodes, limits);
        };
        // Parts that were lowered get their new addresses; the others keep those of `best`.
        for (part, descent) in parts.iter().zip(&descents) {
            for (item, offset) in part.items.iter().zip(&descent.offsets) {
                offsets[item.buffer] = offset * unit;
            }
        }
        Ok(Planned { proven, ..Planned::new(lifetimes, offsets)? })
    }
}

impl Planner for Exact {
    fn name(&self) -> String {
        self.called("exact")
    }

    fn plan(&self, lifetimes: &Lifetimes, limits: &Limits) -> Result<Planned, PlanError> {
        Knows::Gaps.check(self, lifetimes)?;
        let greedy = || Gaps::default().plan(lifetimes, &Limits::none());
        let begins =
            [by_hints(lifetimes, limits), Some(Pushdown.plan(lifetimes, limits)), Some(greedy())];
        let begins = begins.into_iter().flatten().flatten();
        match begins.min_by_key(|planned| planned.placement.bytes()) {
            Some(best) => self.improve(lifetimes, best, limits),
            None => greedy(),
        }
    }
}

/// Pseudo-random number from a seed.
const fn scatter(seed: u64) -> u64 {
    SplitMix64::new(seed).next()
}
