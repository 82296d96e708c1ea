//! Several ranks train one network under MPI, each on its own part of every batch.
//!
//! ```text
//! cargo build --release --features mpi --example 18_several_ranks
//! mpirun -n 2 target/release/examples/18_several_ranks 272KiB
//! ```
//!
//! The argument is the budget of a rank. Rank 0 prints the loss. At the end, each rank prints a
//! hash of the parameters, which is the same on all ranks.

use remat::data::{Batches, Dataset};
use remat::nn::{mlp, parameters};
use remat::optim::Optimizer;
use remat::prelude::*;
use remat::unstable::collective::{FabricError, Job, Ranks};
use std::hash::{DefaultHasher, Hasher as _};

fn main() -> Result<(), FabricError> {
    Job::run(Job::PATIENCE, train)
}

fn train(job: &Job) -> Result<(), Error> {
    let budget = std::env::args().nth(1).unwrap_or_else(|| "1MiB".to_owned());
    let ranks = Ranks::new(job.fabric());
    let (rank, size) = (ranks.rank(), ranks.size());
    // All ranks have the same seed, and therefore the same initial parameters.
    let runtime = Runtime::builder().budget(budget).threads(1).seed(1).cpu()?;
    let mut network = mlp(&runtime, 64, &[128, 64], 10)?;
    let mut sgd = Optimizer::sgd(0.1, 0.9, 0.0).distributed(&ranks);
    let images = Dataset::digits().train;
    let mut batches = Batches::new(images.len(), 64 * size, 1);
    for step in 1..=20 {
        // Each rank takes 64 of the images of a batch.
        let batch = batches.next_batch();
        let (x, labels) = images.batch(&batch[64 * rank..64 * (rank + 1)]);
        let (x, labels) = (runtime.put(x)?, runtime.put(labels)?);
        let tape = Tape::new(&runtime);
        tape.watch(&mut network);
        let loss = network.forward(&x, Mode::Train)?.cross_entropy(&labels)?;
        sgd.minimize(tape, &(&loss / size as f32)?, &mut network)?;
        runtime.step()?;
        let loss = loss.item()?;
        if rank == 0 && step % 5 == 0 {
            println!("step {step}: loss {loss:.4} on {size} ranks");
        }
    }
    let mut hash = DefaultHasher::new();
    for (_, parameter) in parameters(&mut network) {
        parameter.to_vec::<f32>()?.iter().for_each(|x| hash.write_u32(x.to_bits()));
    }
    let stats = runtime.stats()?;
    println!(
        "rank {rank}: parameters {:016x}, peak {}, {} ops recomputed",
        hash.finish(),
        remat::ByteSize(stats.peak_bytes),
        stats.recomputed_ops
    );
    Ok(())
}
