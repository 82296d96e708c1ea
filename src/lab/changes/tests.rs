//! Tests that replay runs in which settings change.

use super::Changed;
use crate::autograd::Tape;
use crate::driver::Setting;
use crate::engine::{Engine, Listener};
use crate::error::Error;
use crate::event::Event;
use crate::evict::{Learn, View};
use crate::lab::replay::Machine;
use crate::lab::{MemoryKind, Replay, RunSettings, Status, Trace};
use crate::nn::{Mode, Module as _, mlp};
use crate::optim::Optimizer;
use crate::sync::{Mutex, lock};
use crate::trace::JsonLines;
use crate::{Builder, PolicyKind, Runtime, Stats, Tensor};
use remat_rng::SplitMix64;
use std::io;
use std::sync::Arc;

/// Listener that keeps the events about memory.
#[derive(Clone, Debug, Default)]
struct Heard(Arc<Mutex<Vec<Event>>>);

impl Listener for Heard {
    fn on(&mut self, event: &Event, _: View<'_>) {
        if let Event::DidEvict { .. }
        | Event::DidRegenerate { .. }
        | Event::DidMove { .. }
        | Event::DidCommit { .. }
        | Event::DidSetBudget { .. } = event
        {
            lock(&self.0).push(*event);
        }
    }
}

/// A recording file held in memory.
#[derive(Clone, Debug, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl io::Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        lock(&self.0).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A recorded run: its recording, its memory events, and its statistics at the end.
struct Run {
    trace: Trace,
    events: Vec<Event>,
    stats: Stats,
}

/// Records a run. `work` returns the tensors still held at the end.
fn recorded(
    builder: Builder,
    work: impl FnOnce(&Runtime) -> Result<Vec<Tensor>, Error>,
) -> Result<Run, Error> {
    let (text, heard) = (Text::default(), Heard::default());
    let lines = JsonLines::to(text.clone());
    let runtime = builder.record(lines).listen(heard.clone()).sim()?;
    let held = work(&runtime)?;
    runtime.sync()?;
    runtime.finish_recording()?;
    let stats = runtime.stats()?;
    drop(held);
    let events = lock(&heard.0).clone();
    let trace = Trace::read(&lock(&text.0)[..], "run").unwrap_or_else(|e| panic!("{e}"));
    Ok(Run { trace, events, stats })
}

/// Replay with the settings of the recording.
fn as_run(trace: &Trace) -> Replay {
    let RunSettings { budget, eviction_threshold, changes, .. } = trace.settings().clone();
    let policies = trace.settings().policies().unwrap();
    let mut replay = Replay::new(policies[0], budget.unwrap());
    replay.memory = MemoryKind::Arena;
    replay.settings = crate::Settings { eviction_threshold, ..crate::Settings::default() };
    replay.window = trace.window();
    replay.as_run = Some(trace.known().clone());
    replay.changes = changes;
    replay
}

fn figures(stats: &Stats) -> [u64; 15] {
    [
        stats.ops,
        stats.evictions,
        stats.evicted_bytes,
        stats.fake_deletes,
        stats.recomputed_ops,
        stats.recomputed_bytes,
        stats.peak_bytes,
        stats.compactions,
        stats.moved_bytes,
        stats.steps,
        stats.budget_bytes,
        stats.used_bytes,
        stats.tensors as u64,
        stats.storages as u64,
        stats.max_regeneration_depth as u64,
    ]
}

