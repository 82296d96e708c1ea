//! Union-find of MegEngine 1.4. A storage keeps its node when it is restored, so a restored storage
//! may be the root of a set.

use super::super::forest::{Forest, NodeKey};
use crate::graph::StorageKey;
use rustc_hash::FxHashMap;

/// Node that represents a storage.
#[derive(Clone, Copy, Debug)]
struct Member {
    node: NodeKey,
    /// Cost of the storage in the set.
    cost: f64,
}

/// Sets of storages that were evicted at least once, with the cost of each set.
#[derive(Debug, Default)]
pub(super) struct Sets {
    /// The cost of each set.
    costs: Forest<f64>,
    /// Node of each storage that was ever evicted. A resident storage keeps its node, because the
    /// node may be the root of other nodes.
    members: FxHashMap<StorageKey, Member>,
}

impl Sets {
    /// Makes a set of only `key` with the cost `cost()`, unless `key` already has a node.
    pub fn add(&mut self, key: StorageKey, cost: impl FnOnce() -> f64) {
        self.members.entry(key).or_insert_with(|| {
            let cost = cost();
            Member { node: self.costs.add(cost), cost }
        });
    }

    /// Cost of the set of `key`, or the cost of `key` alone if that is higher. `key` must have been
    /// added.
    pub fn cost_at(&mut self, key: StorageKey) -> f64 {
        let Member { node, cost } = self.members[&key];
        let root = self.costs.root(node);
        self.costs[root].max(cost)
    }

    /// Joins the set of `a` into the set of `b`. Both storages must have been added.
    pub fn join(&mut self, a: StorageKey, b: StorageKey) {
        let [a, b] = [a, b].map(|key| self.costs.root(self.members[&key].node));
        if a != b {
            self.costs.join(a, b);
            self.costs[b] += self.costs[a];
        }
    }

    /// Handles the restoration of `key`: subtracts its cost from the root, and makes its node the
    /// root of all nodes that point to it.
    pub fn regenerate(&mut self, key: StorageKey) {
        let Some(&Member { node, cost }) = self.members.get(&key) else { return };
        let root = self.costs.root(node);
        self.costs[root] -= cost;
        self.costs[node] = cost;
        self.costs.cut(node);
    }

    /// Removes the entry of `key`. The cost of `key` stays in the set.
    pub fn forget(&mut self, key: StorageKey) {
        if let Some(member) = self.members.remove(&key) {
            self.costs.release(member.node);
        }
    }

    /// Number of storages, and number of nodes.
    #[cfg(test)]
    pub fn len(&self) -> (usize, usize) {
        (self.members.len(), self.costs.len())
    }
}
