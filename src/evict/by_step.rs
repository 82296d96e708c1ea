//! Decisions that use the known step.

use super::{Foresight, View};
use crate::graph::StorageKey;
use std::sync::Arc;

/// The part of an evictor or of a policy that uses the known step, in which it is known when each
/// value is used.
pub trait ByStep {
    /// Takes the step that runs from now on. [`Graph::future`](crate::graph::Graph::future) tells
    /// which value of the step each storage holds. `None`: no step is known any more. Default: does
    /// nothing.
    fn foresee(&mut self, _foresight: Option<Arc<Foresight>>) {}

    /// Whether storages without handles may stay resident, because the rest of the step may need
    /// them to recompute others. If so, [`ByStep::keeps`] is asked about each such storage. Asked
    /// when the evictor is set, and after each [`ByStep::foresee`]. Default: no.
    fn keeps_unheld(&mut self) -> bool {
        false
    }

    /// Whether a storage stays resident until it is chosen for eviction. Asked about storages that
    /// lost their last handle, and about storages that were recomputed only for others. After a no,
    /// a storage that lost its last handle is evicted at once; one that was recomputed for others
    /// is treated as [`Settings::dead`](crate::Settings::dead) says. Asked only after a yes to
    /// [`ByStep::keeps_unheld`]. Default: yes.
    fn keeps(&mut self, _storage: StorageKey, _view: View<'_>) -> bool {
        true
    }
}
