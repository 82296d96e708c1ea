//! A custom policy scores the candidates. The candidate with the lowest score is evicted.
//!
//! `cargo run --release --example 05_your_own_policy`

use remat::PolicyKind;
use remat::evict::{Policy, View};
use remat::prelude::*;
use remat::unstable::graph::StorageKey;

/// Evicts the storage with the least recompute cost per byte, however long ago it was used.
#[derive(Debug)]
struct CheapestBytes;

impl Policy for CheapestBytes {
    fn score(&mut self, candidate: StorageKey, view: View<'_>) -> f64 {
        view.graph.own_cost(candidate) / view.mebibytes(candidate)
    }
}

/// Makes matrix products (expensive) and scalings (cheap), and keeps them all. Returns the
/// recomputed share of the work.
fn work(runtime: &Runtime) -> Result<f64, Error> {
    let mut x = runtime.tensor(&[256, 256], vec![1.0 / 256.0; 1 << 16])?;
    let mut kept = Vec::new();
    for _ in 0..16 {
        let product = x.matmul(&x)?;
        x = (&product * 1.0)?;
        kept.extend([product, x.clone()]);
    }
    for tensor in kept.iter().rev() {
        tensor.to_host()?;
    }
    let stats = runtime.stats()?;
    Ok(stats.recompute_cost / stats.base_cost)
}

fn main() -> Result<(), Error> {
    let builder = || Runtime::builder().budget("5MiB");
    println!(
        "cheapest bytes: {:.3} of the work done again",
        work(&builder().policy(CheapestBytes).cpu()?)?
    );
    for policy in [PolicyKind::DtrEq, PolicyKind::Lru, PolicyKind::Random] {
        println!(
            "{policy:14}: {:.3} of the work done again",
            work(&builder().policy(policy).cpu()?)?
        );
    }
    Ok(())
}