#[track_caller]
fn replays_as_it_ran(run: &Run, replay: &Replay, what: &str) {
    let heard = Heard::default();
    let mut machine = Machine::new(replay, run.trace.program()).unwrap();
    machine.listen(Box::new(heard.clone()));
    let status = machine.run(|_, _, _: &Engine<_>| {});
    assert!(matches!(status, Status::Done), "{what}: {status:?}");
    let events = lock(&heard.0).clone();
    let differs = events.iter().zip(&run.events).position(|(a, b)| a != b);
    let at = differs.unwrap_or(events.len().min(run.events.len()));
    let around = |events: &[Event]| format!("{:?}", &events[at..events.len().min(at + 2)]);
    let counts = [run.events.len(), events.len()];
    assert!(
        events == run.events,
        "{what}: of {counts:?}, {at}: {} and {}",
        around(&run.events),
        around(&events)
    );
    assert_eq!(figures(&machine.stats()), figures(&run.stats), "{what}");
    let costs = [machine.stats().recompute_cost, run.stats.recompute_cost];
    assert!((costs[0] - costs[1]).abs() <= 1e-9 * costs[1], "{what}: {costs:?}");
}

/// Changes one setting at random. The change may fail for lack of memory. `counts` counts the
/// successes and failures of each kind of setting.
fn change(runtime: &Runtime, draw: &mut SplitMix64, most: u64, counts: &mut [[usize; 2]; 4]) {
    let share =
        |draw: &mut SplitMix64, from: usize| most * (from + draw.below(101 - from)) as u64 / 100;
    let (kind, done) = match draw.below(9) {
        0..=1 => (0, runtime.set_budget(share(draw, 45))),
        2 => (0, runtime.set_budget(most)),
        // A budget this small is hardly ever enough.
        3 => (0, runtime.set_budget(share(draw, 2).min(most / 4))),
        4 => {
            let budget = runtime.stats().unwrap().budget_bytes;
            let threshold = budget * draw.below(101) as u64 / 100;
            (1, runtime.set_eviction_threshold((draw.below(3) > 0).then_some(threshold)))
        }
        5..=6 => {
            let mut policies: Vec<PolicyKind> = PolicyKind::all().collect();
            policies.push("own/(size*stale^0.25)".parse().unwrap());
            policies.push(PolicyKind::Learned(Learn::Ahead));
            policies.push(PolicyKind::Learned(Learn::Portfolio));
            (2, runtime.set_policy(policies[draw.below(policies.len())]))
        }
        7 => (3, runtime.disable()),
        _ => (3, runtime.enable()),
    };
    counts[kind][usize::from(done.is_err())] += 1;
}

/// Runs random ops on tensors of all sizes. If `repeats` is set, all steps are the same.
fn free(
    runtime: &Runtime,
    seed: u64,
    repeats: bool,
    mut between: impl FnMut(&Runtime),
) -> Result<Vec<Tensor>, Error> {
    let mut draw = SplitMix64::new(seed);
    let mut held: Vec<Tensor> = Vec::new();
    for step in 0..5 {
        if repeats {
            draw = SplitMix64::new(seed);
            held.truncate(3);
        }
        for _ in 0..30 {
            between(runtime);
            match (draw.below(10), held.len()) {
                (0..=1, _) | (_, 0) => held.push(runtime.ones(&[1 + draw.below(1500)])?),
                (2..=3, n) | (_, n) if n > 12 => drop(held.swap_remove(draw.below(n))),
                (4, n) => runtime.get(&held[draw.below(n)]).map(drop)?,
                (5, n) => runtime.drop_now(&held[draw.below(n)])?,
                (_, n) => {
                    let x = &held[draw.below(n)];
                    held.push(if draw.below(2) == 0 { x.square()? } else { x.add(x)?.relu()? });
                }
            }
        }
        if step > 0 || repeats {
            runtime.step()?;
        }
    }
    Ok(held)
}

fn train(
    runtime: &Runtime,
    steps: usize,
    mut between: impl FnMut(&Runtime),
) -> Result<Vec<Tensor>, Error> {
    let mut net = mlp(runtime, 64, &[32; 6], 10)?;
    let mut sgd = Optimizer::sgd(0.1, 0.9, 0.0);
    for _ in 0..steps {
        between(runtime);
        let x = runtime.ones(&[128, 64])?;
        let tape = Tape::new(runtime);
        tape.watch(&mut net);
        let loss = net.forward(&x, Mode::Train)?.square()?.mean()?;
        drop(x);
        between(runtime);
        sgd.minimize(tape, &loss, &mut net)?;
        between(runtime);
        runtime.get(&loss)?;
        between(runtime);
        runtime.step()?;
    }
    Ok(Vec::new())
}

