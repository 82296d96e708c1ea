//! Values go in, ops run, values come out; and nothing of it needs to fit at once.
//!
//! `cargo run --release --example 01_put_apply_get`

use remat::{HostTensor, Ops, Runtime};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Room for three tensors of 4 MiB and a little.
    let runtime = Runtime::builder().budget("13MiB").cpu()?;

    // Eight of them, all still wanted at the end: 32 MiB.
    let x = runtime.put(HostTensor::f32([1024, 1024], vec![1.0; 1 << 20])?)?;
    let mut powers = vec![x];
    for _ in 0..7 {
        let last = powers.last().expect("there is one to begin with");
        powers.push(runtime.affine(last, 2.0, 0.0)?);
    }

    // Reading one that was evicted brings it back: by running its ops again, or the upload.
    for (i, tensor) in powers.iter().enumerate() {
        let value = runtime.get(tensor)?;
        println!("2^{i} = {}", value.as_f32().expect("floats went in")[0]);
    }
    let stats = runtime.stats()?;
    println!(
        "{} evictions, {} ops run again, never more than {} of {} bytes",
        stats.evictions, stats.recomputed_ops, stats.peak_bytes, stats.budget_bytes
    );
    assert!(stats.peak_bytes <= stats.budget_bytes && stats.recomputed_ops > 0);
    Ok(())
}
