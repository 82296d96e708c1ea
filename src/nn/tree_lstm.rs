use super::{Embedding, Linear, Mode, Module, State, join};
use crate::data::Tree;
use crate::error::Error;
use crate::op::OpError;
use crate::ops::Tensor;
use crate::runtime::Runtime;

/// The child-sum Tree-LSTM of Tai et al. (ACL 2015), a classifier of trees. Each node has a cell,
/// which reads the node's token and the memories of its children.
///
/// ```text
/// i, o, u = ioux x + iouh (sum of h of all children)
/// f of a child = sigmoid(fx x + fh (h of that child))
/// c = sigmoid(i) tanh(u) + sum of f c over all children
/// h = sigmoid(o) tanh(c)
/// ```
///
/// The sequence of ops depends on the shape of the tree. All trees of a batch have one shape, but
/// different tokens.
///
/// ```
/// use remat::data::Trees;
/// use remat::nn::{TreeLstm, TreeLstmSize};
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("1MiB").seed(1).cpu()?;
/// let trees = Trees::new(1, 3..=8);
/// let size = TreeLstmSize { vocabulary: Trees::VOCABULARY, width: 8, hidden: 16, classes: 10 };
/// let mut network = TreeLstm::new(&runtime, size)?;
/// for step in 0..3 {
///     let batch = trees.batch(step, 4);
///     let tokens = runtime.put(batch.tokens)?;
///     let logits = network.classify(&batch.tree, &tokens)?;
///     assert_eq!(logits.shape(), [4, 10]);
/// }
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct TreeLstm {
    embedding: Embedding,
    ioux: Linear,
    iouh: Linear,
    fx: Linear,
    fh: Linear,
    out: Linear,
    hidden: usize,
}

/// Sizes of a [`TreeLstm`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeLstmSize {
    /// Number of different tokens.
    pub vocabulary: usize,
    /// Number of features that represent a token.
    pub width: usize,
    /// Number of units of a cell.
    pub hidden: usize,
    /// Number of classes of trees.
    pub classes: usize,
}

/// Memory of a cell: `h` and `c`, `[n, hidden]` each.
#[derive(Clone)]
struct Cell {
    h: Tensor,
    c: Tensor,
}

impl TreeLstm {
    /// Makes a network with new weights.
    ///
    /// # Errors
    /// [`Error::Op`] if a tensor would have more than `isize::MAX` bytes.
    pub fn new(runtime: &Runtime, size: TreeLstmSize) -> Result<Self, Error> {
        let TreeLstmSize { vocabulary, width, hidden, classes } = size;
        Ok(Self {
            embedding: Embedding::new(runtime, vocabulary, width)?,
            ioux: Linear::new(runtime, width, 3 * hidden)?,
            iouh: Linear::new(runtime, hidden, 3 * hidden)?,
            fx: Linear::new(runtime, width, hidden)?,
            fh: Linear::new(runtime, hidden, hidden)?,
            out: Linear::new(runtime, hidden, classes)?,
            hidden,
        })
    }

    /// Computes logits `[n, classes]` for `n` trees that all have the shape of `tree`, with tokens
    /// `[nodes, n]`.
    ///
    /// ```
    /// use remat::data::Tree;
    /// use remat::nn::{TreeLstm, TreeLstmSize};
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let size = TreeLstmSize { vocabulary: 12, width: 8, hidden: 16, classes: 10 };
    /// let mut network = TreeLstm::new(&runtime, size)?;
    /// // Two trees of one node each.
    /// let tokens = runtime.tensor(&[1, 2], vec![3, 7])?;
    /// assert_eq!(network.classify(&Tree::of_one(), &tokens)?.shape(), [2, 10]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if the tokens do not have one row for each node, or `n` is 0.
    pub fn classify(&mut self, tree: &Tree, tokens: &Tensor) -> Result<Tensor, Error> {
        let (nodes, shape) = (tree.nodes(), *tokens.layout().shape());
        let [rows, n] = *shape else {
            let message = format!("tokens are {}, expected [{nodes}, n]", tokens.layout());
            return Err(OpError::new("tree_lstm", message).into());
        };
        if rows != nodes || n == 0 {
            let message = format!("tokens {rows}x{n}, expected those of trees of {nodes} nodes");
            return Err(OpError::new("tree_lstm", message).into());
        }
        let (hidden, mode) = (self.hidden, Mode::Train);
        let tokens = tokens.split(1, 0)?;
        let mut cells: Vec<Option<Cell>> = vec![None; nodes];
        for node in 0..nodes {
            // Only the parent reads the memory of a cell, so take the memories of the children out.
            let children: Vec<Cell> =
                tree.children(node).iter().filter_map(|&child| cells[child].take()).collect();
            let x = self.embedding.forward(&tokens[node].reshape(&[n])?, mode)?;
            let mut sums = self.ioux.forward(&x, mode)?;
            if let Some(h) = total(children.iter().map(|child| &child.h))? {
                sums = sums.add(&self.iouh.forward(&h, mode)?)?;
            }
            let parts = sums.split(hidden, 1)?;
            let mut c = parts[0].sigmoid()?.mul(&parts[2].tanh()?)?;
            if !children.is_empty() {
                let of_token = self.fx.forward(&x, mode)?;
                for child in &children {
                    let gate = of_token.add(&self.fh.forward(&child.h, mode)?)?.sigmoid()?;
                    c = c.add(&gate.mul(&child.c)?)?;
                }
            }
            let h = parts[1].sigmoid()?.mul(&c.tanh()?)?;
            cells[node] = Some(Cell { h, c });
        }
        let root = cells.pop().flatten().expect("the last node is the root");
        self.out.forward(&root.h, mode)
    }
}

fn total<'a>(mut all: impl Iterator<Item = &'a Tensor>) -> Result<Option<Tensor>, Error> {
    let Some(first) = all.next() else { return Ok(None) };
    all.try_fold(first.clone(), |sum, x| sum.add(x)).map(Some)
}

impl Module for TreeLstm {
    /// Classifies trees of one node each, with tokens `[n]`: the result is `[n, classes]`.
    fn forward(&mut self, x: &Tensor, _mode: Mode) -> Result<Tensor, Error> {
        let n = x.layout().elements();
        self.classify(&Tree::of_one(), &x.reshape(&[1, n])?)
    }

    fn state<'a>(&'a mut self, prefix: &str, found: &mut Vec<(String, State<'a>)>) {
        self.embedding.state(&join(prefix, "embedding"), found);
        for (name, linear) in [
            ("ioux", &mut self.ioux),
            ("iouh", &mut self.iouh),
            ("fx", &mut self.fx),
            ("fh", &mut self.fh),
            ("out", &mut self.out),
        ] {
            linear.state(&join(prefix, name), found);
        }
    }
}
