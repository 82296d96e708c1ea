//! The lab against the DTR paper's simulator: the same budgets suffice, and no more is recomputed.
//!
//! `tests/data/small.log` is a log of our own, in the paper's format; what its simulator makes of it is in
//! `small.jsonl`. The paper's own traces are looked for in `../shared`.

use remat::engine::Dead;
use remat::lab::{Grid, Job, Replay, Row, Trace, sweep};
use remat::{ByteSize, PolicyKind};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// What the simulator found for a policy at a budget.
struct Reference {
    policy: PolicyKind,
    budget: u64,
    /// `None` if it ran out of memory, or recomputed more than the step itself.
    slowdown: Option<f64>,
}

impl Reference {
    /// The paper's names, and ours.
    fn new(row: &Value) -> Self {
        let policy = match row["heuristic"].as_str().or(row["policy"].as_str()).unwrap() {
            "DTR" => PolicyKind::Dtr,
            "DTREqClass" => PolicyKind::DtrEq,
            "DTRLocal" => PolicyKind::DtrLocal,
            "LRU" => PolicyKind::Lru,
            "LargestStorage" => PolicyKind::Largest,
            "MSPS" => PolicyKind::Msps,
            name => name.parse().unwrap(),
        };
        let budget = row["budget"].as_u64().or(row["budget_bytes"].as_u64()).unwrap();
        Self { policy, budget, slowdown: row["slowdown"].as_f64() }
    }

    /// How much worse than the simulator is still as good: it does some things in another order.
    fn tolerance(&self) -> f64 {
        match self.policy {
            PolicyKind::Dtr | PolicyKind::DtrEq | PolicyKind::Msps => 0.01,
            _ => 0.03,
        }
    }
}

fn lines(path: &Path) -> Option<Vec<Value>> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

/// As the simulator counts: bytes without places, the dead kept.
fn replay(policy: PolicyKind, budget: u64) -> Replay {
    let mut replay = Replay::new(policy, budget);
    replay.settings.dead = Dead::Keep;
    replay
}

/// Replays a trace at every budget of the reference, and says how it compares.
fn compare(trace: &Trace, peak: u64, cost: f64, reference: &[Reference]) {
    let program = trace.program();
    let unbudgeted = replay(PolicyKind::None, 1).unbudgeted(program).unwrap();
    assert_eq!(unbudgeted.peak_bytes, peak, "{}", trace.name());
    assert_eq!(unbudgeted.cost, cost, "{}", trace.name());
    let jobs: Vec<Job<'_>> = reference
        .iter()
        .map(|r| replay(r.policy, r.budget))
        .map(|replay| Job { trace: trace.name(), program, unbudgeted, replay })
        .collect();
    let rows = sweep(&jobs, 0, |_| {}).unwrap();
    let mut better = 0;
    for (row, reference) in rows.iter().zip(reference) {
        assert!(row.peak_bytes <= row.budget_bytes, "{row:?}");
        let Some(bound) = reference.slowdown else {
            better += u32::from(row.slowdown.is_some());
            continue;
        };
        let slowdown = row.slowdown.unwrap_or_else(|| panic!("{bound} with simrd: {row:?}"));
        assert!(slowdown <= bound + reference.tolerance(), "{bound} with simrd: {row:?}");
        better += u32::from(slowdown < bound - 0.005);
    }
    eprintln!("{}: {} runs, {better} of them better than simrd", trace.name(), rows.len());
}

#[test]
fn a_small_log_takes_no_more_than_in_the_papers_simulator() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let rows = lines(&data.join("small.jsonl")).unwrap();
    let trace = Trace::open(data.join("small.log")).unwrap();
    let reference: Vec<Reference> = rows[1..].iter().map(Reference::new).collect();
    assert_eq!(reference.len(), 54);
    let [peak, cost] = ["peak_bytes", "cost"].map(|key| rows[0][key].as_u64().unwrap());
    compare(&trace, peak, cost as f64, &reference);
}

