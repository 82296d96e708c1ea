//! Needs of storages. The need of a storage is the time when the storage is needed to restore other
//! storages.
//!
//! The need of a storage is the earliest next use of any evicted storage that is made from it,
//! directly or through evicted storages. Needs are cached, so that deep histories are not searched
//! for each need. An eviction updates the needs of direct and indirect sources, until a source's
//! need does not get earlier. When a storage is restored, the needs of its sources are dropped, and
//! computed again when next read.

use crate::graph::{Graph, StorageKey};
use crate::step::NEVER;
use slotmap::SecondaryMap;

#[derive(Debug, Default)]
pub(super) struct Needs {
    /// Cached need of each storage, as a position in the step. A storage without a known need has
    /// no entry, and a past position counts as no entry.
    ///
    /// The entry of an evicted storage stays exact, because no storage made from the evicted
    /// storage can be restored before the evicted storage.
    below: SecondaryMap<StorageKey, u32>,
    stack: Vec<StorageKey>,
}

impl Needs {
    /// Need of a storage at position `at` or later. `own` gives the next use of a storage itself.
    #[inline]
    pub fn below(
        &mut self,
        key: StorageKey,
        at: u32,
        graph: &Graph,
        own: impl Fn(StorageKey) -> u32,
    ) -> u32 {
        match self.known(key, at) {
            Some(need) => need,
            None => self.find(key, at, graph, own),
        }
    }

    /// Need of a storage at position `at` or later, if it is cached.
    #[inline]
    pub fn known(&self, key: StorageKey, at: u32) -> Option<u32> {
        self.below.get(key).copied().filter(|need| *need >= at)
    }

    #[inline(never)]
    fn find(
        &mut self,
        key: StorageKey,
        at: u32,
        graph: &Graph,
        own: impl Fn(StorageKey) -> u32,
    ) -> u32 {
        let mut stack = std::mem::take(&mut self.stack);
        stack.push(key);
        let mut found = NEVER;
        'next: while let Some(&top) = stack.last() {
            found = NEVER;
            for below in graph.dependents(top).filter(|&below| graph.is_evicted(below)) {
                let Some(need) = self.known(below, at) else {
                    // The loop ends, because each dependent is younger than its source.
                    stack.push(below);
                    continue 'next;
                };
                found = found.min(need).min(own(below));
            }
            self.below.insert(top, found);
            stack.pop();
        }
        self.stack = stack;
        found
    }

    /// Updates the cached needs of the sources of `key`, after `key` was evicted.
    pub fn did_evict(
        &mut self,
        key: StorageKey,
        at: u32,
        graph: &Graph,
        own: impl Fn(StorageKey) -> u32,
    ) {
        let need = self.below(key, at, graph, &own).min(own(key));
        if need == NEVER {
            return;
        }
        let mut stack = std::mem::take(&mut self.stack);
        stack.push(key);
        while let Some(key) = stack.pop() {
            for source in graph.sources(key) {
                // A need that is not cached needs no update: when next read, it is computed with
                // the new eviction included.
                if self.known(source, at).is_some_and(|known| known > need) {
                    self.below.insert(source, need);
                    if graph.is_evicted(source) {
                        stack.push(source);
                    }
                }
            }
        }
        self.stack = stack;
    }

    /// Forgets the needs of the sources of a restored storage `key`. Storages further up are not
    /// affected by `key`, because the sources are resident.
    pub fn did_return(&mut self, key: StorageKey, graph: &Graph) {
        for source in graph.sources(key) {
            self.below.remove(source);
        }
    }

    /// Forgets all needs that may come from the use of a removed storage, and calls `lowered` for
    /// each storage whose need is forgotten. `own` is the next use of `key` itself.
    pub fn will_forget(
        &mut self,
        key: StorageKey,
        at: u32,
        own: u32,
        graph: &Graph,
        mut lowered: impl FnMut(StorageKey),
    ) {
        let need = self.known(key, at).unwrap_or(NEVER).min(own);
        // In a step that runs as predicted, a deleted storage has no need, so nothing must be
        // updated.
        if need == NEVER {
            return;
        }
        let mut stack = std::mem::take(&mut self.stack);
        stack.push(key);
        while let Some(key) = stack.pop() {
            for source in graph.sources(key) {
                lowered(source);
                if self.below.remove(source).is_some() && graph.is_evicted(source) {
                    stack.push(source);
                }
            }
        }
        self.stack = stack;
    }

    /// Forgets all needs.
    pub fn clear(&mut self) {
        self.below.clear();
    }
}
