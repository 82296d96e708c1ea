//! Training that begins with a budget that is too small. The error names a sufficient budget. The
//! training then starts again with this budget, and succeeds.
//!
//! `cargo run --release --example 17_a_budget_that_is_enough`

use remat::ByteSize;
use remat::data::Dataset;
use remat::nn::{ResNet, resnet};
use remat::optim::Optimizer;
use remat::prelude::*;

const STEPS: usize = 10;

/// Trains a small residual network on the digits. Returns the last loss.
fn train(runtime: &Runtime) -> Result<f32, Error> {
    let mut network = resnet(runtime, ResNet::Cifar { n: 2 }, 1, [8, 8], 10)?;
    let mut adam = Optimizer::adamw(1e-3, 0.01);
    let digits = Dataset::digits().train;
    let batch: Vec<usize> = (0..128).collect();
    let mut last = f32::NAN;
    for _ in 0..STEPS {
        let (images, labels) = digits.batch(&batch);
        let (images, labels) = (runtime.put(images)?, runtime.put(labels)?);
        let tape = Tape::new(runtime);
        tape.watch(&mut network);
        let loss = network.forward(&images, Mode::Train)?.cross_entropy(&labels)?;
        drop((images, labels));
        adam.minimize(tape, &loss, &mut network)?;
        last = loss.item()?;
        runtime.step()?;
    }
    Ok(last)
}

fn main() -> Result<(), Error> {
    let mut budget = ByteSize(1 << 20);
    let mut tries = 1;
    let loss = loop {
        let runtime = Runtime::builder().budget(budget.0).cpu()?;
        match train(&runtime) {
            Ok(loss) => break loss,
            Err(Error::OutOfMemory(report)) => {
                println!("{report}\n");
                let Some(passing) = report.passing else { return Err(Error::OutOfMemory(report)) };
                budget = ByteSize(passing.bytes);
            }
            Err(error) => return Err(error),
        }
        tries += 1;
    };
    println!("{STEPS} steps in {budget}, at attempt {tries}: loss {loss:.3}");
    assert!((2..=3).contains(&tries));
    Ok(())
}
