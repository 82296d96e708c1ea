//! The lab compared with simrd, the DTR paper's simulator: the same budgets suffice, and no more is
//! recomputed.
//!
//! `tests/data/small.log` is a small log in the paper's format that was made for these tests, and
//! `small.jsonl` has simrd's results for it. If `../shared` has the paper's own traces, the tests
//! use them, too.

use crate::common::custom::Clip;
use crate::common::training::{Model, Shared, record};
use remat::Dead;
use remat::autograd::Tape;
use remat::nn::ResNet;
use remat::op::Outputs;
use remat::trace::JsonLines;
use remat::unstable::lab::{CostUnit, Costs, Grid, Job, MemoryKind, Replay, Row, Trace, sweep};
use remat::unstable::program::{
    Apply, Command, Consumed, RecordedCommand, RecordedOp, RecordedProgram, RecordedValue, TensorId,
};
use remat::{ByteSize, CostModelKind, Dims, Layout, PolicyKind, RecomputeLimit, Runtime};
use remat_rng::SplitMix64;
use serde_json::Value;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Result of simrd for a policy at a budget.
struct Reference {
    policy: PolicyKind,
    budget: u64,
    /// `None` if simrd ran out of memory, or recomputed more than the work of the step.
    slowdown: Option<f64>,
}

impl Reference {
    /// Reads a row that names the policy in the paper's way or in ours.
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

