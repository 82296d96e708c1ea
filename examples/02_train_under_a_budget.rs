//! Ordinary training loop in half of the memory that it needs without a budget. The result has the
//! same bits.
//!
//! `cargo run --release --example 02_train_under_a_budget`

use remat::Stats;
use remat::data::{Batches, Dataset};
use remat::nn::{ResNet, resnet};
use remat::optim::Optimizer;
use remat::prelude::*;

/// Trains a small residual network on the digits for ten steps. Returns the last loss.
fn train(runtime: &Runtime) -> Result<f32, Error> {
    let digits = Dataset::digits().train;
    let mut network = resnet(runtime, ResNet::Cifar { n: 2 }, 1, [8, 8], 10)?;
    let mut sgd = Optimizer::sgd(0.1, 0.9, 5e-4);
    let mut batches = Batches::new(digits.len(), 128, 1);
    let mut last = f32::NAN;
    for _ in 0..10 {
        let (images, labels) = digits.batch(batches.next_batch());
        let (images, labels) = (runtime.put(images)?, runtime.put(labels)?);
        let tape = Tape::new(runtime);
        tape.watch(&mut network);
        let logits = network.forward(&images, Mode::Train)?;
        let loss = logits.cross_entropy(&labels)?;
        // The tape holds the values that gradients read. Drop all other values.
        drop((images, labels, logits));
        sgd.minimize(tape, &loss, &mut network)?;
        runtime.step()?;
        last = loss.item()?;
    }
    Ok(last)
}

fn main() -> Result<(), Error> {
    let plenty = Runtime::builder().seed(1).cpu()?;
    let expected = train(&plenty)?;
    let Stats { peak_bytes: peak, .. } = plenty.stats()?;
    println!("without a budget: loss {expected}, {peak} bytes");

    let runtime = Runtime::builder().seed(1).budget(peak / 2).cpu()?;
    let loss = train(&runtime)?;
    let stats = runtime.stats()?;
    println!("with half of it:  loss {loss}, {} bytes, {stats:?}", stats.peak_bytes);
    assert_eq!(loss.to_bits(), expected.to_bits());
    assert!(stats.peak_bytes <= peak / 2 && stats.evictions > 0);
    Ok(())
}
