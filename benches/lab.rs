//! Time of the reference sweep of simrd, the DTR paper's simulator: 5 traces x 6 policies x 10
//! budgets.
//!
//! The baseline is simrd in CPython 3.11 on one core: the CPU seconds in
//! `../shared/reference/simrd.jsonl`, without the time to read the traces. The benchmark makes the
//! replays of that sweep on one thread of this machine, with the budgets of simrd. Memory only
//! counts bytes, and recomputed tensors without a handle are kept (`--dead keep`).
//!
//! Without `../shared`, the log in `tests/data` is replayed, without a baseline.
//!
//! `cargo bench --bench lab`

use remat::Dead;
use remat::PolicyKind;
use remat::unstable::lab::{Replay, Trace};
use serde_json::Value;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

/// Names of policies in simrd's results, with the policies of this crate.
const POLICIES: [(&str, PolicyKind); 6] = [
    ("DTR", PolicyKind::Dtr),
    ("DTREqClass", PolicyKind::DtrEq),
    ("DTRLocal", PolicyKind::DtrLocal),
    ("LRU", PolicyKind::Lru),
    ("LargestStorage", PolicyKind::Largest),
    ("MSPS", PolicyKind::Msps),
];

/// Number of rounds. The quickest round counts, because other work on the machine can only increase
/// a time.
const ROUNDS: usize = 5;

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let Ok(text) = std::fs::read_to_string(root.join("../shared/reference/simrd.jsonl")) else {
        println!("there is no ../shared/reference/simrd.jsonl: no baseline");
        let trace =
            Trace::open(root.join("tests/data/small.log")).expect("it is in the repository");
        for (_, policy) in POLICIES {
            let budgets = (3..=10).map(|tenths| 14_516 * tenths);
            let (time, runs) = quickest(&trace, policy, &budgets.collect::<Vec<_>>());
            println!("{policy:10} {runs:8} op runs  {:8.3} ms", time.as_secs_f64() * 1e3);
        }
        return;
    };
    let rows: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("a row of JSON")).collect();
    let start = Instant::now();
    let traces: Vec<Trace> = ["unet", "resnet32", "tv_densenet121", "transformer", "treelstm"]
        .iter()
        .map(|name| root.join(format!("../shared/data/traces/{name}.log.gz")))
        .map(|path| Trace::open(path).unwrap_or_else(|e| panic!("{e}")))
        .collect();
    println!("reading the traces takes {:.0} ms, once", start.elapsed().as_secs_f64() * 1e3);
    println!(
        "{:10} {:>9} {:>12} {:>12} {:>8}",
        "policy", "op runs", "simrd, s", "remat, s", "ratio"
    );
    let mut total = (0.0, Duration::ZERO);
    for (name, policy) in POLICIES {
        let mut time = Duration::ZERO;
        let mut runs = 0;
        let mut simrd = 0.0;
        for trace in &traces {
            let of_trace = rows.iter().filter(|row| {
                row["kind"] == "run" && row["heuristic"] == name && row["model"] == trace.name()
            });
            let mut budgets = Vec::new();
            for row in of_trace {
                simrd += row["cpu_s"].as_f64().expect("seconds");
                budgets.push(row["budget"].as_u64().expect("bytes"));
            }
            let (quickest, count) = quickest(trace, policy, &budgets);
            time += quickest;
            runs += count;
        }
        print_row(&policy.to_string(), runs, simrd, time);
        total = (total.0 + simrd, total.1 + time);
    }
    print_row("all", 0, total.0, total.1);
}

/// Time of one replay at each budget, and the number of ops run.
fn quickest(trace: &Trace, policy: PolicyKind, budgets: &[u64]) -> (Duration, u64) {
    let mut time = Duration::ZERO;
    let mut runs = 0;
    for &budget in budgets {
        let mut replay = Replay::new(policy, budget);
        replay.settings.dead = Dead::Keep;
        let mut best = Duration::MAX;
        for round in 0..ROUNDS {
            let start = Instant::now();
            let outcome = black_box(replay.run(trace.program()).expect("the settings make sense"));
            best = best.min(start.elapsed());
            if round == 0 {
                runs += outcome.stats.ops + outcome.stats.recomputed_ops;
            }
        }
        time += best;
    }
    (time, runs)
}

fn print_row(policy: &str, runs: u64, simrd: f64, time: Duration) {
    let ratio = simrd / time.as_secs_f64();
    println!("{policy:10} {runs:>9} {simrd:>12.1} {:>12.3} {ratio:>8.0}", time.as_secs_f64());
}
