//! Tests that a portfolio is no worse than the policies that do not know the step, and that the
//! effort of a search is bounded.

use super::Search;
use crate::command::RecordedProgram;
use crate::driver::Allowance;
use crate::engine::{Dead, Listener, Stats};
use crate::event::Event;
use crate::evict::{Clock, Forecast, Learn, PolicyKind, View};
use crate::graph::StorageKey;
use crate::lab::replay::Machine;
use crate::lab::{MemoryKind, Replay, Status, Trace};
use crate::sync::{Mutex, lock};
use remat_memory::ByteSize;
use std::sync::Arc;

/// The policies of [`Clock::UNKNOWING`], by name.
const NAMED: [PolicyKind; 3] = [PolicyKind::Ancestors, PolicyKind::Dtr, PolicyKind::DtrEq];

/// Recordings, each with its peak of bytes in use.
fn programs() -> Vec<(RecordedProgram, u64)> {
    let files = [("small.log", 2), ("resnet20-v3.jsonl.gz", 1)];
    let programs = files.map(|(file, times)| {
        let path = format!("{}/tests/data/{file}", env!("CARGO_MANIFEST_DIR"));
        let trace = Trace::open(path).unwrap();
        let trace = if times > 1 { trace.repeat_step(times).unwrap() } else { trace };
        let program = trace.program().clone();
        let peak = Replay::new(NAMED[0], u64::MAX).unbudgeted(&program).unwrap().peak_bytes;
        (program, peak)
    });
    programs.into()
}

fn replay(policy: PolicyKind, budget: u64, memory: MemoryKind, dead: Dead) -> Replay {
    let mut replay = Replay { memory, ..Replay::new(policy, budget) };
    replay.settings.dead = dead;
    replay
}

/// Calls `of` for each program with a grid of budgets, kinds of memory and values of [`Dead`].
fn grid(mut of: impl FnMut(&RecordedProgram, u64, MemoryKind, Dead)) {
    for (program, peak) in &programs() {
        for percent in (15..=95).step_by(10) {
            for memory in [MemoryKind::Counted, MemoryKind::Arena] {
                for dead in [Dead::Linger, Dead::Drop, Dead::Keep] {
                    of(program, peak * percent / 100, memory, dead);
                }
            }
        }
    }
}

/// Calls `of` for a few budgets of the first program only, because searches run the program many
/// times.
fn few(mut of: impl FnMut(&RecordedProgram, u64, MemoryKind)) {
    let (program, peak) = &programs()[0];
    for percent in (15..=95).step_by(20) {
        for memory in [MemoryKind::Counted, MemoryKind::Arena] {
            of(program, peak * percent / 100, memory);
        }
    }
}

/// Listener that keeps the evicted storages, in order.
#[derive(Clone, Debug, Default)]
struct Evicted(Arc<Mutex<Vec<StorageKey>>>);

impl Listener for Evicted {
    fn on(&mut self, event: &Event, _view: View<'_>) {
        if let Event::DidEvict { storage, .. } = *event {
            lock(&self.0).push(storage);
        }
    }
}

/// Evictions of a run, whether the run passed, and the counters.
fn evictions(replay: &Replay, program: &RecordedProgram) -> (Vec<StorageKey>, bool, Stats) {
    let mut machine = Machine::new(replay, program).unwrap();
    let evicted = Evicted::default();
    machine.listen(Box::new(evicted.clone()));
    let outcome = machine.simulate();
    let evicted = std::mem::take(&mut *lock(&evicted.0));
    (evicted, matches!(outcome.status, Status::Done), outcome.stats)
}

#[test]
fn a_forecast_may_say_that_another_policy_decides() {
    let learned = PolicyKind::Learned(Learn::Ahead);
    let (mut all, mut differ) = (0, 0);
    grid(|program, budget, memory, dead| {
        let step = Arc::new(program.future());
        let plain = evictions(&replay(learned, budget, memory, dead), program).0;
        for (clock, policy) in Clock::UNKNOWING.into_iter().zip(NAMED) {
            let named = evictions(&replay(policy, budget, memory, dead), program);
            let by = Forecast::by(clock, &step, budget);
            let foresight = Some(Arc::new(by.foresight(&step).unwrap()));
            let by = Replay { foresight, ..replay(learned, budget, memory, dead) };
            let by = evictions(&by, program);
            let what = format!("{policy} in {} {memory:?} {dead:?}", ByteSize(budget));
            assert_eq!(by.0, named.0, "{what}");
            assert_eq!(by.1, named.1, "{what}");
            assert_eq!(by.2.recompute_cost, named.2.recompute_cost, "{what}");
            all += by.0.len();
            differ += usize::from(by.0 != plain);
        }
    });
    assert!(
        all > 10_000 && differ > 100,
        "{all} evictions, {differ} runs unlike the plain setting"
    );
}

