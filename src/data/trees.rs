//! Synthetic trees of many shapes: nested minima and maxima of digits.

use super::numbers;
use crate::host::HostTensor;
use remat_rng::SplitMix64;
use std::ops::RangeInclusive;

/// Shape of a tree. Children have smaller numbers than their parent, so the root is the last node.
///
/// ```
/// use remat::data::Trees;
///
/// let tree = Trees::new(1, 4..=4).largest(1).tree;
/// assert_eq!(tree.nodes(), 7);
/// // The root is the last node.
/// assert_eq!(tree.children(6).len(), 2);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// Node -> its children. Children have smaller numbers than their parent. Each node except the
    /// root is the child of exactly one node.
    children: Vec<Vec<usize>>,
}

impl Tree {
    /// Tree of a single node.
    ///
    /// ```
    /// use remat::data::Tree;
    ///
    /// let leaf = Tree::of_one();
    /// assert_eq!((leaf.nodes(), leaf.children(0).len()), (1, 0));
    /// ```
    #[must_use]
    pub fn of_one() -> Self {
        Self { children: vec![Vec::new()] }
    }

    /// Random tree with `leaves` leaves. Each inner node has two or three children.
    fn draw(leaves: usize, numbers: &mut SplitMix64) -> Self {
        let mut tree = Self { children: Vec::new() };
        tree.grow(leaves, numbers);
        tree
    }

    /// Adds a tree with `leaves` leaves, and returns its root.
    fn grow(&mut self, leaves: usize, numbers: &mut SplitMix64) -> usize {
        let mut children = Vec::new();
        if leaves > 1 {
            let mut left = leaves;
            for others in (0..2 + numbers.below(2.min(leaves - 1))).rev() {
                // Leave at least one leaf for each remaining child.
                let taken = if others == 0 { left } else { 1 + numbers.below(left - others) };
                left -= taken;
                children.push(self.grow(taken, numbers));
            }
        }
        self.children.push(children);
        self.children.len() - 1
    }

    /// Number of nodes.
    #[must_use]
    pub const fn nodes(&self) -> usize {
        self.children.len()
    }

    /// Children of a node, in order; empty for a leaf.
    ///
    /// # Panics
    /// Panics if the tree has no such node.
    #[must_use]
    pub fn children(&self, node: usize) -> &[usize] {
        &self.children[node]
    }
}

/// Trees of one shape. Each tree has its own tokens and its own label.
#[derive(Clone, Debug)]
pub struct TreeBatch {
    /// Shape of every tree in the batch.
    pub tree: Tree,
    /// Token of each node of each tree, `[nodes, n]`: integers below [`Trees::VOCABULARY`].
    pub tokens: HostTensor,
    /// Label of each tree, `[n]`: integers below [`Trees::CLASSES`].
    pub labels: HostTensor,
}

/// Expressions such as `max(3, min(7, 5), 1)` as trees. The label of a tree is the value of its
/// expression.
///
/// Leaves are digits. Inner nodes are the minimum or the maximum of their two or three children.
/// The data resembles ListOps (Nangia and Bowman, 2018), with fewer operators. Batches are
/// generated on demand, so the data takes no memory. The same batch number and seed always give the
/// same batch.
///
/// ```
/// use remat::data::Trees;
///
/// let batch = Trees::new(1, 3..=8).batch(0, 4);
/// assert_eq!(&**batch.tokens.shape(), [batch.tree.nodes(), 4]);
/// assert_eq!(&**batch.labels.shape(), [4]);
/// ```
#[derive(Clone, Debug)]
pub struct Trees {
    seed: u64,
    leaves: RangeInclusive<usize>,
}

impl Trees {
    /// Number of token values: ten digits, the minimum, the maximum.
    pub const VOCABULARY: usize = 12;
    /// Number of different values that an expression can have.
    pub const CLASSES: usize = 10;
    const MIN: i32 = 10;
    const MAX: i32 = 11;

    /// Creates trees whose number of leaves is in the range `leaves`. A tree has at least one leaf.
    ///
    /// ```
    /// use remat::data::Trees;
    ///
    /// let batch = Trees::new(1, 1..=1).batch(0, 4);
    /// assert_eq!(batch.tree.nodes(), 1);
    /// // The value of a digit is the digit.
    /// assert_eq!(batch.tokens.as_i32(), batch.labels.as_i32());
    /// ```
    #[must_use]
    pub const fn new(seed: u64, leaves: RangeInclusive<usize>) -> Self {
        Self { seed, leaves }
    }

    /// Batch `number`: `n` trees of one shape, which is drawn at random for each batch.
    ///
    /// ```
    /// use remat::data::Trees;
    ///
    /// let trees = Trees::new(1, 3..=8);
    /// assert_eq!(trees.batch(5, 4).tokens, trees.batch(5, 4).tokens);
    /// ```
    ///
    /// # Panics
    /// Panics if there are more than `isize::MAX / 4` tokens.
    #[must_use]
    pub fn batch(&self, number: u64, n: usize) -> TreeBatch {
        self.batch_from(0, number, n)
    }

