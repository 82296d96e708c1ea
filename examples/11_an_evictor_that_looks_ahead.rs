//! A custom evictor that sees the next commands. The evictor chooses a storage that these commands
//! do not read, or else the storage that they read last.
//!
//! `cargo run --release --example 11_an_evictor_that_looks_ahead`

use remat::evict::{Evictor, Victim, View, Want};
use remat::nn::mlp;
use remat::optim::Optimizer;
use remat::prelude::*;
use remat::{Builder, PolicyKind, Stats};

/// Evicts the storage whose next read is farthest in the future. Among storages without a visible
/// read, evicts the largest.
#[derive(Debug)]
struct FarthestRead;

impl Evictor for FarthestRead {
    fn next(&mut self, want: Want, view: View<'_>) -> Option<Victim> {
        let future = view.graph.future();
        let farthest = view.evictable(want).max_by_key(|&storage| {
            let distance = future.next_read(storage).unwrap_or(usize::MAX);
            (distance, view.graph.storage(storage).bytes)
        });
        farthest.map(Victim::new)
    }
}

/// Trains a few steps. Returns the last loss, and the counters.
fn train(builder: Builder) -> Result<(f32, Stats), Error> {
    let runtime = builder.seed(1).cpu()?;
    let mut net = mlp(&runtime, 64, &[256; 6], 1)?;
    let mut sgd = Optimizer::sgd(0.01, 0.9, 0.0);
    let x = runtime.normal(&[256, 64], 0.0, 1.0)?;
    let target = runtime.normal(&[256, 1], 0.0, 1.0)?;
    let mut last = f32::NAN;
    for _ in 0..4 {
        let tape = Tape::new(&runtime);
        tape.watch(&mut net);
        let loss = (net.forward(&x, Mode::Train)? - &target)?.square()?.mean()?;
        sgd.minimize(tape, &loss, &mut net)?;
        runtime.step()?;
        last = loss.item()?;
    }
    Ok((last, runtime.stats()?))
}

fn main() -> Result<(), Error> {
    let (loss, plenty) = train(Runtime::builder().budget("64MiB"))?;
    let budget = || Runtime::builder().budget(plenty.peak_bytes * 8 / 10);
    let runs = [
        ("lru", budget().policy(PolicyKind::Lru)),
        ("dtr-eq", budget().policy(PolicyKind::DtrEq)),
        ("farthest read", budget().evictor(FarthestRead).look_ahead(1000)),
    ];
    for (name, builder) in runs {
        let (same, stats) = train(builder)?;
        assert_eq!(loss.to_bits(), same.to_bits());
        let again = stats.recompute_cost / stats.base_cost;
        println!("{name:13}: {:3} evictions, {again:.4} of the work done again", stats.evictions);
    }
    Ok(())
}
