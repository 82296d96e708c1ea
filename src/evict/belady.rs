//! What pages are evicted by, with an oracle.

use super::{ByStep, Policy, View};
use crate::event::Hears;
use crate::graph::StorageKey;

/// Evicts what will be used last, or not again (Belady, 1966), where the step is known; what was used longest ago where
/// it is not. Optimal where bringing back costs the same for all that is evicted and takes no memory. Here it takes
/// what an op reads, which makes it fail where others pass: an oracle to compare with.
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

/// [`Future`](crate::graph::Future) has the uses.
impl ByStep for Belady {}
