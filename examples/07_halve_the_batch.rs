//! Begins with a batch that is far too large, and halves it until a step fits in the budget. A step
//! that runs out of memory does not change parameters, velocities and running statistics.
//!
//! `cargo run --release --example 07_halve_the_batch`

use remat::data::{Batches, Dataset};
use remat::nn::{ResNet, Sequential, resnet};
use remat::optim::Optimizer;
use remat::prelude::*;

fn main() -> Result<(), Error> {
    let data = Dataset::digits();
    let [channels, height, width] = data.train.shape;
    let runtime = Runtime::builder().budget("3MiB").cpu()?;
    let kind = ResNet::Cifar { n: 1 };
    let mut network = resnet(&runtime, kind, channels, [height, width], data.train.classes)?;
    let mut sgd = Optimizer::sgd(0.1, 0.9, 0.0005);
    // A step makes either all updates or none.
    sgd.all_or_none = true;

    let mut batch = 1024;
    let mut batches = Batches::new(data.train.len(), batch, 0);
    let mut steps = 0;
    while steps < 20 {
        let (images, labels) = data.train.batch(batches.next_batch());
        match step(&runtime, &mut network, &mut sgd, images, labels) {
            Ok(loss) => {
                steps += 1;
                println!("step {steps} with a batch of {batch}: loss {loss:.3}");
            }
            Err(Error::OutOfMemory(report)) => {
                println!("a batch of {batch} does not fit: {} ran out of memory", report.op);
                batch /= 2;
                if batch == 0 {
                    return Err(Error::OutOfMemory(report));
                }
                batches = Batches::new(data.train.len(), batch, 0);
            }
            Err(error) => return Err(error),
        }
    }
    let stats = runtime.stats()?;
    assert!(batch < 1024 && stats.peak_bytes <= stats.budget_bytes);
    Ok(())
}

/// Runs a step and returns the loss. Reading the loss reports any failure of the step.
fn step(
    runtime: &Runtime,
    network: &mut Sequential,
    sgd: &mut Optimizer,
    images: HostTensor,
    labels: HostTensor,
) -> Result<f32, Error> {
    let tape = Tape::new(runtime);
    tape.watch(network);
    let x = runtime.put(images)?;
    let labels = runtime.put(labels)?;
    let logits = network.forward(&x, Mode::Train)?;
    let loss = logits.cross_entropy(&labels)?;
    drop((x, labels, logits));
    sgd.minimize(tape, &loss, network)?;
    let loss = loss.item()?;
    runtime.step()?;
    Ok(loss)
}
