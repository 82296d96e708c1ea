use super::neighbourhood::Neighbourhood;
use super::{Policy, View};
use crate::engine::StorageKey;

/// h_DTR with the exact evicted neighbourhood (Kirisame et al., ICLR 2021):
/// `(own cost + cost of the evicted neighbourhood) / (bytes * staleness)`.
#[derive(Debug, Default)]
pub struct Dtr {
    neighbourhood: Neighbourhood,
}

impl Policy for Dtr {
    fn score(&mut self, candidate: StorageKey, view: View<'_>) -> f64 {
        let table = view.table;
        let around = self.neighbourhood.sources_cost(candidate, table)
            + self.neighbourhood.dependents_cost(candidate, table);
        view.h_dtr(candidate, around)
    }
}