    /// Allowed difference to simrd's slowdown. Differences arise because simrd restores and drops
    /// tensors in another order.
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

/// Replay that counts as simrd does: bytes without addresses, and unheld recomputed tensors kept.
fn replay(policy: PolicyKind, budget: u64) -> Replay {
    let mut replay = Replay::new(policy, budget);
    replay.settings.dead = Dead::Keep;
    replay
}

/// Replays a trace at every budget of the reference. Fails if a run is slower than simrd's, and
/// prints how many are faster.
fn compare(trace: &Trace, peak: u64, cost: f64, reference: &[Reference]) {
    let program = trace.program();
    let unbudgeted = replay(PolicyKind::None, 1).unbudgeted(program).unwrap();
    assert_eq!(unbudgeted.peak_bytes, peak, "{}", trace.name());
    assert_eq!(unbudgeted.cost, cost, "{}", trace.name());
    let jobs: Vec<Job<'_>> = reference
        .iter()
        .map(|r| replay(r.policy, r.budget))
        .map(|replay| Job {
            trace: trace.name(),
            program,
            unbudgeted,
            replay,
            least_slowdown: None,
        })
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
    let replays = grid.replays(like);
    let job = |replay| Job {
        trace: trace.name(),
        program: trace.program(),
        unbudgeted,
        replay,
        least_slowdown: None,
    };
    let jobs: Vec<Job<'_>> = replays.into_iter().map(job).collect();
    sweep(&jobs, threads, |_| {}).unwrap()
}

#[test]
fn rows_do_not_depend_on_the_number_of_threads() {
    let grid = Grid {
        policies: PolicyKind::all().collect(),
        budgets: (3..10).map(|i| i * 14_516).collect(),
        thresholds: vec![None, Some(60_000)],
        dead: vec![Dead::Linger, Dead::Drop, Dead::Keep],
        seeds: vec![0, 1],
    };
    let like = Replay::new(PolicyKind::None, 1);
    let timeless = |rows: Vec<Row>| {
        let still = |row| Row { search_seconds: 0.0, seconds: 0.0, ..row };
        rows.into_iter().map(still).collect::<Vec<_>>()
    };
    let one = timeless(rows(&small(), &like, &grid, 1));
    // The eviction threshold is above the lowest budget, which therefore has no row with it.
    let below = (3..10).filter(|i| i * 14_516 < 60_000).count();
    assert_eq!(one.len(), PolicyKind::all().count() * 3 * 2 * (7 + 7 - below));
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
    like.memory = MemoryKind::Arena;
    let placed = like.unbudgeted(trace.program()).unwrap().peak_bytes;
    assert!(placed > counted && placed < counted + 256 * 94, "rounded up to granules");
    like.budget = placed / 2;
    let outcome = like.run(trace.program()).unwrap();
    assert!(outcome.slowdown().is_some() && outcome.stats.evictions > 0);
    assert!(outcome.stats.compactions > 0, "{:?}", outcome.stats);
}

/// The small log, and new recordings of training.
fn traces() -> Vec<Trace> {
    let builder = || Runtime::builder().budget("8GiB");
    let recording = |name: &str, model, batch, steps| {
        Trace::read(&*record(model, batch, steps, builder()), name).unwrap()
    };
    let cifar = |n| Model::ResNet(ResNet::Cifar { n });
    let mut traces = vec![
        small(),
        small().repeat_step(3).unwrap(),
        recording("mlp", Model::Mlp, 32, 2),
        recording("mlp 1", Model::Mlp, 1, 3),
        recording("cifar 1", cifar(1), 7, 2),
        recording("cifar 3", cifar(3), 32, 1),
        recording("r18", Model::ResNet(ResNet::R18), 4, 2),
        recording("r50", Model::ResNet(ResNet::R50), 2, 1),
    ];
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/traces");
    match std::fs::read_dir(&shared) {
        Ok(files) => traces.extend(files.map(|file| Trace::open(file.unwrap().path()).unwrap())),
        Err(_) => eprintln!("the paper's logs are left out: there is no {}", shared.display()),
    }
    traces
}

fn arenas(replay: &Replay) -> [Replay; 2] {
    let mut placed = replay.clone();
    placed.memory = MemoryKind::Arena;
    [replay.clone(), placed]
}

/// Number of evictions that the program itself requests.
fn wishes(program: &RecordedProgram) -> u64 {
    program.commands().iter().filter(|c| matches!(c, Command::Drop(_))).count() as u64
}

fn evicts_nothing(replay: &Replay, program: &RecordedProgram, what: &str) {
    let outcome = replay.run(program).unwrap();
    assert!(outcome.stats.evictions <= wishes(program), "{what}: {:?}", outcome.stats);
    if wishes(program) == 0 {
        assert_eq!(outcome.slowdown(), Some(1.0), "{what}");
    }
}

#[test]
fn at_100_percent_nothing_is_evicted_whatever_the_policy() {
    for trace in traces() {
        let program = trace.program();
        for mut replay in arenas(&Replay::new(PolicyKind::None, 1)) {
            let unbudgeted = replay.unbudgeted(program).unwrap();
            assert!(unbudgeted.full_budget >= unbudgeted.peak_bytes, "{unbudgeted:?}");
            // Holes in the arena may cost at most 5 %.
            assert!(unbudgeted.full_budget <= unbudgeted.peak_bytes * 21 / 20, "{unbudgeted:?}");
            replay.budget = unbudgeted.full_budget;
            for policy in PolicyKind::all().chain([PolicyKind::None]) {
                for dead in [Dead::Linger, Dead::Drop, Dead::Keep] {
                    replay.policy = policy;
                    replay.settings.dead = dead;
                    let memory = replay.memory;
                    let what = format!("{} by {policy}, {dead:?}, {memory:?}", trace.name());
                    evicts_nothing(&replay, program, &what);
                }
            }
            // The program's own defaults in an arena, with a threshold that never acts.
            replay.policy = PolicyKind::DtrEq;
            replay.settings.min_evict_bytes = None;
            replay.settings.eviction_threshold = Some(unbudgeted.full_budget);
            evicts_nothing(&replay, program, trace.name());
            replay.sqrt_sampling = true;
            evicts_nothing(&replay, program, trace.name());
        }
    }
}

#[test]
fn just_above_100_percent_nothing_is_evicted_either_and_just_below_something_is() {
    for trace in traces() {
        let program = trace.program();
        for mut replay in arenas(&Replay::new(PolicyKind::DtrEq, 1)) {
            let full = replay.unbudgeted(program).unwrap().full_budget;
            let above = [1, 3, 8, 11, 17, 40, 70, 130, 190, 400, 1000, 5000, 10_000];
            let above = above.map(|parts| full + full * parts / 10_000);
            for budget in [full + 1, full + 256, full + 4096].into_iter().chain(above) {
                replay.budget = budget;
                let what = format!("{} under {budget}, 100 % is {full}", trace.name());
                evicts_nothing(&replay, program, &what);
            }
            // If unheld recomputed tensors are kept, the first eviction counts, even the eviction
            // of a tensor that no command needs any more.
            let step = if replay.memory == MemoryKind::Counted { 1 } else { full / 1000 + 256 };
            replay.budget = full - step;
            let outcome = replay.run(program).unwrap();
            let short = outcome.stats.evictions > wishes(program) || outcome.slowdown().is_none();
            let peak = replay.unbudgeted(program).unwrap().peak_bytes;
            assert!(short || full - step < peak, "{} at {}", trace.name(), full - step);
        }
    }
}

/// Random steps of constants, uploads, ops, views, updates and requests to evict.
fn random_program(seed: u64) -> RecordedProgram {
    let mut numbers = SplitMix64::new(seed);
    let mut below = |n: u64| numbers.below(n as usize) as u64;
    let mut program = RecordedProgram::default();
    let (mut held, mut views): (Vec<TensorId>, Vec<TensorId>) = (Vec::new(), Vec::new());
    // Tensor number -> bytes of its storage that it views.
    let mut spans: Vec<u64> = Vec::new();
    for _ in 0..20 + below(80) {
        let size = below(14);
        let bytes = 1 + below(16 << size);
        match below(10) {
            kind @ (0 | 1) => {
                let upload = RecordedValue::new(bytes, 1.0);
                let host = if kind == 0 { RecordedValue::constant(bytes) } else { upload };
                held.push(program.put(host).unwrap());
                spans.push(bytes);
            }
            2..=4 if held.len() > 4 => {
                let gone = held.swap_remove(below(held.len() as u64) as usize);
                program.push(Command::Del(gone)).unwrap();
            }
            5 if held.len() > 4 && seed.is_multiple_of(4) => {
                let wish = held[below(held.len() as u64) as usize];
                program.push(Command::Drop(wish)).unwrap();
            }
            _ if held.is_empty() => {}
            kind => {
                let inputs: Vec<_> =
                    (0..=below(3)).map(|_| held[below(held.len() as u64) as usize]).collect();
                let span = spans[inputs[0].index()];
                let fresh = |bytes: &[u64]| {
                    Outputs::fresh(bytes.iter().map(|&bytes| Layout::raw(bytes as usize)))
                };
                let mut consumed = Consumed::default();
                let outputs = match kind {
                    6 => {
                        spans.push(bytes.min(span));
                        Outputs::view(0, look(span, bytes))
                    }
                    // A view may repeat elements, so views are not updated.
                    7 if !views.contains(&inputs[0]) => {
                        held.retain(|tensor| *tensor != inputs[0]);
                        spans.push(span);
                        consumed.insert(0);
                        Outputs::updates(1)
                    }
                    8 => {
                        let both = [bytes, below(999)];
                        spans.extend(both);
                        fresh(&both)
                    }
                    _ => {
                        spans.push(bytes);
                        fresh(&[bytes])
                    }
                };
                let workspace = if below(4) == 0 { below(1 << 14) } else { 0 };
                let rematerializable = below(9) > 0;
                let op = RecordedOp { workspace, rematerializable, ..RecordedOp::new("op", 1.0) };
                let made = program.next();
                let inputs = inputs.into();
                let call = Apply { op, inputs, consumed, outputs, made };
                let outputs: Vec<TensorId> = call.outputs().collect();
                program.push(Command::Apply(call)).unwrap();
                if kind == 6 {
                    views.extend(&outputs);
                }
                held.extend(outputs);
            }
        }
    }
    program
}

/// View of `bytes` bytes of a tensor that spans `span` bytes. A larger view repeats the whole span.
fn look(span: u64, bytes: u64) -> Layout {
    let (span, bytes) = (span as usize, bytes as usize);
    match bytes <= span || span == 0 {
        true => Layout::raw(bytes.min(span)),
        false => Layout::raw(span).broadcast_to(&Dims::new(&[bytes.div_ceil(span), span])).unwrap(),
    }
}

#[test]
fn at_100_percent_nothing_is_evicted_in_random_programs() {
    for seed in 0..300 {
        let program = random_program(seed);
        for mut replay in arenas(&Replay::new(PolicyKind::Lru, 1)) {
            let full = replay.unbudgeted(&program).unwrap().full_budget;
            for above in [0, 1, 256, 700, 1300, 2600, 5000, full / 50, full / 10, full] {
                replay.budget = full + above;
                let what = format!("program {seed}, {above} above {full}");
                evicts_nothing(&replay, &program, &what);
            }
        }
    }
}

#[test]
fn memory_over_time_ends_where_the_run_does() {
    let trace = small();
    let replay = replay(PolicyKind::Dtr, 72_580);
    let unbudgeted = replay.unbudgeted(trace.program()).unwrap();
    let (outcome, timeline) = replay.run_with_timeline(&trace, unbudgeted, "small").unwrap();
    let most = timeline.samples.iter().map(|s| s.used).max().unwrap();
    assert!(most <= outcome.stats.peak_bytes && most > 60_000, "{}", ByteSize(most));
    let regenerated: u64 = timeline.samples.iter().map(|s| s.regenerated).sum();
    assert_eq!(regenerated, outcome.stats.recomputed_bytes);
    assert!(regenerated > 0 && timeline.samples.iter().any(|s| s.evicted > 0));
    let svg = remat::unstable::lab::plot::memory(&timeline).unwrap();
    assert!(svg.contains("budget"));
}

/// Storages that a program holds, computed from its commands.
#[derive(Default)]
struct Holdings {
    /// Tensor -> index of its storage.
    storage_of: HashMap<TensorId, usize>,
    /// Size of each storage, and the number of tensors that view it.
    storages: Vec<(u64, u32)>,
    bytes: u64,
}

impl Holdings {
    fn add(&mut self, tensor: TensorId, bytes: u64) {
        self.storage_of.insert(tensor, self.storages.len());
        self.storages.push((bytes, 1));
        self.bytes += bytes;
    }

