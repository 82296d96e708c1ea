use super::{Batch, Draw, Network, Part, Score, Task};
use crate::cli::failure::Failure;
use remat::autograd::Tape;
use remat::data::{TreeBatch, Trees};
use remat::nn::{Module, TreeLstm, TreeLstmSize};
use remat::{Error, Runtime, Tensor};
use std::sync::Arc;

/// Task of computing the values of expressions. An expression is a tree, and each step has a tree
/// of a different shape.
pub struct TreeTask {
    trees: Trees,
}

/// Range of the number of leaves of a tree.
const LEAVES: std::ops::RangeInclusive<usize> = 2..=24;
/// Number of trees in an epoch. The number is arbitrary, because the number of trees is not
/// limited.
const EXAMPLES: usize = 8192;
/// Number of trees in a test.
const TESTS: usize = 1024;

impl TreeTask {
    pub const fn new(seed: u64) -> Self {
        Self { trees: Trees::new(seed, LEAVES) }
    }
}

fn batch(TreeBatch { tree, tokens, labels }: TreeBatch) -> Batch {
    Batch { tree: Some(Arc::new(tree)), ..Batch::new((tokens, labels)) }
}

impl Task for TreeTask {
    fn example(&self) -> &'static str {
        "tree"
    }

    fn examples(&self) -> usize {
        EXAMPLES
    }

    fn tests(&self) -> usize {
        TESTS
    }

    fn network(&self, runtime: &Runtime) -> Result<Box<dyn Network>, Error> {
        let size = TreeLstmSize {
            vocabulary: Trees::VOCABULARY,
            width: 32,
            hidden: 64,
            classes: Trees::CLASSES,
        };
        Ok(Box::new(Reader(TreeLstm::new(runtime, size)?)))
    }

    fn batch(&self, part: &Part<'_>) -> Batch {
        let number = part.draw().number();
        batch(self.trees.batch_from(part.first(), number, part.indices().len()))
    }

    fn test_batch(&self, indices: &[usize]) -> Batch {
        let draw = Draw::Test(indices.first().copied().unwrap_or(0));
        batch(self.trees.batch(draw.number(), indices.len()))
    }

    /// Batch of trees of the largest size and depth, which needs the most memory.
    fn blank(&self, n: usize) -> Result<Batch, Failure> {
        Ok(batch(self.trees.largest(n)))
    }
}

struct Reader(TreeLstm);

impl Reader {
    fn logits(&mut self, runtime: &Runtime, batch: &Batch) -> Result<Tensor, Error> {
        let tree = batch.tree.as_ref().expect("a batch of trees has their shape");
        let tokens = runtime.put(Arc::clone(&batch.inputs))?;
        runtime.label(&tokens, "tokens")?;
        self.0.classify(tree, &tokens)
    }
}

impl Network for Reader {
    fn module(&mut self) -> &mut dyn Module {
        &mut self.0
    }

    fn loss(&mut self, runtime: &Runtime, _tape: &Tape, batch: Batch) -> Result<Tensor, Error> {
        let logits = self.logits(runtime, &batch)?;
        let labels = runtime.put(batch.labels)?;
        runtime.label(&labels, "labels")?;
        logits.cross_entropy(&labels)
    }

    fn score(&mut self, runtime: &Runtime, batch: Batch) -> Result<Score, Error> {
        let logits = self.logits(runtime, &batch)?;
        Ok(Score::of(&runtime.get(&logits)?, &batch.labels))
    }
}