/// A policy that replaces another policy during a run receives the earlier evictions, if its scores
/// depend on evictions.
#[test]
fn another_policy_may_take_over_in_the_middle() {
    let learned = PolicyKind::Learned(Learn::Ahead);
    let mut evicted = 0;
    grid(|program, budget, memory, dead| {
        let step = Arc::new(program.future());
        for (clock, policy) in Clock::UNKNOWING.into_iter().zip(NAMED) {
            let foresight = Forecast::by(clock, &step, budget).foresight(&step).unwrap();
            let from_the_middle = |take_over: &dyn Fn(&mut Machine<'_>)| {
                let like = replay(learned, budget, memory, dead);
                let mut machine = Machine::new(&like, program).unwrap();
                let log = Evicted::default();
                let middle = program.commands().len() / 2;
                for at in 0..program.commands().len() {
                    if at == middle {
                        take_over(&mut machine);
                        machine.listen(Box::new(log.clone()));
                    }
                    if machine.execute(at).is_err() {
                        break;
                    }
                }
                let evicted = std::mem::take(&mut *lock(&log.0));
                (evicted, machine.stats().recompute_cost)
            };
            let foresight = Arc::new(foresight);
            let by = from_the_middle(&|machine| {
                let engine = machine.driver.engine_mut();
                engine.foresee(Some(Arc::clone(&foresight))).unwrap();
            });
            let named = from_the_middle(&|machine| {
                machine.driver.engine_mut().set_evictor(policy.build(0)).unwrap();
            });
            let what = format!("{policy} in {} {memory:?} {dead:?}", ByteSize(budget));
            assert_eq!(by, named, "{what}");
            evicted += by.0.len();
        }
    });
    assert!(evicted > 3_000, "{evicted} evictions");
}

fn search(program: &RecordedProgram, replay: &Replay) -> Search {
    Search::new(Arc::new(program.clone()), replay, 0).unwrap()
}

#[test]
fn knowing_never_costs_more_than_not_knowing() {
    let learned = PolicyKind::Learned(Learn::Portfolio);
    let (mut passed, mut best, mut sizes) = (0, 0, 0);
    few(|program, budget, memory| {
        let mut search = search(program, &replay(learned, budget, memory, Dead::Linger));
        search.learn(Learn::Portfolio).unwrap();
        let found = search.best();
        let excess = found.and_then(|found| found.excess);
        for policy in NAMED {
            let outcome = replay(policy, budget, memory, Dead::Linger).run(program).unwrap();
            let Some(slowdown) = outcome.slowdown() else { continue };
            passed += 1;
            let excess = excess.unwrap_or_else(|| panic!("{policy} passes in {budget}"));
            assert!(excess <= slowdown - 1.0 + 1e-9, "{policy}: {excess}, {slowdown}");
        }
        best += usize::from(found.is_some_and(|found| found.clock.formula().is_some()));
        sizes += usize::from(found.is_some_and(|found| found.min_evict_bytes.is_some()));
    });
    assert!(passed > 10 && best + sizes > 0, "{passed} runs, {best}, {sizes}");
}

/// A run that recomputes much takes many times the ops of a run that recomputes little. The limit
/// on simulated ops is the same for both kinds of runs.
#[test]
fn a_search_takes_so_many_ops_whatever_the_budget() {
    let (mut stopped, mut most) = (0, 0.0f64);
    few(|program, budget, memory| {
        for turns in [1, 5, 40] {
            let learned = PolicyKind::Learned(Learn::Search { runs: 1000 });
            let mut search = search(program, &replay(learned, budget, memory, Dead::Linger));
            let mut allowance = Allowance::of_turns(turns, search.turn_ops());
            let all = allowance.left();
            while allowance.left() >= search.turn_ops() && search.advance(&mut allowance).unwrap() {
            }
            assert!(search.ops() <= all, "{} of {all} ops in {budget}", search.ops());
            assert_eq!(allowance.left(), all - search.ops());
            stopped += usize::from(allowance.left() < search.turn_ops());
            most = most.max(search.ops() as f64 / search.runs() as f64 / (all / turns) as f64);
        }
    });
    assert!(stopped > 5 && most > 0.0, "{stopped} were stopped, {most} turns in a run");
}

#[test]
fn the_turns_of_a_policy_bound_its_search() {
    for learn in [Learn::Portfolio, Learn::Search { runs: 20 }] {
        few(|program, budget, memory| {
            let mut search =
                search(program, &replay(PolicyKind::Learned(learn), budget, memory, Dead::Linger));
            search.learn(learn).unwrap();
            let all = Allowance::of_turns(learn.turns(), search.turn_ops()).left();
            assert!(search.ops() <= all, "{learn:?}: {} of {all} ops", search.ops());
        });
    }
}
