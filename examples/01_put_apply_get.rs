//! Uploads values, runs ops, and reads results, with less memory than all tensors need together.
//!
//! `cargo run --release --example 01_put_apply_get`

use remat::prelude::*;

fn main() -> Result<(), Error> {
    // Three tensors of 4 MiB fit in this budget.
    let runtime = Runtime::builder().budget("13MiB").cpu()?;

    // All eight tensors are read at the end: 32 MiB.
    let mut powers = vec![runtime.ones(&[1024, 1024])?];
    for i in 0..7 {
        powers.push((&powers[i] * 2.0)?);
    }

    // Reading an evicted tensor recomputes it.
    for (i, tensor) in powers.iter().enumerate() {
        println!("2^{i} = {}", tensor.to_vec::<f32>()?[0]);
    }
    let stats = runtime.stats()?;
    println!(
        "{} evictions, {} ops run again, never more than {} of {} bytes",
        stats.evictions, stats.recomputed_ops, stats.peak_bytes, stats.budget_bytes
    );
    assert!(stats.peak_bytes <= stats.budget_bytes && stats.recomputed_ops > 0);
    Ok(())
}