    fn share(&mut self, tensor: TensorId, other: TensorId) {
        let storage = self.storage_of[&other];
        self.storages[storage].1 += 1;
        self.storage_of.insert(tensor, storage);
    }

    fn let_go(&mut self, tensor: TensorId) {
        let (bytes, tensors) = &mut self.storages[self.storage_of[&tensor]];
        *tensors -= 1;
        self.bytes -= if *tensors == 0 { *bytes } else { 0 };
    }

    fn execute(&mut self, command: &RecordedCommand) {
        match command {
            Command::Put { tensor, host, .. } => self.add(*tensor, host.layout.bytes()),
            Command::Replace { value, made, .. } => self.share(*made, *value),
            _ => {}
        }
        for call in command.calls() {
            for (i, tensor) in call.outputs().enumerate() {
                match &call.outputs {
                    Outputs::Views(looks) => self.share(tensor, call.inputs[looks[i].input]),
                    Outputs::Fresh(layouts) => self.add(tensor, layouts[i].bytes()),
                    Outputs::Updates { .. } | Outputs::Over if i < call.outputs.targets() => {
                        let bytes = self.storages[self.storage_of[&call.inputs[i]]].0;
                        self.add(tensor, bytes);
                    }
                    Outputs::Updates { targets, fresh } => {
                        self.add(tensor, fresh[i - targets].bytes());
                    }
                    Outputs::Over => unreachable!("one output"),
                }
            }
        }
        command.ends(|tensor| self.let_go(tensor));
    }
}

/// Bytes of the storages that the program holds after each command, resident or not.
fn held_bytes(program: &RecordedProgram) -> Vec<u64> {
    let mut holdings = Holdings::default();
    let after = |command: &RecordedCommand| {
        holdings.execute(command);
        holdings.bytes
    };
    program.commands().iter().map(after).collect()
}

/// The evicted bytes in the plot are those of storages that the program holds and that are not in
/// memory. Storages without handles do not count.
#[test]
fn evicted_is_what_the_program_still_holds() {
    for trace in traces() {
        let program = trace.program();
        let mut replay = Replay::new(PolicyKind::DtrEq, 1);
        let unbudgeted = replay.unbudgeted(program).unwrap();
        replay.budget = unbudgeted.full_budget / 2;
        replay.settings.recompute_limit = None;
        let (outcome, timeline) = replay.run_with_timeline(&trace, unbudgeted, "").unwrap();
        let held = held_bytes(program);
        assert!(timeline.samples.len() == held.len() || outcome.slowdown().is_none());
        let mut most = 0;
        // The command at which a run fails has not made its outputs.
        let done = timeline.samples.len() - usize::from(outcome.slowdown().is_none());
        for (i, (sample, held)) in timeline.samples[..done].iter().zip(&held).enumerate() {
            let what = format!("{}, command {i}: {sample:?}, {held} held", trace.name());
            assert!(sample.evicted <= *held && held - sample.evicted <= sample.used, "{what}");
            most = most.max(sample.evicted);
        }
        assert!(most > 0 || outcome.stats.evictions == 0, "{}", trace.name());
        // Only parameters are left at the end, and parameters are never evicted.
        if outcome.slowdown().is_some() {
            assert_eq!(timeline.samples.last().unwrap().evicted, 0, "{}", trace.name());
        }
    }
}

#[test]
fn a_run_that_fails_says_so_in_its_picture() {
    let trace = small();
    let mut replay = replay(PolicyKind::Dtr, 20_000);
    let unbudgeted = replay.unbudgeted(trace.program()).unwrap();
    let mut picture = |limit: Option<f64>| {
        replay.settings.recompute_limit = limit.map(RecomputeLimit::Multiple);
        let (outcome, timeline) = replay.run_with_timeline(&trace, unbudgeted, "small").unwrap();
        let svg = remat::unstable::lab::plot::memory(&timeline).unwrap();
        assert_eq!(outcome.slowdown().is_none(), svg.contains("fails: "));
        svg
    };
    assert!(picture(None).contains("fails: out of memory: "));
    replay.budget = 50_000;
    let mut picture = |limit: Option<f64>| {
        replay.settings.recompute_limit = limit.map(RecomputeLimit::Multiple);
        let (_, timeline) = replay.run_with_timeline(&trace, unbudgeted, "small").unwrap();
        remat::unstable::lab::plot::memory(&timeline).unwrap()
    };
    assert!(picture(Some(0.0)).contains("fails: recomputed more than the limit"));
    assert!(!picture(None).contains("fails: "));
}

/// The cost axis ends at the same seconds, operations or bytes, whichever cost model the recording
/// or the replay uses.
#[test]
fn the_cost_axis_counts_the_same_however_it_was_recorded() {
    let end = |trace: &Trace, costs| {
        let mut replay = Replay::new(PolicyKind::None, u64::MAX >> 8);
        replay.costs = costs;
        let unbudgeted = replay.unbudgeted(trace.program()).unwrap();
        let (_, timeline) = replay.run_with_timeline(trace, unbudgeted, "").unwrap();
        let at = timeline.samples.last().unwrap().at;
        match timeline.unit {
            CostUnit::Nanoseconds => (at * 1e-9, "s"),
            CostUnit::Milliseconds => (at * 1e-3, "s"),
            CostUnit::Gigaflops => (at * 1e9, "flop"),
            CostUnit::HundredMegabytes => (at * 1e8, "B"),
            other => panic!("{other:?}"),
        }
    };
    let recorded = |kind| {
        let builder = Runtime::builder().budget("8GiB").cost_model(kind);
        Trace::read(&*record(Model::Mlp, 8, 2, builder), "mlp").unwrap()
    };
    let [flops, bytes, measured] =
        [CostModelKind::Flops, CostModelKind::Bytes, CostModelKind::Measured].map(recorded);
    let program = flops.program();
    let arithmetic: f64 = program.calls().filter_map(|call| call.op.flops).sum();
    let (moved, unit) = end(&flops, Costs::Bytes);
    assert!(unit == "B" && moved > 1e6, "{moved} {unit}");
    let close = |(at, unit): (f64, &str), (expected, of): (f64, &str)| {
        assert!(unit == of && (at / expected - 1.0).abs() < 1e-9, "{at} {unit} {expected} {of}");
    };
    for trace in [&flops, &bytes, &measured] {
        close(end(trace, Costs::Bytes), (moved, "B"));
        close(end(trace, Costs::Flops), (arithmetic + 10.0 * moved, "flop"));
    }
    close(end(&flops, Costs::Trace), (arithmetic + 10.0 * moved, "flop"));
    close(end(&bytes, Costs::Trace), (moved, "B"));
    let (seconds, unit) = end(&measured, Costs::Trace);
    // The simulated device takes at least a microsecond for each op, and less than a second for all
    // of them.
    assert!(unit == "s" && (1e-5..1.0).contains(&seconds), "{seconds} {unit}");
    close(end(&small(), Costs::Trace), (small().program().base_cost() * 1e-9, "s"));
}

/// Regression: the milliseconds of a log were counted as hundreds of megabytes.
#[test]
fn time_that_passes_costs_time_alone() {
    let cost = |waits: f64, costs| {
        let mut program = RecordedProgram::default();
        let x = program.put(RecordedValue::new(1000, 3.0)).unwrap();
        program.apply(RecordedOp::elapse(waits), &[], Outputs::default()).unwrap();
        let view = Outputs::view(0, Layout::raw(10));
        program.apply(RecordedOp::new("view", waits), &[x], view).unwrap();
        let replay = Replay { costs, ..Replay::new(PolicyKind::Lru, 1 << 20) };
        let outcome = replay.run(&program).unwrap();
        assert_eq!((outcome.stats.ops, outcome.slowdown()), (1, Some(1.0)), "the upload");
        outcome.stats.base_cost
    };
    assert_eq!(cost(5.0, Costs::Trace), 3.0 + 5.0 + 5.0);
    for costs in [Costs::Flops, Costs::Bytes] {
        assert_eq!(cost(5.0, costs), cost(0.0, costs), "{costs:?}");
    }
}

/// A recording has only the names, sizes and costs of its ops, so a custom op replays too.
#[test]
fn a_recording_with_a_users_own_op_replays_in_simulation() {
    let text = Shared::default();
    let runtime = Runtime::builder().record(JsonLines::to(text.clone())).cpu().unwrap();
    let mut w = runtime.full(&[64, 64], 0.1).unwrap();
    let tape = Tape::new(&runtime);
    tape.watch(&mut w);
    let mut y = runtime.ones(&[256, 64]).unwrap();
    for _ in 0..16 {
        y = Clip { low: -1.0, high: 1.0 }.of(&y.matmul(&w).unwrap()).unwrap();
    }
    let loss = y.mean().unwrap();
    drop(y);
    let gradients = tape.backward(&loss).unwrap();
    runtime.get(gradients.get(&w).unwrap()).unwrap();
    let recorded = runtime.stats().unwrap();
    runtime.finish_recording().unwrap();

    let text = text.0.lock().unwrap();
    let trace = Trace::read(&**text, "clip").unwrap();
    let program = trace.program();
    for name in ["clip", "clip_grad"] {
        let ops = program.calls().map(|call| &call.op);
        let runs = ops.filter(|op| *op.name == *name && op.cost > 0.0).count();
        assert_eq!(runs, 16, "{name}");
    }
    let mut like = Replay::new(PolicyKind::DtrEq, 1);
    like.memory = MemoryKind::Arena;
    let unbudgeted = like.unbudgeted(program).unwrap();
    assert_eq!(unbudgeted.peak_bytes, recorded.peak_bytes);
    let grid = Grid {
        policies: vec![PolicyKind::DtrEq, PolicyKind::Dtr],
        budgets: [60, 40].map(|percent| unbudgeted.peak_bytes * percent / 100).to_vec(),
        thresholds: vec![None],
        dead: vec![Dead::Drop],
        seeds: vec![0],
    };
    for row in rows(&trace, &like, &grid, 0) {
        assert!(row.slowdown.is_some_and(|slowdown| slowdown > 1.0), "{row:?}");
    }
}
