//! A search that finds the least memory, and knows it.

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

/// `exact`, or `exact:NODES`: the least placement, found by trying all that cannot be pushed down, in an order that finds good ones soon.
///
/// The search is that of MiniMalloc (Moffitt, ASPLOS 2023): buffers are placed upwards, each on top of those placed that
/// it meets; of every set of buffers alive at once the lowest free address and the bytes that are left must stay below
/// the capacity; nothing is put above where another would fit; what is cut off in time is placed apart; three orders
/// take turns with ever more steps. Beside that, who was passed over must be lifted by somebody, which raises the bound;
/// equal lives are tried in one order; and what failed is remembered. Capacities are tried from the load up, and between
/// them short searches in orders that are varied at random (always the same) lower the best; the answer is proven if it
/// takes no more than the load or all else has failed.
///
/// It begins with what hints say, if there are any. Alignments and gaps are kept exactly; colours are refused, and so are
/// bytes that are kept in gaps, and more than [`Exact::LIMIT`] buffers linked in time. The
/// time for a proof is exponential at worst: instances of 200 buffers take from milliseconds to ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exact {
    /// How many placements of a buffer are tried at most where there is no time limit.
    pub nodes: u64,
}

impl Default for Exact {
    fn default() -> Self {
        Self { nodes: 2_000_000 }
    }
}

impl Exact {
    /// More buffers are refused, if at no time between them nothing is alive.
    pub const LIMIT: usize = 2_000;
    /// More pieces, into which gaps cut the buffers, are refused likewise.
    pub const PIECES: usize = 10 * Self::LIMIT;

    /// A name, and how many nodes, if that is not the usual number.
    pub(super) fn called(&self, name: &str) -> String {
        if *self == Self::default() { name.to_owned() } else { format!("{name}:{}", self.nodes) }
    }

    /// The best placement that is no worse than `best`, which must be one of the same lifetimes.
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
        // Only what is highest counts.
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

/// A number that looks random.
const fn scatter(seed: u64) -> u64 {
    SplitMix64::new(seed).next()
}