fn plenty() -> Builder {
    Runtime::builder().budget("1GiB")
}

/// Any setting may change at any time, and each change may succeed or fail.
#[test]
fn a_replay_makes_the_changes_of_the_run_and_evicts_as_it_did() {
    let (mut runs, mut evictions, mut recomputed) = (0, 0, 0);
    let mut counts = [[0; 2]; 4];
    for seed in 0..120 {
        let work = |runtime: &Runtime, between: &mut dyn FnMut(&Runtime)| match seed % 3 {
            0 => free(runtime, seed, false, between),
            1 => free(runtime, seed, true, between),
            _ => train(runtime, 6, between),
        };
        let peak =
            recorded(plenty(), |runtime| work(runtime, &mut |_| {})).unwrap().stats.peak_bytes;
        let mut draw = SplitMix64::new(seed + 100);
        let most = peak * (80 + draw.below(60) as u64) / 100;
        let mut builder = Runtime::builder().budget(most).seed(seed);
        if draw.below(2) == 0 {
            builder = builder.policy(PolicyKind::DtrEq).look_ahead(draw.below(4));
        }
        if draw.below(3) == 0 {
            builder = builder.eviction_threshold(most * 7 / 10);
        }
        let often = if seed % 3 == 2 { 2 } else { 12 };
        let mut of_this = [[0; 2]; 4];
        // A run continues after a failed op, but a replay ends at the failure. Therefore, runs with
        // a failed op are left out.
        let Ok(run) = recorded(builder, |runtime| {
            work(runtime, &mut |runtime| {
                if draw.below(often) == 0 {
                    change(runtime, &mut draw, most, &mut of_this);
                }
            })
        }) else {
            continue;
        };
        let replay = Replay { seed, ..as_run(&run.trace) };
        replays_as_it_ran(&run, &replay, &format!("seed {seed}"));
        let told = run.trace.settings().changes.iter();
        let made: usize = of_this.iter().flatten().sum();
        let refused = of_this[1][1] + of_this[2][1];
        assert_eq!(told.count(), made - refused, "seed {seed}: {of_this:?}");
        for (all, these) in counts.iter_mut().flatten().zip(of_this.iter().flatten()) {
            *all += these;
        }
        runs += 1;
        evictions += run.stats.evictions;
        recomputed += run.stats.recomputed_ops;
    }
    assert!(runs > 30 && evictions > 500 && recomputed > 300, "{runs} {evictions} {recomputed}");
    let [budget, threshold, policy, enabled] = counts;
    assert!(budget[0] > 50 && budget[1] > 10 && threshold[0] > 20 && policy[0] > 50, "{counts:?}");
    assert!(enabled[0] > 30 && enabled[1] > 2, "{counts:?}");
}

/// Replays the changes of `examples/10_a_budget_that_changes.rs`.
#[test]
fn a_budget_that_changes_and_comes_back_changes_in_the_replay() {
    let peak = recorded(plenty(), |runtime| train(runtime, 6, |_| {})).unwrap().stats.peak_bytes;
    let mut calls = 0;
    let run = recorded(Runtime::builder().budget(peak), |runtime| {
        train(runtime, 6, |runtime| {
            let tight = (8..16).contains(&calls);
            if calls % 4 == 0 {
                runtime.set_budget(if tight { peak * 7 / 10 } else { peak }).unwrap();
            }
            calls += 1;
        })
    })
    .unwrap();
    assert!(run.stats.evictions > 10, "{}", run.stats.evictions);
    let replay = as_run(&run.trace);
    assert_eq!((replay.budget, replay.changes.len()), (peak, 6));
    replays_as_it_ran(&run, &replay, "a budget");
    // Without the changes of the budget, the program has fewer evictions.
    let unchanged = Replay { changes: Vec::new(), ..replay.clone() }.run(run.trace.program());
    assert!(unchanged.unwrap().stats.evictions < run.stats.evictions);
    // A repeated step repeats its changes.
    let budget = |trace: &Trace| trace.settings().changes.clone();
    let longer = run.trace.clone().repeat_step(3).unwrap();
    let [before, after] = [budget(&run.trace), budget(&longer)];
    assert_eq!((&after[..6], after.len()), (&before[..], 8));
    let commands = longer.program().commands();
    for change in &after {
        let words = commands[change.after - 1].name();
        assert_eq!(words, "sync", "{change:?}");
    }
    let replay = Replay { changes: after, ..replay };
    assert!(matches!(replay.run(longer.program()).unwrap().status, Status::Done));
}

