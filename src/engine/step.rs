//! The end of one turn of the training loop.

use super::{Engine, StorageKey};
use crate::device::Device;
use rustc_hash::FxHashSet;

impl<D: Device> Engine<D> {
    /// Lets time pass: work of `cost` that is not an op of this engine, done once, such as making the views
    /// of a trace.
    pub fn elapse(&mut self, cost: f64) {
        self.now += cost;
        self.stats.base_cost += cost;
        self.work.did_run(cost);
    }

    /// Marks the end of a step.
    ///
    /// History may not cross a step through a value that nobody holds: a tensor made from an earlier
    /// step's value whose handle is gone becomes a leaf. Without that, a loop that replaces its state
    /// (`w = w - lr * g`) would keep every state there ever was, and rebuild the newest through all of
    /// them. A tensor that cannot be regenerated now keeps its history until the next step's end.
    pub fn step(&mut self) {
        self.step += 1;
        self.take_times();
        self.work.next_step();
        let held: Vec<StorageKey> = self
            .table
            .storages()
            .filter(|(_, s)| s.handles > 0 && s.producer.is_some())
            .map(|(key, _)| key)
            .collect();
        for key in held {
            if !self.remembers_an_earlier_step(key) {
                continue;
            }
            if !self.fit_as_leaves(&[key]) || self.commit_storage(key).is_err() {
                tracing::warn!(target: "remat", op = self.name_of(key), "keeps its history across a step");
            }
        }
        tracing::debug!(target: "remat", step = self.step, used = self.space.used(), "step");
    }

    /// Whether regenerating `key` goes through a storage of an earlier step that nobody holds.
    fn remembers_an_earlier_step(&self, key: StorageKey) -> bool {
        let born = self.table.storage(key).born;
        let mut seen = FxHashSet::default();
        let mut stack: Vec<StorageKey> = self.table.sources(key).collect();
        while let Some(source) = stack.pop() {
            let storage = self.table.storage(source);
            if storage.handles > 0 || !seen.insert(source) {
                continue;
            }
            if storage.born < born {
                return true;
            }
            stack.extend(self.table.sources(source));
        }
        false
    }
}
