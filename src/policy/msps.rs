use super::neighbourhood::Neighbourhood;
use super::{Policy, View};
use crate::engine::StorageKey;

/// `(own cost + cost of the evicted storages needed to recompute it) / bytes`: the memory-saved-per-
/// cost rule of Capuchin (Peng et al., ASPLOS 2020) as the DTR paper states it.
#[derive(Debug, Default)]
pub struct Msps {
    neighbourhood: Neighbourhood,
}

impl Policy for Msps {
    fn score(&mut self, candidate: StorageKey, view: View<'_>) -> f64 {
        let needed = self.neighbourhood.sources_cost(candidate, view.table);
        (view.table.own_cost(candidate) + needed) / view.mebibytes(candidate)
    }
}