#[test]
fn the_papers_traces_take_no_more_than_in_its_simulator() {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared");
    let Some(rows) = lines(&shared.join("reference/simrd.jsonl")) else {
        eprintln!("skipped, there is no ../shared/reference/simrd.jsonl");
        return;
    };
    let is = |kind: &'static str| move |row: &&Value| row["kind"] == kind;
    let mut runs = 0;
    for baseline in rows.iter().filter(is("baseline")) {
        let model = baseline["model"].as_str().unwrap();
        let path = shared.join(format!("data/traces/{model}.log.gz"));
        let trace = Trace::open(path).unwrap_or_else(|e| panic!("{e}"));
        let of_model = rows.iter().filter(is("run")).filter(|row| row["model"] == model);
        let reference: Vec<Reference> = of_model.map(Reference::new).collect();
        runs += reference.len();
        let peak = baseline["baseline_memory"].as_u64().unwrap();
        compare(&trace, peak, baseline["baseline_compute"].as_f64().unwrap(), &reference);
    }
    assert_eq!(runs, 300);
}

fn small() -> Trace {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/small.log");
    Trace::open(path).unwrap()
}

fn rows(trace: &Trace, like: &Replay, grid: &Grid, threads: usize) -> Vec<Row> {
    let unbudgeted = like.unbudgeted(trace.program()).unwrap();
    let replays = grid.replays(like, |_| like.settings.min_evict_bytes);
    let job = |replay| Job { trace: trace.name(), program: trace.program(), unbudgeted, replay };
    let jobs: Vec<Job<'_>> = replays.into_iter().map(job).collect();
    sweep(&jobs, threads, |_| {}).unwrap()
}

#[test]
fn rows_do_not_depend_on_the_number_of_threads() {
    let grid = Grid {
        policies: PolicyKind::all().collect(),
        budgets: (3..10).map(|i| i * 14_516).collect(),
        thresholds: vec![None, Some(60_000)],
        dead: vec![Dead::Drop, Dead::Keep],
        seeds: vec![0, 1],
    };
    let like = Replay::new(PolicyKind::None, 1);
    let timeless = |rows: Vec<Row>| {
        let still = |row| Row { search_seconds: 0.0, seconds: 0.0, ..row };
        rows.into_iter().map(still).collect::<Vec<_>>()
    };
    let one = timeless(rows(&small(), &like, &grid, 1));
    // The lowest budget is below the threshold, so there is one row less for it.
    let below = (3..10).filter(|i| i * 14_516 < 60_000).count();
    assert_eq!(one.len(), 8 * 2 * 2 * (7 + 7 - below));
    assert_eq!(one, timeless(rows(&small(), &like, &grid, 3)));
}

#[test]
fn every_ablation_gets_through_with_memory_and_keeps_to_its_budget() {
    let trace = small();
    let like = replay(PolicyKind::None, 1);
    let grid = Grid {
        policies: PolicyKind::ablations(),
        budgets: vec![130_644, 145_160],
        thresholds: vec![None],
        dead: vec![Dead::Drop],
        seeds: vec![0],
    };
    for row in rows(&trace, &like, &grid, 0) {
        assert!(row.peak_bytes <= row.budget_bytes, "{row:?}");
        let slowdown = row.slowdown.unwrap_or_else(|| panic!("{row:?}"));
        assert!(row.budget_ratio < 1.0 || slowdown < 1.001, "{row:?}");
    }
}

#[test]
fn in_an_arena_holes_count() {
    let trace = small();
    let mut like = replay(PolicyKind::DtrEq, 1);
    let counted = like.unbudgeted(trace.program()).unwrap().peak_bytes;
    like.settings.placement = remat::Placement::Arena;
    like.settings.granularity = 256;
    let placed = like.unbudgeted(trace.program()).unwrap().peak_bytes;
    assert!(placed > counted && placed < counted + 256 * 94, "rounded up to granules");
    like.settings.budget = placed / 2;
    let outcome = like.run(trace.program()).unwrap();
    assert!(outcome.slowdown().is_some() && outcome.stats.evictions > 0);
    assert!(outcome.stats.compactions > 0, "{:?}", outcome.stats);
}

#[test]
fn memory_over_time_ends_where_the_run_does() {
    let trace = small();
    let replay = replay(PolicyKind::Dtr, 72_580);
    let (outcome, timeline) = replay.run_with_timeline(trace.program(), "small").unwrap();
    let most = timeline.samples.iter().map(|s| s.used).max().unwrap();
    assert!(most <= outcome.stats.peak_bytes && most > 60_000, "{}", ByteSize(most));
    let regenerated: u64 = timeline.samples.iter().map(|s| s.regenerated).sum();
    assert_eq!(regenerated, outcome.stats.recomputed_bytes);
    assert!(regenerated > 0 && timeline.samples.iter().any(|s| s.evicted > 0));
    let svg = remat::lab::plot::memory(&timeline).unwrap();
    assert!(svg.contains("budget"));
}
