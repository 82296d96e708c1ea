//! Decisions that use the known step.

use super::{Foresight, View};
use crate::graph::StorageKey;
use std::sync::Arc;

/// The part of an evictor or of a policy that uses the known step, which tells when each value will
/// be used.
pub trait ByStep {
    /// Takes the step that runs from now on; `None` if no step is known any more.
    /// [`Graph::future`](crate::graph::Graph::future) has the value of the step that each storage
    /// holds. Default: does nothing.
    fn foresee(&mut self, _foresight: Option<Arc<Foresight>>) {}

    /// Whether storages without handles may stay resident, because later commands of the step may
    /// need them to recompute other storages. If true, [`ByStep::keeps`] is called for each storage
    /// that lost its last handle. The engine calls `keeps_unheld` when the evictor is set, and
    /// after each [`ByStep::foresee`]. Default: false.
    fn keeps_unheld(&mut self) -> bool {
        false
    }

    /// Whether a storage stays resident until the evictor chooses it. The engine asks for storages
    /// that lost their last handle, and for storages that were recomputed only to restore other
    /// storages. If false, a storage that lost its last handle is evicted at once. If false, a
    /// storage that was recomputed to restore others is treated as
    /// [`Settings::dead`](crate::Settings::dead) says. The engine calls `keeps` only if
    /// [`ByStep::keeps_unheld`] returned true. Default: true.
    fn keeps(&mut self, _storage: StorageKey, _view: View<'_>) -> bool {
        true
    }
}
