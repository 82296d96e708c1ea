//! A budget is a hard limit, and an eviction threshold is a softer limit below it. With a
//! threshold, memory is freed before each op, and not only when an allocation does not fit. A run
//! with a threshold recomputes more than a run without.
//!
//! `cargo run --release --example 03_eviction_threshold`

use remat::Stats;
use remat::prelude::*;

/// Makes sixty-four tensors of 1 MiB, each from the previous tensor, and keeps them all.
fn work(runtime: &Runtime) -> Result<Stats, Error> {
    let mut kept = vec![runtime.tensor(&[1 << 18], vec![0.5; 1 << 18])?];
    for i in 0..63 {
        kept.push((&kept[i] + 1.0)?);
    }
    for (i, tensor) in kept.iter().enumerate().rev() {
        assert_eq!(tensor.to_vec::<f32>()?[7], 0.5 + i as f32);
    }
    runtime.stats()
}

fn main() -> Result<(), Error> {
    println!("{:>10} {:>12} {:>10} {:>10}", "threshold", "peak bytes", "evictions", "run again");
    for threshold in ["48MiB", "32MiB", "16MiB", "8MiB"] {
        let runtime = Runtime::builder().budget("48MiB").eviction_threshold(threshold).cpu()?;
        let stats = work(&runtime)?;
        println!(
            "{threshold:>10} {:>12} {:>10} {:>10}",
            stats.peak_bytes, stats.evictions, stats.recomputed_ops
        );
    }
    Ok(())
}
