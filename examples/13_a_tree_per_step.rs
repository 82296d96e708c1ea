//! A network that differs in each step. A Tree-LSTM learns the values of nested minima and maxima,
//! such as `max(3, min(7, 5), 1)`, with a random tree for each batch. The training runs in half of
//! its memory, with the same bits.
//!
//! `cargo run --release --example 13_a_tree_per_step`

use remat::data::Trees;
use remat::nn::{TreeLstm, TreeLstmSize};
use remat::optim::Optimizer;
use remat::prelude::*;

const STEPS: u64 = 300;

/// Trains, and returns two mean losses: over the first 50 steps, and over the last 50 steps.
fn train(runtime: &Runtime, tells: bool) -> Result<[f32; 2], Error> {
    let trees = Trees::new(1, 2..=12);
    let size = TreeLstmSize {
        vocabulary: Trees::VOCABULARY,
        width: 16,
        hidden: 32,
        classes: Trees::CLASSES,
    };
    let mut network = TreeLstm::new(runtime, size)?;
    let mut sgd = Optimizer::sgd(0.1, 0.9, 0.0);
    let mut losses = Vec::new();
    for step in 0..STEPS {
        let batch = trees.batch(step, 64);
        let (tokens, labels) = (runtime.put(batch.tokens)?, runtime.put(batch.labels)?);
        let tape = Tape::new(runtime);
        tape.watch(&mut network);
        // `classify` walks over the tree in an ordinary loop. No graph is compiled, so steps may
        // differ.
        let loss = network.classify(&batch.tree, &tokens)?.cross_entropy(&labels)?;
        drop((tokens, labels));
        sgd.minimize(tape, &loss, &mut network)?;
        runtime.step()?;
        losses.push(loss.item()?);
        if tells && (step < 5 || (step + 1) % 100 == 0) {
            println!(
                "step {:3}: {:2} nodes, loss {:.3}",
                step + 1,
                batch.tree.nodes(),
                losses[losses.len() - 1]
            );
        }
    }
    let mean = |of: &[f32]| of.iter().sum::<f32>() / of.len() as f32;
    Ok([mean(&losses[..50]), mean(&losses[losses.len() - 50..])])
}

fn main() -> Result<(), Error> {
    let plenty = Runtime::builder().seed(1).cpu()?;
    let expected = train(&plenty, true)?;
    let peak = plenty.stats()?.peak_bytes;
    println!("mean loss {:.3}, then {:.3}, in {peak} bytes", expected[0], expected[1]);
    assert!(expected[1] < expected[0]);

    let runtime = Runtime::builder().seed(1).budget(peak / 2).cpu()?;
    let found = train(&runtime, false)?;
    let stats = runtime.stats()?;
    println!("the same in {} bytes, {} evictions", stats.peak_bytes, stats.evictions);
    assert_eq!(found.map(f32::to_bits), expected.map(f32::to_bits));
    assert!(stats.peak_bytes <= peak / 2 && stats.evictions > 0);
    Ok(())
}
