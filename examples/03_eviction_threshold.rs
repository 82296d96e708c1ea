//! A budget is a wall; an eviction threshold is a line in front of it. With one, memory is freed before
//! each op instead of when an allocation fails, at the price of more recomputing.
//!
//! `cargo run --release --example 03_eviction_threshold`

use remat::{HostTensor, Ops, Runtime, Stats, Tensor};

/// Sixty-four tensors of 1 MiB, each made from the one before, all kept.
fn work(runtime: &Runtime) -> Result<Stats, Box<dyn std::error::Error>> {
    let mut kept: Vec<Tensor> = vec![runtime.put(HostTensor::f32([1 << 18], vec![0.5; 1 << 18])?)?];
    for i in 0..63 {
        kept.push(runtime.affine(&kept[i], 1.0, 1.0)?);
    }
    for (i, tensor) in kept.iter().enumerate().rev() {
        assert_eq!(runtime.get(tensor)?.as_f32().expect("floats went in")[7], 0.5 + i as f32);
    }
    Ok(runtime.stats()?)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
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
