//! What choosing a victim costs, against the number of candidates.
//!
//! ```text
//! source -> t0 -> t1 -> ... -> tn     all held, the arena full: every further op evicts exactly one
//! ```
//!
//! The sim device does no work and every tensor has the same size, so an op costs the same for every
//! policy but for the choice. The clock is in the engine (`search_seconds`); the baseline row is `lru`,
//! whose score is one field. `megengine` promises nothing of its scores, so all are asked for.

use remat::device::sim::Sim;
use remat::engine::{Engine, Settings};
use remat::ops::{Op, Unary};
use remat::{CostModelKind, HostTensor, PolicyKind};
use std::sync::Arc;

const TENSOR: u64 = 4096;
const EVICTIONS: u64 = 2000;
const ROUNDS: usize = 3;

/// Nanoseconds per eviction with `n` candidates.
fn measure(policy: PolicyKind, sqrt_sampling: bool, n: u64) -> f64 {
    let mut settings = Settings::default();
    settings.min_evict_bytes = Some(0);
    let evictor = if sqrt_sampling { policy.build_sampled(1) } else { policy.build(1) };
    let sim = Sim::<Op, _>::cpu((n + 1) * TENSOR);
    let mut engine = Engine::new(sim, settings, evictor, CostModelKind::Bytes.build())
        .expect("the settings make sense");
    let elements = TENSOR as usize / 4;
    let zeros = HostTensor::zeros(remat::DType::F32, [elements]).expect("a small one");
    let mut last = engine.put(Arc::new(zeros));
    let evictions = EVICTIONS.min(20_000_000 / n).max(20);
    for _ in 0..n + evictions {
        last = engine.apply(Unary::Neg.into(), &[last]).expect("one op fits")[0];
    }
    let stats = engine.stats();
    assert!(stats.evictions >= evictions, "{} evictions", stats.evictions);
    1e9 * stats.search_seconds / stats.evictions as f64
}

fn main() {
    let sizes = [100, 1_000, 10_000, 100_000];
    let kind = |name: &str| name.parse::<PolicyKind>().expect("a policy");
    let rows = [
        ("lru (baseline)", kind("lru"), false),
        ("dtr-local", kind("dtr-local"), false),
        ("dtr-eq", kind("dtr-eq"), false),
        ("megengine", kind("megengine"), false),
        ("dtr", kind("dtr"), false),
        ("megengine, sqrt sampling", kind("megengine"), true),
    ];
    print!("{:24}", "ns per eviction");
    sizes.iter().for_each(|n| print!(" {n:>10} candidates"));
    println!();
    for (name, policy, sampling) in rows {
        print!("{name:24}");
        for n in sizes {
            let best =
                (0..ROUNDS).map(|_| measure(policy, sampling, n)).fold(f64::INFINITY, f64::min);
            print!(" {best:>10.0}           ");
        }
        println!();
    }
}
