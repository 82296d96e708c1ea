use super::{Policy, View};
use crate::engine::StorageKey;

/// Evicts what was used longest ago.
#[derive(Debug, Default)]
pub struct Lru;

impl Policy for Lru {
    fn score(&mut self, candidate: StorageKey, view: View<'_>) -> f64 {
        view.table.storage(candidate).last_used
    }
}
