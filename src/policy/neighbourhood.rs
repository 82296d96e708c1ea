//! The exact evicted neighbourhood: evicted storages reachable through evicted ones.

use crate::engine::{PathKey, StorageKey, Table};
use slotmap::SecondaryMap;

/// Walks the neighbourhood afresh for each question. Paths are counted once, however many of their
/// outputs are evicted: running a path brings all of them back.
#[derive(Debug, Default)]
pub(super) struct Neighbourhood {
    /// The number of the last walk that met a path, so that walks need no clearing.
    met: SecondaryMap<PathKey, u64>,
    walk: u64,
    stack: Vec<StorageKey>,
}

impl Neighbourhood {
    /// Cost of the evicted storages that must come back before `from` can be recomputed.
    pub fn sources_cost(&mut self, from: StorageKey, table: &Table) -> f64 {
        self.walk(from, table, |table, key, stack| {
            stack.extend(table.sources(key).filter(|&s| table.is_evicted(s)));
        })
    }

    /// Cost of the evicted storages that need `from` to be recomputed.
    pub fn dependents_cost(&mut self, from: StorageKey, table: &Table) -> f64 {
        self.walk(from, table, |table, key, stack| {
            stack.extend(table.dependents(key).filter(|&s| table.is_evicted(s)));
        })
    }

    fn walk(
        &mut self,
        from: StorageKey,
        table: &Table,
        next: impl Fn(&Table, StorageKey, &mut Vec<StorageKey>),
    ) -> f64 {
        self.walk += 1;
        let mut cost = 0.0;
        next(table, from, &mut self.stack);
        while let Some(key) = self.stack.pop() {
            let path = table.storage(key).producer.expect("an evicted storage has a producer");
            if self.met.insert(path, self.walk) != Some(self.walk) {
                cost += table.path(path).cost;
                for output in table.path(path).outputs.iter().flatten() {
                    if table.is_evicted(*output) {
                        next(table, *output, &mut self.stack);
                    }
                }
            }
        }
        cost
    }
}