#[test]
fn a_run_that_began_below_what_it_was_given_later_replays() {
    let run =
        recorded(Runtime::builder().budget("1MiB"), |runtime| free(runtime, 1, false, |_| {}))
            .unwrap();
    let peak = run.stats.peak_bytes;
    let mut replay = Replay { budget: peak, ..as_run(&run.trace) };
    let up = Changed { after: 40, setting: Setting::Budget(4 * peak), failed: false };
    replay.changes.push(up);
    let outcome = replay.run(run.trace.program()).unwrap();
    assert!(matches!(outcome.status, Status::Done));
    assert_eq!(outcome.stats.budget_bytes, 4 * peak);
}

#[test]
fn a_policy_without_a_name_is_not_followed_and_said_where() {
    let own = || crate::evict::Formula::LRU.policy();
    // The name of this policy cannot be parsed.
    let exponents = crate::evict::Exponents { cost: f64::NAN, bytes: 2.0, staleness: 3.0 };
    let work = |runtime: &Runtime| {
        let x = runtime.ones(&[8])?;
        runtime.set_policy(PolicyKind::megengine().with_exponents(exponents))?;
        runtime.set_policy(own())?;
        Ok(vec![x])
    };
    let run = recorded(plenty().policy(PolicyKind::Lru), work).unwrap();
    let changes = &run.trace.settings().changes;
    assert!(changes.iter().all(|change| change.setting == Setting::Policy(None)), "{changes:?}");
    assert_eq!((changes.len(), changes[1].after), (2, 3));
    let mut replay =
        Replay { changes: changes[1..].to_vec(), ..Replay::new(PolicyKind::Lru, 1 << 20) };
    let error = replay.run(run.trace.program()).unwrap_err().to_string();
    let wanted = "from instruction 4 on, the recorded run has its own evictor";
    assert!(error.contains(wanted), "{error}");
    assert!(run.trace.settings().policies().is_err());
    replay.changes[0].setting = Setting::Policy(Some("best".to_owned()));
    let error = replay.run(run.trace.program()).unwrap_err().to_string();
    assert!(error.contains("has the policy `best`, which this program does not know"), "{error}");
    replay.changes.clear();
    assert!(replay.run(run.trace.program()).is_ok());
    // The policy at the beginning may also have no name.
    let run =
        recorded(plenty().policy(own()), |runtime| runtime.set_budget("1MiB").map(|()| vec![]));
    let error = run.unwrap().trace.settings().policies().unwrap_err().to_string();
    assert!(error.contains("from instruction 1 on"), "{error}");
    // The name of every policy of this crate can be parsed.
    let with_parameters =
        ["megengine:own-cost", "megengine:bytes=2:rerun=1.5", "dtr:staleness=0.5"];
    let more = ["megengine-article:rerun=2:cost-scale=1", "ancestors:cost=0"];
    let with_parameters = with_parameters.into_iter().chain(more).map(|text| text.parse().unwrap());
    for policy in PolicyKind::all().chain(PolicyKind::ablations()).chain(with_parameters) {
        let run = recorded(plenty().policy(policy), |runtime| runtime.step().map(|()| vec![]));
        assert_eq!(run.unwrap().trace.settings().policies().unwrap(), [policy]);
    }
}
