//! Union-find as MegEngine 1.4 has it: nodes that outlive what they stand for, and roots that come back.

use crate::graph::StorageKey;
use rustc_hash::FxHashMap;
use slotmap::{SlotMap, new_key_type};
use smallvec::SmallVec;

new_key_type! { struct NodeKey; }

#[derive(Debug)]
struct Node {
    /// `None` for a root.
    parent: Option<NodeKey>,
    /// Number of nodes that name this one as parent, plus one while it is a storage's. Without any, it goes.
    references: u32,
    /// Of a root: what its set costs. Otherwise meaningless.
    cost: f64,
}

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
    nodes: SlotMap<NodeKey, Node>,
    /// Of each storage that was ever evicted, whether or not it is now: its node may be the root of others.
    members: FxHashMap<StorageKey, Member>,
}

impl Sets {
    /// If there is no node of `key` yet: a set of its own, at this cost.
    pub fn add(&mut self, key: StorageKey, cost: impl FnOnce() -> f64) {
        self.members.entry(key).or_insert_with(|| {
            let cost = cost();
            Member { node: self.nodes.insert(Node { parent: None, references: 1, cost }), cost }
        });
    }

    /// What the set of `key` costs, or `key` itself if that is more. It was added.
    pub fn cost_at(&mut self, key: StorageKey) -> f64 {
        let Member { node, cost } = self.members[&key];
        let root = self.find(node);
        self.nodes[root].cost.max(cost)
    }

    /// The set of `a` becomes a part of that of `b`. Both were added.
    pub fn join(&mut self, a: StorageKey, b: StorageKey) {
        let [a, b] = [a, b].map(|key| self.members[&key].node);
        let (a, b) = (self.find(a), self.find(b));
        if a != b {
            let cost = self.nodes[a].cost;
            self.nodes[a].parent = Some(b);
            self.nodes[b].cost += cost;
            self.nodes[b].references += 1;
        }
    }

    /// `key` came back: its cost leaves the root, and its node becomes a root, with all that point to it.
    pub fn regenerate(&mut self, key: StorageKey) {
        let Some(&Member { node, cost }) = self.members.get(&key) else { return };
        let root = self.find(node);
        self.nodes[root].cost -= cost;
        self.nodes[node].cost = cost;
        if let Some(parent) = self.nodes[node].parent.take() {
            self.release(parent);
        }
    }

    /// `key` goes. What it added stays in its set.
    pub fn forget(&mut self, key: StorageKey) {
        if let Some(member) = self.members.remove(&key) {
            self.release(member.node);
        }
    }

    /// Number of storages and of nodes.
    #[cfg(test)]
    pub fn len(&self) -> (usize, usize) {
        (self.members.len(), self.nodes.len())
    }

    /// The root above a node. All on the way point to it afterwards.
    fn find(&mut self, node: NodeKey) -> NodeKey {
        let mut way = SmallVec::<[NodeKey; 8]>::new();
        let mut root = node;
        while let Some(parent) = self.nodes[root].parent {
            way.push(root);
            root = parent;
        }
        // The last one points to it already.
        if let [far @ .., _] = &way[..] {
            for &node in far {
                self.nodes[node].parent = Some(root);
            }
            self.nodes[root].references += far.len() as u32;
            for &parent in &way[1..] {
                self.release(parent);
            }
        }
        root
    }

    /// Takes one reference from a node, and removes it and what only it referred to.
    fn release(&mut self, node: NodeKey) {
        let mut next = Some(node);
        while let Some(node) = next {
            self.nodes[node].references -= 1;
            if self.nodes[node].references > 0 {
                break;
            }
            next = self.nodes.remove(node).and_then(|gone| gone.parent);
        }
    }
}
