//! When storages will be wanted to bring others back.
//!
//! For each storage the earliest next use of any evicted one that is made from it, through evicted ones only. Kept, so
//! that it need not be looked for in deep histories: an eviction is told upwards, as far as it makes a need earlier;
//! what a return changes is found when it is asked for.

use crate::graph::{Graph, StorageKey};
use crate::step::NEVER;
use slotmap::SecondaryMap;

#[derive(Debug, Default)]
pub(super) struct Needs {
    /// Position of that use. Absent if it is not known, as good as absent if it is past.
    ///
    /// What an evicted storage has here is known: nothing that is made from it can come back before it does.
    below: SecondaryMap<StorageKey, u32>,
    stack: Vec<StorageKey>,
}

impl Needs {
    /// That of a storage, from position `at` on; `own` is the next use of a storage itself.
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

    /// The same if it is known; otherwise at most that late.
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
                    // Ends, for what is made from it is younger.
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

    /// Tells those that it is made from that `key` was evicted.
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
                // What is not known will be found when it is asked for, and includes this.
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

    /// `key` is evicted no more. What it is made from is there, so nothing further up can depend on it.
    pub fn did_return(&mut self, key: StorageKey, graph: &Graph) {
        for source in graph.sources(key) {
            self.below.remove(source);
        }
    }

    /// `key`, whose own next use is `own`, will not be there any more, nor will anybody want it: calls `lowered` for all
    /// storages that may have been wanted for it.
    pub fn will_forget(
        &mut self,
        key: StorageKey,
        at: u32,
        own: u32,
        graph: &Graph,
        mut lowered: impl FnMut(StorageKey),
    ) {
        let need = self.known(key, at).unwrap_or(NEVER).min(own);
        // A step that goes as it was foreseen forgets nothing else.
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

    /// Nothing is known any more.
    pub fn clear(&mut self) {
        self.below.clear();
    }
}