    /// Part of batch `number`: `n` trees from tree `first` on.
    ///
    /// ```
    /// use remat::data::Trees;
    ///
    /// let trees = Trees::new(1, 3..=8);
    /// let (whole, second) = (trees.batch(0, 4), trees.batch_from(2, 0, 2));
    /// assert_eq!(whole.tree, second.tree);
    /// assert_eq!(whole.labels.as_i32().unwrap()[2..], *second.labels.as_i32().unwrap());
    /// ```
    ///
    /// # Panics
    /// Panics as [`Trees::batch`] does.
    #[must_use]
    pub fn batch_from(&self, first: usize, number: u64, n: usize) -> TreeBatch {
        let mut numbers = numbers(self.seed, number);
        let (least, most) = (*self.leaves.start().max(&1), *self.leaves.end());
        let leaves = least + numbers.below(most.saturating_sub(least) + 1);
        let tree = Tree::draw(leaves, &mut numbers);
        // Each node of a tree uses one random number.
        numbers.skip(first * tree.nodes());
        Self::fill(tree, n, &mut numbers)
    }

    /// `n` trees of the shape with the most nodes: a chain of inner nodes, each with two children,
    /// one of which is a leaf.
    ///
    /// ```
    /// use remat::data::Trees;
    ///
    /// // Five leaves, and four nodes that join them.
    /// assert_eq!(Trees::new(1, 3..=5).largest(2).tree.nodes(), 9);
    /// ```
    ///
    /// # Panics
    /// Panics as [`Trees::batch`] does.
    #[must_use]
    pub fn largest(&self, n: usize) -> TreeBatch {
        let mut tree = Tree::of_one();
        for _ in 1..*self.leaves.end() {
            let root = tree.nodes() - 1;
            tree.children.extend([vec![], vec![root, root + 1]]);
        }
        Self::fill(tree, n, &mut SplitMix64::new(self.seed))
    }

    /// Draws tokens for `n` trees of this shape, and computes their labels.
    fn fill(tree: Tree, n: usize, numbers: &mut SplitMix64) -> TreeBatch {
        let mut tokens = vec![0; tree.nodes() * n];
        let mut labels = Vec::with_capacity(n);
        let mut values = vec![0; tree.nodes()];
        for example in 0..n {
            for node in 0..tree.nodes() {
                let of = tree.children(node).iter().map(|&child| values[child]);
                let (token, value) = match (of.clone().min(), of.max()) {
                    (Some(least), Some(_)) if numbers.below(2) == 0 => (Self::MIN, least),
                    (_, Some(largest)) => (Self::MAX, largest),
                    _ => {
                        let digit = numbers.below(10) as i32;
                        (digit, digit)
                    }
                };
                tokens[node * n + example] = token;
                values[node] = value;
            }
            labels.extend(values.last());
        }
        let tokens = HostTensor::i32([tree.nodes(), n], tokens).expect("one for each node");
        let labels = HostTensor::i32([n], labels).expect("one for each tree");
        TreeBatch { tree, tokens, labels }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(tree: &Tree, tokens: &[i32], node: usize) -> i32 {
        let of = tree.children(node).iter().map(|&child| value(tree, tokens, child));
        match tokens[node] {
            Trees::MIN => of.min().expect("an operator has operands"),
            Trees::MAX => of.max().expect("an operator has operands"),
            digit => digit,
        }
    }

    #[test]
    fn labels_are_the_values_of_the_expressions() {
        let trees = Trees::new(7, 2..=20);
        let (mut shapes, mut seen) = (Vec::new(), [0; Trees::CLASSES]);
        for number in 0..50 {
            let n = 1 + number as usize % 5;
            let batch = trees.batch(number, n);
            let nodes = batch.tree.nodes();
            let leaves = (0..nodes).filter(|&node| batch.tree.children(node).is_empty()).count();
            assert!((2..=20).contains(&leaves), "{leaves} leaves");
            let mut parents = vec![0; nodes];
            for node in 0..nodes {
                let children = batch.tree.children(node);
                assert!([0, 2, 3].contains(&children.len()) && children.iter().all(|&c| c < node));
                children.iter().for_each(|&child| parents[child] += 1);
            }
            assert!(parents[..nodes - 1].iter().all(|&n| n == 1) && parents[nodes - 1] == 0);
            let (tokens, labels) = (batch.tokens.as_i32().unwrap(), batch.labels.as_i32().unwrap());
            assert_eq!((tokens.len(), labels.len()), (nodes * n, n));
            for (i, &label) in labels.iter().enumerate() {
                let own: Vec<i32> = tokens.iter().copied().skip(i).step_by(n).collect();
                assert_eq!(label, value(&batch.tree, &own, nodes - 1));
                seen[label as usize] += 1;
            }
            if !shapes.contains(&batch.tree) {
                shapes.push(batch.tree);
            }
        }
        assert!(shapes.len() > 40, "{} shapes in 50 batches", shapes.len());
        assert!(seen.iter().all(|&n| n > 0), "{seen:?}");
    }

    #[test]
    fn a_number_and_a_seed_say_all() {
        let trees = |seed| Trees::new(seed, 3..=9);
        let [a, b, c] = [trees(1).batch(5, 4), trees(1).batch(5, 4), trees(2).batch(5, 4)];
        assert_eq!((&a.tree, &a.tokens, &a.labels), (&b.tree, &b.tokens, &b.labels));
        assert_ne!((a.tree, a.tokens), (c.tree, c.tokens));
        // The random numbers must stay the same in every version of the crate.
        let leaves = Trees::new(7, 1..=1).batch(2, 8);
        assert_eq!(leaves.tokens.as_i32().unwrap(), [8, 4, 6, 1, 0, 9, 8, 9]);
        let largest = trees(1).largest(3);
        assert_eq!((largest.tree.nodes(), &**largest.tokens.shape()), (17, &[17, 3][..]));
        assert!((0..50).all(|i| trees(1).batch(i, 1).tree.nodes() <= 17));
        // A tree has at least one leaf.
        assert_eq!(Trees::new(0, 0..=0).batch(0, 2).tree, Tree::of_one());
    }
}
