//! Going by the step that is known.

use super::{Foresight, View};
use crate::graph::StorageKey;
use std::sync::Arc;

/// The part of an evictor or of a policy that goes by the step that runs.
pub trait ByStep {
    /// Takes the step that runs from now on. [`Graph::future`](crate::graph::Graph::future) tells
    /// which storage is which of its values. `None`: no step is known any more. Default: does
    /// nothing.
    fn foresee(&mut self, _foresight: Option<Arc<Foresight>>) {}

    /// Whether storages that nobody holds may stay resident, as the step may read them again: then
    /// [`ByStep::keeps`] is asked of each. Asked at first, and after each [`ByStep::foresee`].
    /// Default: no.
    fn keeps_unheld(&mut self) -> bool {
        false
    }

    /// Whether a storage stays resident until it is chosen, though nobody holds it, or it was
    /// recomputed only for another one. If not, the unheld one is evicted at once, and the other as
    /// [`Settings::dead`](crate::Settings::dead) says. Asked only after a yes to
    /// [`ByStep::keeps_unheld`]. Default: yes.
    fn keeps(&mut self, _storage: StorageKey, _view: View<'_>) -> bool {
        true
    }
}
