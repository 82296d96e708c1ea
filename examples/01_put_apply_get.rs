//! Values go in, ops run, values come out. Memory need not hold them all at once.
//!
//! `cargo run --release --example 01_put_apply_get`

use remat::prelude::*;

fn main() -> Result<(), Error> {
    // Three tensors of 4 MiB fit, with a little left.
    let runtime = Runtime::builder().budget("13MiB").cpu()?;

    // Eight tensors are still needed at the end: 32 MiB.
    let mut powers = vec![runtime.ones(&[1024, 1024])?];
    for i in 0..7 {
        powers.push((&powers[i] * 2.0)?);
    }

    // A read of an evicted tensor runs its ops again.
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
