//! Union-find as MegEngine 1.4 has it: nodes that outlive what they stand for, and roots that come back.

use super::super::forest::{Forest, NodeKey};
use crate::graph::StorageKey;
use rustc_hash::FxHashMap;

/// What stands for a storage.
#[derive(Clone, Copy, Debug)]
struct Member {
    node: NodeKey,
    /// What it adds to its set.
    cost: f64,
}

/// Sets of storages that were evicted at some time, with their costs.
#[derive(Debug, Default)]
pub(super) struct Sets {
    /// The cost of each set.
    costs: Forest<f64>,
    /// Of each storage that was ever evicted, whether or not it is now: its node may be the root of others.
    members: FxHashMap<StorageKey, Member>,
}

impl Sets {
    /// If there is no node of `key` yet: a set of its own, at this cost.
    pub fn add(&mut self, key: StorageKey, cost: impl FnOnce() -> f64) {
        self.members.entry(key).or_insert_with(|| {
            let cost = cost();
            Member { node: self.costs.add(cost), cost }
        });
    }

    /// What the set of `key` costs, or `key` itself if that is more. It was added.
    pub fn cost_at(&mut self, key: StorageKey) -> f64 {
        let Member { node, cost } = self.members[&key];
        let root = self.costs.root(node);
        self.costs[root].max(cost)
    }

    /// The set of `a` becomes a part of that of `b`. Both were added.
    pub fn join(&mut self, a: StorageKey, b: StorageKey) {
        let [a, b] = [a, b].map(|key| self.costs.root(self.members[&key].node));
        if a != b {
            self.costs.join(a, b);
            self.costs[b] += self.costs[a];
        }
    }

    /// `key` came back: its cost leaves the root, and its node becomes a root, with all that point to it.
    pub fn regenerate(&mut self, key: StorageKey) {
        let Some(&Member { node, cost }) = self.members.get(&key) else { return };
        let root = self.costs.root(node);
        self.costs[root] -= cost;
        self.costs[node] = cost;
        self.costs.cut(node);
    }

    /// `key` goes. What it added stays in its set.
    pub fn forget(&mut self, key: StorageKey) {
        if let Some(member) = self.members.remove(&key) {
            self.costs.release(member.node);
        }
    }

    /// Number of storages and of nodes.
    #[cfg(test)]
    pub fn len(&self) -> (usize, usize) {
        (self.members.len(), self.costs.len())
    }
}
