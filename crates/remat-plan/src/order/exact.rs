//! Exact search for the order with the least load.

use super::{
    BreadthFirst, DepthFirst, Issue, LeastPeak, Order, OrderError, Reach, ReverseDepthFirst,
    Scheduler, Sink, floor,
};
use crate::capture::Usage;
use crate::{Capture, Limits};
use rustc_hash::FxHashMap;

/// `exact`: finds an order with the least load among the orders that the reach allows.
///
/// The method is dynamic programming over sets of ops that have run (Ahn et al., Serenity, MLSys
/// 2020). A *way* to a set is an order of its ops. The bytes in use after a set of ops has run do
/// not depend on the way to the set. For each set, only one way with the least peak is kept. Three
/// rules keep the number of sets small:
///
/// - The order with the least load among the orders of the other schedulers is the answer if this
///   load equals the [`floor`].
/// - A way is dropped if its peak is at least the load of the best order of the other schedulers.
/// - If an op does not raise the peak and does not increase the bytes in use, this op runs next,
///   and no other op is tried in its place. An op that increases neither the peak nor the bytes in
///   use can run early: no later op then needs more memory.
///
/// The number of sets can grow exponentially with the number of ops ready at once. The search fails
/// if it finds more than `sets` ways. The state after a set of ops is restored by running the ops
/// of its way again. The search also fails if all restored states would take more than `128 * sets`
/// runs of ops. Each set takes about 100 bytes, plus an eighth of a byte for each op of the step.
/// The search fails on wide graphs, unless the rules leave few sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exact {
    /// Limit on the number of ways kept. At least one way is kept for each set.
    pub sets: usize,
}

impl Default for Exact {
    fn default() -> Self {
        Self { sets: 1 << 16 }
    }
}

/// A set of ops that have run, and the best way to this set.
struct Set {
    ran: Box<[u64]>,
    /// Peak of the bytes in use in the best way.
    peak: u64,
    way: usize,
}

/// A way: its last op, and the index of the way without this op.
struct Way {
    op: usize,
    before: usize,
}

const START: usize = usize::MAX;

/// Reruns allowed per unit of `Exact::sets`: a search runs at most `sets * RUNS` ops again to
/// restore states.
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
        // The load of the best order of the other schedulers is an upper bound. If this bound
        // equals the floor, the known order is the answer.
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
        // Each iteration extends all sets of the current size by one op.
        for _ in 0..count {
            let mut next: Vec<Set> = Vec::new();
            let mut index: FxHashMap<Box<[u64]>, usize> = FxHashMap::default();
            for set in &sets {
                if limits.over() {
                    return Err(OrderError::TooLong { scheduler: self.name() });
                }
                // Runs the ops of the way again, to restore the ready ops and the bytes in use.
                let (mut issue, mut usage) = (Issue::new(capture, reach), Usage::new(capture));
                let ran = ops_of(&ways, set.way);
                runs = runs.checked_sub(ran.len()).ok_or(too_many.clone())?;
                for op in ran {
                    issue.run(op);
                    usage.run(op);
                }
                for op in moves(&issue, &usage, bound) {
                    // Extends the set by the op. The new way is kept only if its peak is lower than
                    // the peak of every known way to the same set.
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
            // No set remains: no order has a lower load than the known order.
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

/// Ops to try next. If some continuation of the current way has a load below `bound`, then a
/// continuation with the least load begins with one of the returned ops.
fn moves(issue: &Issue<'_>, usage: &Usage<'_>, bound: u64) -> Vec<usize> {
    let is_free =
        |&&op: &&usize| usage.during(op) <= usage.peak() && usage.after(op) <= usage.alive();
    if let Some(&op) = issue.ready().iter().find(is_free) {
        return vec![op];
    }
    issue.ready().iter().copied().filter(|&op| usage.during(op) < bound).collect()
}
