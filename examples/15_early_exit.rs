//! A network that chooses its depth at run time. After each block, the network measures the
//! confidence of its prediction, and stops once the confidence is high enough. A precompiled graph
//! cannot make this decision in the middle of the forward pass.
//!
//! `cargo run --release --example 15_early_exit`

use remat::data::{Batches, Dataset};
use remat::nn::{Linear, State, join};
use remat::optim::Optimizer;
use remat::prelude::*;

const WIDTH: usize = 64;
const BLOCKS: usize = 12;

/// Blocks; the network may stop after any block.
struct EarlyExit {
    first: Linear,
    blocks: Vec<[Linear; 2]>,
    out: Linear,
    /// Number of blocks in the last forward pass.
    depth: usize,
}

impl EarlyExit {
    fn new(runtime: &Runtime) -> Result<Self, Error> {
        let block =
            |_| Ok([Linear::new(runtime, WIDTH, WIDTH)?, Linear::new(runtime, WIDTH, WIDTH)?]);
        Ok(Self {
            first: Linear::new(runtime, 64, WIDTH)?,
            blocks: (0..BLOCKS).map(block).collect::<Result<_, Error>>()?,
            out: Linear::new(runtime, WIDTH, 10)?,
            depth: 0,
        })
    }
}

impl Module for EarlyExit {
    fn forward(&mut self, x: &Tensor, mode: Mode) -> Result<Tensor, Error> {
        let mut y = self.first.forward(&x.flatten()?, mode)?;
        for (depth, [up, down]) in self.blocks.iter_mut().enumerate() {
            let change = down.forward(&up.forward(&y, mode)?.relu()?, mode)?;
            y = y.add(&change)?;
            let logits = self.out.forward(&y.relu()?, mode)?;
            // Mean probability of the predicted classes.
            let sure = logits.detach().softmax()?.max_along(&[1], false)?.mean()?.item()?;
            self.depth = depth + 1;
            if sure > 0.9 {
                return Ok(logits);
            }
        }
        self.out.forward(&y.relu()?, mode)
    }

    fn state<'a>(&'a mut self, prefix: &str, found: &mut Vec<(String, State<'a>)>) {
        self.first.state(&join(prefix, "first"), found);
        for (i, [up, down]) in self.blocks.iter_mut().enumerate() {
            up.state(&join(prefix, format!("blocks.{i}.up")), found);
            down.state(&join(prefix, format!("blocks.{i}.down")), found);
        }
        self.out.state(&join(prefix, "out"), found);
    }
}

/// Trains, and returns the depth of each step and the last loss.
fn train(runtime: &Runtime) -> Result<(Vec<usize>, f32), Error> {
    let digits = Dataset::digits().train;
    let mut network = EarlyExit::new(runtime)?;
    let mut sgd = Optimizer::sgd(0.02, 0.9, 0.0);
    let mut batches = Batches::new(digits.len(), 256, 1);
    let (mut depths, mut last) = (Vec::new(), f32::NAN);
    for _ in 0..60 {
        let (images, labels) = digits.batch(batches.next_batch());
        let (images, labels) = (runtime.put(images)?, runtime.put(labels)?);
        let tape = Tape::new(runtime);
        tape.watch(&mut network);
        let loss = network.forward(&images, Mode::Train)?.cross_entropy(&labels)?;
        drop((images, labels));
        sgd.minimize(tape, &loss, &mut network)?;
        runtime.step()?;
        last = loss.item()?;
        depths.push(network.depth);
    }
    Ok((depths, last))
}

fn main() -> Result<(), Error> {
    let plenty = Runtime::builder().seed(1).cpu()?;
    let (depths, loss) = train(&plenty)?;
    let peak = plenty.stats()?.peak_bytes;
    println!("blocks of each step: {depths:?}");
    println!("last loss {loss:.3}, {peak} bytes");
    let budget = peak / 10 * 7;

    let runtime = Runtime::builder().seed(1).budget(budget).cpu()?;
    let (again, same) = train(&runtime)?;
    let stats = runtime.stats()?;
    println!("the same in {} bytes, {} evictions", stats.peak_bytes, stats.evictions);
    assert_eq!((again, same.to_bits()), (depths.clone(), loss.to_bits()));
    assert!(stats.peak_bytes <= budget && stats.evictions > 0);
    assert!(depths[0] == BLOCKS && depths[depths.len() - 1] < BLOCKS);
    Ok(())
}
