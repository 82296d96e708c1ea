//! Exact search for the order with the least load.

use super::super::capture::Usage;
use super::super::{Capture, Limits};
use super::{
    BreadthFirst, DepthFirst, Issue, LeastPeak, Order, OrderError, Reach, ReverseDepthFirst,
    Scheduler, Sink, floor,
};
use rustc_hash::FxHashMap;

/// `exact`: an order within reach with the least load.
///
/// The method is dynamic programming over sets of ops that have run (Ahn et al., Serenity, MLSys
/// 2020). The bytes in use after a set depend on the set alone, so of all ways to a set one with
/// the least peak is enough. Three rules keep the sets few:
///
/// - If the best order of all other schedulers takes no more than the [`floor`], that order is the
///   answer.
/// - A way is dropped if its peak is no less than that order's.
/// - An op runs at once if it stays below the peak so far and leaves no more in use than before: no
///   later op takes more for it.
///
/// The number of sets can grow exponentially with the number of ops ready at once. The search
/// refuses above `sets` sets, or when the sets that it went on from have more than `128 * sets` ops
/// in all, which bounds the time. Each set takes some 100 bytes and an eighth of a byte for each
/// op. The search is weak on wide graphs: there it answers only if one of its rules does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exact {
    /// Limit on the sets looked at.
    pub sets: usize,
}

impl Default for Exact {
    fn default() -> Self {
        Self { sets: 1 << 16 }
    }
}

/// A set of finished ops, and the best way to reach the set.
struct Set {
    ran: Box<[u64]>,
    /// Peak of the bytes in use on the way.
    peak: u64,
    way: usize,
}

/// Last op of a way, and the index of the way before.
struct Way {
    op: usize,
    before: usize,
}

const START: usize = usize::MAX;

/// Average number of ops that may be run again for each set, to find the bytes in use after it.
const RUNS: usize = 128;

impl Scheduler for Exact {
    fn name(&self) -> &'static str {
        "exact"
    }

    fn order<'a>(
        &self,
        capture: &'a Capture,
        reach: Reach,
        limits: &Limits,
    ) -> Result<Order<'a>, OrderError> {
        // The best order of the other schedulers is an upper bound, and the answer if it reaches
        // the floor.
        let mut known = capture.program();
        let others: [&dyn Scheduler; 5] =
            [&Sink, &LeastPeak, &DepthFirst, &ReverseDepthFirst, &BreadthFirst];
        for other in others {
            let order = other.order(capture, reach, limits).map_err(|error| match error {
                OrderError::TooLong { .. } => OrderError::TooLong { scheduler: self.name() },
                error => error,
            })?;
            known = if order.load() < known.load() { order } else { known };
        }
        let bound = known.load();
        if bound == floor(capture) {
            return Ok(known);
        }
        let count = capture.ops().len();
        let mut ways: Vec<Way> = Vec::new();
        let too_many = OrderError::TooMany { scheduler: self.name(), limit: self.sets };
        let mut runs = self.sets.saturating_mul(RUNS);
        let mut sets = vec![Set { ran: vec![0; count.div_ceil(64)].into(), peak: 0, way: START }];
        // Each round extends all sets of one size by an op.
        for _ in 0..count {
            let mut next: Vec<Set> = Vec::new();
            let mut index: FxHashMap<Box<[u64]>, usize> = FxHashMap::default();
            for set in &sets {
                if limits.over() {
                    return Err(OrderError::TooLong { scheduler: self.name() });
                }
                // Runs the way to the set again, to know the ready ops and the bytes in use after
                // it.
                let (mut issue, mut usage) = (Issue::new(capture, reach), Usage::new(capture));
                let ran = ops_of(&ways, set.way);
                runs = runs.checked_sub(ran.len()).ok_or(too_many.clone())?;
                for op in ran {
                    issue.run(op);
                    usage.run(op);
                }
                for op in moves(&issue, &usage, bound) {
                    // Extends the set by the op, and keeps the way only if no other way to the same
                    // set has as low a peak.
                    let mut ran = set.ran.clone();
                    ran[op / 64] |= 1 << (op % 64);
                    let peak = usage.peak().max(usage.during(op));
                    let known = index.get(&ran).copied();
                    if known.is_some_and(|known| next[known].peak <= peak) {
                        continue;
                    }
                    if ways.len() == self.sets {
                        return Err(too_many);
                    }
                    let way = ways.len();
                    ways.push(Way { op, before: set.way });
                    match known {
                        Some(known) => (next[known].peak, next[known].way) = (peak, way),
                        None => {
                            index.insert(ran.clone(), next.len());
                            next.push(Set { ran, peak, way });
                        }
                    }
                }
            }
            sets = next;
        }
        match sets.first() {
            Some(best) => Order::new(capture, ops_of(&ways, best.way)),
            // No order is better than the known one.
            None => Ok(known),
        }
    }
}

fn ops_of(ways: &[Way], mut at: usize) -> Vec<usize> {
    let mut ops = Vec::new();
    while at != START {
        ops.push(ways[at].op);
        at = ways[at].before;
    }
    ops.reverse();
    ops
}

/// Ops to try next. If any order is below the bound, one of these ops leads to the best.
fn moves(issue: &Issue<'_>, usage: &Usage<'_>, bound: u64) -> Vec<usize> {
    let is_free =
        |&&op: &&usize| usage.during(op) <= usage.peak() && usage.after(op) <= usage.alive();
    if let Some(&op) = issue.ready().iter().find(is_free) {
        return vec![op];
    }
    issue.ready().iter().copied().filter(|&op| usage.during(op) < bound).collect()
}
