//! Finds a sufficient budget before the first step, and the best settings for this budget, as
//! `remat train` does.
//!
//! `cargo run --release --example 16_tune_a_budget`

use remat::data::Dataset;
use remat::evict::Learn;
use remat::nn::{ResNet, resnet};
use remat::optim::Optimizer;
use remat::prelude::*;
use remat::tune::Tuner;
use remat::{Builder, Plan, PolicyKind};

const STEPS: usize = 10;

/// Makes a small residual network on the digits. Returns a function that does one training step.
fn start(runtime: &Runtime) -> Result<impl FnMut() -> Result<(), Error> + use<>, Error> {
    let runtime = runtime.clone();
    let mut network = resnet(&runtime, ResNet::Cifar { n: 2 }, 1, [8, 8], 10)?;
    let mut sgd = Optimizer::sgd(0.1, 0.9, 5e-4);
    let digits = Dataset::digits().train;
    let batch: Vec<usize> = (0..128).collect();
    Ok(move || {
        let (images, labels) = digits.batch(&batch);
        let (images, labels) = (runtime.put(images)?, runtime.put(labels)?);
        let tape = Tape::new(&runtime);
        tape.watch(&mut network);
        let loss = network.forward(&images, Mode::Train)?.cross_entropy(&labels)?;
        drop((images, labels));
        sgd.minimize(tape, &loss, &mut network)?;
        drop(loss);
        runtime.step()
    })
}

/// Settings of the runtime, except the budget.
fn options() -> Builder {
    Runtime::builder().policy(PolicyKind::Learned(Learn::Portfolio)).plan(Plan::Auto).seed(1)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let tuner = || Tuner::new(options).steps(STEPS);

    let refused = tuner().budget("5%").tune(&start).unwrap_err();
    println!("5%: {refused}\n");

    let tuned = tuner().budget("40%").progress(|at| println!("{at}")).tune(&start)?;
    println!("\n{}", tuned.chosen());
    tuned.warnings().iter().for_each(|warning| println!("{warning}"));

    let runtime = tuned.builder().cpu()?;
    let mut step = start(&runtime)?;
    for _ in 0..STEPS {
        step()?;
    }
    runtime.sync()?;
    let stats = runtime.stats()?;
    println!("took {} bytes, and recomputed {} ops", stats.peak_bytes, stats.recomputed_ops);
    assert!(stats.peak_bytes <= tuned.budget() && stats.recomputed_ops > 0);
    Ok(())
}
