//! The best order of all.

use super::super::capture::Usage;
use super::super::{Capture, Limits};
use super::{
    BreadthFirst, DepthFirst, Issue, LeastPeak, Order, OrderError, Reach, ReverseDepthFirst,
    Scheduler, Sink, floor,
};
use rustc_hash::FxHashMap;

/// `exact`: an order within reach of the least load.
///
/// Dynamic programming over the sets of ops that may have run (Ahn et al., Serenity, MLSys 2020): what is in use after a set
/// depends on the set alone, so of all ways to it one with the least peak is enough. Three rules keep the sets few. Where
/// the best of all other schedulers takes no more than the [`floor`], nothing is looked at. A way whose peak is no
/// less than that is of no use. And an op that can run below the peak so far and leaves no more in use than before runs at
/// once: whatever comes after takes no more for it.
///
/// The sets can be exponentially many in how many ops are ready at once; it refuses above `sets`, or when the sets that it
/// went on from had 128 times as many ops in all, which bounds the time. Each takes some 100 bytes and an eighth of a byte
/// for each op. Weak therefore on wide graphs: there it answers only if one of its rules does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exact {
    /// How many sets it looks at, at most.
    pub sets: usize,
}

impl Default for Exact {
    fn default() -> Self {
        Self { sets: 1 << 16 }
    }
}

/// A set of ops that have run, and the best way to it.
struct Set {
    ran: Box<[u64]>,
    /// Most bytes in use on that way.
    peak: u64,
    way: usize,
}

/// The last op of a way, and where in the list of all ways the one before it is.
struct Way {
    op: usize,
    before: usize,
}

const START: usize = usize::MAX;

/// So many ops are gone through for each set, at most, to find what is in use after it.
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
        // All sets of as many ops at a time.
        for _ in 0..count {
            let mut next: Vec<Set> = Vec::new();
            let mut index: FxHashMap<Box<[u64]>, usize> = FxHashMap::default();
            for set in &sets {
                if limits.over() {
                    return Err(OrderError::TooLong { scheduler: self.name() });
                }
                let (mut issue, mut usage) = (Issue::new(capture, reach), Usage::new(capture));
                let ran = ops_of(&ways, set.way);
                runs = runs.checked_sub(ran.len()).ok_or(too_many.clone())?;
                for op in ran {
                    issue.run(op);
                    usage.run(op);
                }
                for op in moves(&issue, &usage, bound) {
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
            // None is better.
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

/// The ops that may run next, of which one leads to the best order below the bound, if any does.
fn moves(issue: &Issue<'_>, usage: &Usage<'_>, bound: u64) -> Vec<usize> {
    let is_free =
        |&&op: &&usize| usage.during(op) <= usage.peak() && usage.after(op) <= usage.alive();
    if let Some(&op) = issue.ready().iter().find(is_free) {
        return vec![op];
    }
    issue.ready().iter().copied().filter(|&op| usage.during(op) < bound).collect()
}
