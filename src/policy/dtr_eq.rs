use super::classes::Classes;
use super::{Policy, View};
use crate::engine::StorageKey;

/// h_DTR with the evicted neighbourhood taken from union-find classes (the paper's `h_DTR_eq`):
/// `(own cost + cost of the distinct classes around it) / (bytes * staleness)`.
#[derive(Debug, Default)]
pub struct DtrEq {
    classes: Classes,
}

impl Policy for DtrEq {
    fn score(&mut self, candidate: StorageKey, view: View<'_>) -> f64 {
        let table = view.table;
        let around =
            self.classes.cost_of(table.sources(candidate).chain(table.dependents(candidate)));
        view.h_dtr(candidate, around)
    }

    fn did_evict(&mut self, key: StorageKey, view: View<'_>) {
        self.classes.join(key, view.table);
    }

    fn did_regenerate(&mut self, key: StorageKey, _view: View<'_>) {
        self.classes.leave(key);
    }

    fn did_forget(&mut self, key: StorageKey) {
        self.classes.leave(key);
    }
}
