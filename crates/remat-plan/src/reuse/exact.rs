//! Exact search for a placement with the fewest bytes, and for a proof that no placement has fewer.

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
use super::hints::by_hints;
use super::{Gaps, Knows, Pushdown};
use crate::{Lifetimes, Limits, PlanError, Planned, Planner};
use remat_rng::SplitMix64;

/// `exact`, or `exact:NODES`: searches for the smallest placement among all placements in which no
/// buffer can be moved down. Promising placements are tried first.
///
/// The method is MiniMalloc's search (Moffitt, ASPLOS 2023). A search decides whether the buffers
/// fit into a capacity, which is a number of bytes. Buffers are placed from low to high addresses,
/// each on top of the placed buffers that are alive at the same time. At every instant, the lowest
/// address that an unplaced buffer may get, plus the bytes of the unplaced buffers alive at that
/// instant, must not exceed the capacity. No buffer is placed so high that an unplaced buffer would
/// fit below it. Groups of buffers whose lives do not overlap are placed separately. At each
/// capacity, the buffers are tried in three orders in turn. If no order gives an answer within a
/// limit on nodes, the limit is doubled for the next round.
///
/// Three rules extend MiniMalloc's search. A buffer is passed over if it could have been placed
/// lower than the last placed buffer, but was not. Another buffer must then be placed below the
/// passed buffer, which raises the lowest possible address of the passed buffer. Buffers with equal
/// lives are tried in only one order. The search remembers states that failed, and does not try
/// them again. The search tries the load as the first capacity, and then higher capacities. Between
/// the searches at two capacities, short searches in random variations of the orders lower the size
/// of the best placement. The variations are the same in each run. The answer is proven if its
/// bytes equal the load, or if all smaller capacities have failed.
///
/// The search begins with the best of some quick placements, including the placements by hints.
/// Sizes are not rounded up for alignment, and other buffers may use the gaps of a buffer. The
/// planner does not support colours or bytes kept in gaps, and places at most [`Exact::LIMIT`]
/// buffers linked in time. The time for a proof is exponential at worst: some instances of 200
/// buffers take milliseconds, others would never end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exact {
    /// Limit on the nodes of the search, each of which places one buffer. The limit is used only if
    /// there is no time limit.
    pub nodes: u64,
}

impl Default for Exact {
    fn default() -> Self {
        Self { nodes: 2_000_000 }
    }
}

impl Exact {
    /// Limit on the number of buffers linked in time. Buffers are linked if at every instant, from
    /// the first begin to the last end of their lives, some buffer is alive.
    pub const LIMIT: usize = 2_000;
    /// Limit on the number of pieces into which gaps cut buffers that are linked in time.
    pub const PIECES: usize = 10 * Self::LIMIT;

    /// `name`, followed by a colon and the limit on nodes unless the limit is the default.
    pub(super) fn called(&self, name: &str) -> String {
        if *self == Self::default() { name.to_owned() } else { format!("{name}:{}", self.nodes) }
    }

    /// Searches for a smaller placement than `best`, which is a placement of the same lifetimes.
    /// Returns the placement of `best` if no smaller placement is found. The returned placement is
    /// proven if the search has excluded all smaller placements.
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
        // The planner fails if a part, a group of buffers linked in time, has more buffers or
        // pieces than the limits allow.
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
        // The search for a lower placement of each part begins at the height that the part has in
        // `best`.
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
        // The highest part determines the size of the placement, so the search lowers this part
        // next.
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
        // Parts for which a lower placement was found get their new addresses. All other parts keep
        // their addresses from `best`.
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
