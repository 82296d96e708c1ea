//! Union-find forest with removal of unreferenced nodes.

use slotmap::{SlotMap, new_key_type};
use smallvec::SmallVec;
use std::ops::{Index, IndexMut};

new_key_type! { pub(super) struct NodeKey; }

/// Disjoint sets as trees of nodes. The root of each tree has the value of its set.
#[derive(Debug, Default)]
pub(super) struct Forest<T> {
    nodes: SlotMap<NodeKey, Node<T>>,
}

#[derive(Debug)]
struct Node<T> {
    /// Parent of the node; `None` for the root of a tree.
    parent: Option<NodeKey>,
    /// Number of child nodes, plus one until the node's user releases the node. A node with 0
    /// references is removed. The forest thus has only nodes that users of the forest still need.
    references: u32,
    /// Value of the set if the node is a root; meaningless in other nodes.
    value: T,
}

impl<T> Forest<T> {
    /// Adds a set of one node.
    pub fn add(&mut self, value: T) -> NodeKey {
        self.nodes.insert(Node { parent: None, references: 1, value })
    }

    /// Whether the forest holds a node.
    pub fn contains(&self, node: NodeKey) -> bool {
        self.nodes.contains_key(node)
    }

    /// Number of nodes.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Root of the tree of a node. Makes all nodes on the path point directly to the root.
    #[inline]
    pub fn root(&mut self, node: NodeKey) -> NodeKey {
        match self.nodes[node].parent {
            None => node,
            Some(parent) if self.nodes[parent].parent.is_none() => parent,
            Some(_) => self.flattened_root(node),
        }
    }

    #[inline(never)]
    fn flattened_root(&mut self, node: NodeKey) -> NodeKey {
        let mut way = SmallVec::<[NodeKey; 8]>::new();
        let mut root = node;
        while let Some(parent) = self.nodes[root].parent {
            way.push(root);
            root = parent;
        }
        // The last node on the path already points to the root.
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

    /// Makes the root `below` the child of another root. The values of both roots stay unchanged.
    pub fn join(&mut self, below: NodeKey, root: NodeKey) {
        self.nodes[below].parent = Some(root);
        self.nodes[root].references += 1;
    }

    /// Cuts a node from its parent and makes it a root. The children of the node stay its children.
    pub fn cut(&mut self, node: NodeKey) {
        if let Some(parent) = self.nodes[node].parent.take() {
            self.release(parent);
        }
    }

    /// Removes one reference from a node. A node with 0 references is removed, which also removes a
    /// reference from its parent.
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
