//! Time to choose a storage to evict, by the number of candidates.
//!
//! ```text
//! source -> t0 -> t1 -> ... -> tn     all held, the arena full: every further op evicts exactly one
//! ```
//!
//! The sim device does no work, and all tensors have the same size. Policies therefore differ only
//! in the time of the choice.
//!
//! The engine measures the time (`search_seconds`). The baseline row is `lru`, whose score is a
//! single field. `megengine` has no bounds for its scores, so all its scores are computed.
//!
//! With `--features lab`, the benchmark also measures whole steps, which the policy `learned`
//! predicts. The steps are chains with large evicted neighbourhoods, and the traces of the DTR
//! paper if they are in `../shared`. Budgets are 20 % to 90 %.

use remat::device::sim::Sim;
use remat::ops::Op;
use remat::unstable::engine::{Engine, Settings};
use remat::unstable::ops::Unary;
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
    #[cfg(feature = "lab")]
    steps::run();
}

/// Measurement of whole steps.
#[cfg(feature = "lab")]
mod steps {
    use super::ROUNDS;
    use remat::Dead;
    use remat::op::Outputs;
    use remat::unstable::lab::{Replay, Trace};
    use remat::unstable::program::{Command, RecordedOp, RecordedProgram, RecordedValue};
    use remat::{Layout, PolicyKind};
    use std::path::Path;
    use std::time::{Duration, Instant};

    /// Minimum total time of the rounds of a budget. Short programs repeat until the processor is
    /// warm.
    const LEAST_TIME: Duration = Duration::from_millis(250);

    const POLICIES: [&str; 4] = ["dtr", "dtr-eq", "ancestors", "learned"];

    /// A forward pass through `layers` layers, and a backward pass that reads each output again.
    fn chain(layers: usize) -> RecordedProgram {
        let mut program = RecordedProgram::default();
        let made = "a program that makes sense";
        let mut values = vec![program.put(RecordedValue::constant(4096)).expect(made)];
        let out = || Outputs::fresh([Layout::raw(4096)]);
        for _ in 0..layers {
            let last = values[values.len() - 1];
            values
                .push(program.apply(RecordedOp::new("forward", 1.0), &[last], out()).expect(made));
        }
        let mut gradient = values[values.len() - 1];
        while let Some(value) = values.pop().filter(|_| !values.is_empty()) {
            let op = RecordedOp::new("backward", 1.0);
            let next = program.apply(op, &[gradient, value], out()).expect(made);
            if gradient != value {
                program.push(Command::Del(gradient)).expect(made);
            }
            program.push(Command::Del(value)).expect(made);
            gradient = next;
        }
        program.push(Command::Get(gradient)).expect(made);
        program
    }

    /// Nanoseconds per eviction over all sufficient budgets, and the number of evictions.
    fn measure(policy: PolicyKind, program: &RecordedProgram) -> (f64, u64) {
        let full = Replay::new(policy, u64::MAX).unbudgeted(program).expect("it runs").full_budget;
        let (mut seconds, mut evictions) = (0.0, 0);
        for tenths in 2..10 {
            let mut replay = Replay::new(policy, full * tenths / 10);
            replay.settings.dead = Dead::Drop;
            let run = || replay.run(program).expect("the settings make sense").stats;
            let start = Instant::now();
            let mut least = run();
            for round in 1.. {
                if round >= ROUNDS && start.elapsed() >= LEAST_TIME {
                    break;
                }
                let next = run();
                if next.search_seconds < least.search_seconds {
                    least = next;
                }
            }
            evictions += least.evictions;
            seconds += least.search_seconds;
        }
        (1e9 * seconds / evictions.max(1) as f64, evictions)
    }

    pub fn run() {
        let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/traces");
        let mut programs: Vec<(String, RecordedProgram)> =
            [100, 1_000, 5_000].map(|layers| (format!("chain of {layers}"), chain(layers))).into();
        for name in ["resnet32", "transformer", "treelstm", "tv_densenet121", "unet"] {
            if let Ok(trace) = Trace::open(shared.join(format!("{name}.log.gz"))) {
                programs.push((name.to_owned(), trace.program().clone()));
            }
        }
        println!(
            "\n{:16} {}",
            "ns per eviction",
            POLICIES.map(|name| format!("{name:>20}")).concat()
        );
        for (name, program) in &programs {
            print!("{name:16}");
            for policy in POLICIES {
                let (each, evictions) = measure(policy.parse().expect("a policy"), program);
                print!("{:>20}", format!("{each:.0} of {evictions}"));
            }
            println!();
        }
    }
}
