//! Lowers the budget during training, as if another program needed the memory. The bits stay the
//! same.
//!
//! `cargo run --release --example 10_a_budget_that_changes`

use remat::nn::{Linear, Sequential};
use remat::optim::Optimizer;
use remat::prelude::*;

/// Trains a few steps, and calls `before` before each step. Returns the last loss.
fn train(
    runtime: &Runtime,
    mut before: impl FnMut(u32) -> Result<(), Error>,
) -> Result<f32, Error> {
    let mut net = Sequential::new()
        .then("first", Linear::new(runtime, 64, 256)?)
        .then_fn("relu", Tensor::relu)
        .then("second", Linear::new(runtime, 256, 256)?)
        .then_fn("relu2", Tensor::relu)
        .then("out", Linear::new(runtime, 256, 1)?);
    let mut sgd = Optimizer::sgd(0.01, 0.9, 0.0);
    let x = runtime.normal(&[512, 64], 0.0, 1.0)?;
    let target = runtime.normal(&[512, 1], 0.0, 1.0)?;
    let mut last = f32::NAN;
    for step in 0..6 {
        before(step)?;
        let tape = Tape::new(runtime);
        tape.watch(&mut net);
        let y = net.forward(&x, Mode::Train)?;
        let loss = (y - &target)?.square()?.mean()?;
        sgd.minimize(tape, &loss, &mut net)?;
        last = loss.item()?;
        runtime.step()?;
    }
    Ok(last)
}

fn main() -> Result<(), Error> {
    let builder = || Runtime::builder().seed(1);
    let plenty = builder().budget("64MiB").cpu()?;
    let loss = train(&plenty, |_| Ok(()))?;
    let peak = plenty.stats()?.peak_bytes;

    let runtime = builder().budget(peak).cpu()?;
    let tight = peak * 8 / 10;
    let same = train(&runtime, |step| {
        let budget = if (2..4).contains(&step) { tight } else { peak };
        runtime.set_budget(budget)?;
        let stats = runtime.stats()?;
        println!(
            "step {step}: budget {:4} KiB, used {:4} KiB, {:3} evictions so far",
            stats.budget_bytes >> 10,
            stats.used_bytes >> 10,
            stats.evictions
        );
        println!("  {}", runtime.occupancy(64)?);
        Ok(())
    })?;
    println!("loss {loss} with plenty of memory, {same} with a budget that changes");
    assert_eq!(loss.to_bits(), same.to_bits());
    assert!(runtime.stats()?.evictions > 0);

    let error = runtime.set_budget(peak * 2).expect_err("it was opened with less");
    println!("{error}");
    Ok(())
}
