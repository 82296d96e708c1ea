//! Union-find whose nodes go when nothing needs them any more.

use slotmap::{SlotMap, new_key_type};
use smallvec::SmallVec;
use std::ops::{Index, IndexMut};

new_key_type! { pub(super) struct NodeKey; }

/// Sets that can be joined, as trees of nodes: each root has a value for its set.
#[derive(Debug, Default)]
pub(super) struct Forest<T> {
    nodes: SlotMap<NodeKey, Node<T>>,
}

#[derive(Debug)]
struct Node<T> {
    /// `None` for a root.
    parent: Option<NodeKey>,
    /// Number of nodes that name this one as parent, plus one until it is released. A node without references goes, so that
    /// there are never more nodes than the members need.
    references: u32,
    /// Of a root: the value of its set. Otherwise meaningless.
    value: T,
}

impl<T> Forest<T> {
    /// A set of one node.
    pub fn add(&mut self, value: T) -> NodeKey {
        self.nodes.insert(Node { parent: None, references: 1, value })
    }

    /// Whether a node is still there.
    pub fn contains(&self, node: NodeKey) -> bool {
        self.nodes.contains_key(node)
    }

    /// Number of nodes.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The root above a node. All on the way point to it afterwards.
    pub fn root(&mut self, node: NodeKey) -> NodeKey {
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

    /// Puts a root below another. Their values stay as they are.
    pub fn join(&mut self, below: NodeKey, root: NodeKey) {
        self.nodes[below].parent = Some(root);
        self.nodes[root].references += 1;
    }

    /// Makes a root of a node, with all that point to it.
    pub fn cut(&mut self, node: NodeKey) {
        if let Some(parent) = self.nodes[node].parent.take() {
            self.release(parent);
        }
    }

    /// Takes one reference from a node, and removes it and what only it referred to.
    pub fn release(&mut self, node: NodeKey) {
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

impl<T> Index<NodeKey> for Forest<T> {
    type Output = T;

    fn index(&self, node: NodeKey) -> &T {
        &self.nodes[node].value
    }
}

impl<T> IndexMut<NodeKey> for Forest<T> {
    fn index_mut(&mut self, node: NodeKey) -> &mut T {
        &mut self.nodes[node].value
    }
}
