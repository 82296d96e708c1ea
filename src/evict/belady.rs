//! Belady's rule for paging, as an oracle for comparison.

use super::{ByStep, Policy, View};
use crate::event::Hears;
use crate::graph::StorageKey;

/// Evicts the candidate whose next use is farthest away, or that has no further use (Belady, 1966).
/// Without a known step, evicts the least recently used candidate.
///
/// The rule is optimal if restoring costs the same for all evicted storages and takes no memory. In
/// this crate, restoring a storage needs an op's inputs in memory, so the policy fails in some
/// budgets in which other policies succeed. The policy is an oracle, to compare other policies
/// with.
#[derive(Clone, Copy, Debug, Default)]
pub struct Belady;

impl Policy for Belady {
    fn score(&mut self, candidate: StorageKey, view: View<'_>) -> f64 {
        match view.graph.future().foreseen() {
            Some(foreseen) => match foreseen.next_use(candidate) {
                Some(commands) => -(commands as f64),
                None => f64::MIN,
            },
            None => -view.staleness(candidate),
        }
    }

    fn by_step(&mut self) -> Option<&mut dyn ByStep> {
        Some(self)
    }

    fn hears(&self) -> Hears {
        Hears::NOTHING
    }
}

/// [`Future`](crate::graph::Future) has the next uses, so `Belady` keeps no records.
impl ByStep for Belady {}
