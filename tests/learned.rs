//! Eviction by the predicted step, and policies of other systems for comparison.

use remat::Stats;
use remat::op::Outputs;
use remat::unstable::lab::{Grid, Job, MemoryKind, Replay, Status, Trace, Verdict, sweep};
use remat::unstable::program::{Command, RecordedOp, RecordedProgram, RecordedValue, TensorId};
use remat::{Layout, PolicyKind};

fn policy(name: &str) -> PolicyKind {
    name.parse().unwrap()
}

fn op(program: &mut RecordedProgram, cost: f64, input: TensorId, bytes: usize) -> TensorId {
    let outputs = Outputs::fresh([Layout::raw(bytes)]);
    program.apply(RecordedOp::new("op", cost), &[input], outputs).unwrap()
}

fn run(replay: &Replay, program: &RecordedProgram) -> Stats {
    let outcome = replay.run(program).unwrap();
    assert!(matches!(outcome.status, Status::Done), "{}: {:?}", replay.policy, outcome.status);
    outcome.stats
}

#[test]
fn with_a_forecast_more_budget_never_fails_where_less_passes_and_never_costs_more() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/small.log");
    let trace = Trace::open(path).unwrap().repeat_step(2).unwrap();
    let like = Replay::new(policy("learned:portfolio"), u64::MAX);
    let unbudgeted = like.unbudgeted(trace.program()).unwrap();
    let budgets: Vec<u64> =
        (20..=200).map(|half_percent| unbudgeted.full_budget * half_percent / 200).collect();
    let grid = Grid {
        policies: vec![like.policy],
        budgets,
        thresholds: vec![None],
        dead: vec![like.settings.dead],
        seeds: vec![0],
    };
    let job = |replay| Job {
        trace: "small",
        program: trace.program(),
        unbudgeted,
        replay,
        least_slowdown: None,
    };
    let jobs: Vec<Job<'_>> = grid.replays(&like).into_iter().map(job).collect();
    let rows = sweep(&jobs, 2, |_| {}).unwrap();
    assert_eq!(rows.len(), 181);
    let mut last = f64::INFINITY;
    let mut costs = 0;
    for row in &rows {
        let slowdown = row.slowdown.unwrap_or(f64::INFINITY);
        assert!(slowdown <= last, "{} at {}, {last} below it", slowdown, row.budget_ratio);
        assert!(row.status != Verdict::Ok || row.peak_bytes <= row.budget_bytes);
        costs += usize::from(slowdown < last);
        last = slowdown;
    }
    assert_eq!(last, 1.0, "100 %");
    assert!(costs > 10, "the budget matters: {costs} different costs");
}

#[test]
fn belady_evicts_what_will_be_used_last() {
    let mut program = RecordedProgram::default();
    let source = program.put(RecordedValue::constant(1)).unwrap();
    let made = [(); 3].map(|()| op(&mut program, 1.0, source, 10));
    for tensor in made {
        program.push(Command::Get(tensor)).unwrap();
    }
    let recomputed = |name| {
        let mut replay = Replay::new(policy(name), 21);
        replay.settings.recompute_limit = None;
        run(&replay, &program).recomputed_ops
    };
    // The second value is evicted for the third. The second value is then regenerated in place of
    // the first, which is not read again.
    assert_eq!(recomputed("belady"), 1);
    assert!(recomputed("lru") > 1);
}

#[test]
fn coop_evicts_neighbours_so_that_nothing_is_moved() {
    let mut program = RecordedProgram::default();
    let source = program.put(RecordedValue::constant(1024)).unwrap();
    for at in 0..8 {
        let cost = if at % 2 == 0 { 1.0 } else { 2.0 };
        op(&mut program, cost, source, 1024);
    }
    op(&mut program, 1.0, source, 4096);
    let stats = |name| {
        let mut replay = Replay::new(policy(name), 9 * 1024);
        replay.memory = MemoryKind::Arena;
        run(&replay, &program)
    };
    let (coop, dtr) = (stats("coop"), stats("dtr-local"));
    assert_eq!((coop.evictions, coop.moved_bytes), (4, 0));
    assert!(dtr.moved_bytes > 0, "the cheapest do not lie side by side");
}

#[test]
fn hubs_are_spared() {
    let mut program = RecordedProgram::default();
    let source = program.put(RecordedValue::constant(1)).unwrap();
    let hub = op(&mut program, 0.1, source, 1000);
    for _ in 0..20 {
        op(&mut program, 10.0, hub, 10);
    }
    // At this command, no op reads the hub, and memory is full.
    op(&mut program, 10.0, source, 20);
    program.push(Command::Get(hub)).unwrap();
    let recomputed = |name| {
        let replay = Replay::new(policy(name), 1 + 1000 + 20 * 10 + 10);
        run(&replay, &program).recompute_cost
    };
    assert!(recomputed("dtr-eq") > 0.0);
    assert_eq!(recomputed("t-control"), 0.0);
}

#[test]
fn knowledge_does_no_harm() {
    let small = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/small.log");
    let small = Trace::open(small).unwrap().repeat_step(2).unwrap();
    let mut better = 0;
    for (budget, learned, guessed) in (25..100).filter_map(|percent| {
        let like = Replay::new(policy("ancestors"), u64::MAX);
        let full = like.unbudgeted(small.program()).unwrap().full_budget;
        let budget = full * percent / 100;
        let slowdown = |name| {
            let outcome = Replay::new(policy(name), budget).run(small.program()).unwrap();
            outcome.slowdown()
        };
        Some((budget, slowdown("learned:portfolio")?, slowdown("ancestors")?))
    }) {
        assert!(learned <= guessed, "{learned} instead of {guessed} in {budget}");
        better += usize::from(learned < guessed);
    }
    assert!(better > 10, "it does good at {better} budgets");
}

/// At the end of a step, a value that was made from a freed value of an earlier step becomes a
/// leaf, and must be resident.
///
/// Regression: no other op of the last step read the new leaf, so the leaf was evicted first, with
/// all its history.
#[test]
fn the_end_of_a_step_reads_what_it_makes_leaves_of() {
    let mut program = RecordedProgram::default();
    let leaf = program.put(RecordedValue::constant(1)).unwrap();
    let old = op(&mut program, 1.0, leaf, 10);
    program.push(Command::Step).unwrap();
    let between = op(&mut program, 1.0, old, 10);
    let state = op(&mut program, 1.0, between, 10);
    let other = op(&mut program, 1.0, leaf, 10);
    for tensor in [old, between] {
        program.push(Command::Del(tensor)).unwrap();
    }
    program.push(Command::Step).unwrap();
    let future = program.future();
    // Positions: 0 is the put, 1 an op, 2 a step, 3 to 5 ops, 6 a step. Values are numbered in the
    // order in which they are made.
    let uses = |value| future.uses(value).to_vec();
    assert_eq!((uses(1), uses(2)), (vec![3], vec![4]), "read by ops");
    assert_eq!(uses(3), [6], "{state} is held, and made from what is gone");
    assert_eq!(uses(4), [0; 0], "{other} can be made again from a leaf");
}
