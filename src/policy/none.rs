use super::{Policy, View};
use crate::engine::StorageKey;

/// Never evicts: the baseline. A program that does not fit ends with an error.
#[derive(Debug, Default)]
pub struct NeverEvict;

impl Policy for NeverEvict {
    fn score(&mut self, _candidate: StorageKey, _view: View<'_>) -> f64 {
        0.0
    }

    fn evicts(&self) -> bool {
        false
    }
}
