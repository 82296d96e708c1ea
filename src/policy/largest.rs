use super::{Policy, View};
use crate::engine::StorageKey;

/// Evicts the largest.
#[derive(Debug, Default)]
pub struct Largest;

impl Policy for Largest {
    fn score(&mut self, candidate: StorageKey, view: View<'_>) -> f64 {
        -view.mebibytes(candidate)
    }
}
