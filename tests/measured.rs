//! A replay makes the evictions of its run even if the costs of an op differ from run to run: with
//! measured costs, and with costs that vary more.

use crate::common::heard::Heard;
use crate::common::training::{Shared, counts};
use crate::random_programs::public::check::check;
use crate::random_programs::public::draw::deterministic;
use crate::random_programs::public::play::{Part, play};
use crate::random_programs::public::setup::{Setup, shares};
use remat::autograd::Tape;
use remat::evict::{ByStep, Evictor, Victim, View, Want};
use remat::nn::{Mode, Module as _, ResNet, Sequential, mlp, resnet};
use remat::optim::Optimizer;
use remat::trace::JsonLines;
use remat::unstable::engine::Settings;
use remat::unstable::event::{Cause, Event, Hears};
use remat::unstable::lab::{MemoryKind, Outcome, Replay, Status, Trace};
use remat::{
    Builder, CostModel, CostModelKind, DType, Dead, Dims, Error, HostTensor, Listener, PolicyKind,
    Run, Runtime, Stats,
};
use remat_rng::SplitMix64;
use std::cell::Cell;
use std::time::Duration;

/// Cost model with random costs, which differ by up to a million times for the same op.
#[derive(Debug)]
struct Wild(SplitMix64);

impl CostModel for Wild {
    fn cost(&mut self, _: Run<'_>) -> f64 {
        10f64.powf(6.0 * self.0.unit() - 3.0)
    }
}

/// Source of short random sleeps.
#[derive(Debug)]
struct Sleeper(SplitMix64);

impl Sleeper {
    fn sleep(&mut self) {
        if self.0.one_in(16) {
            std::thread::sleep(Duration::from_micros(self.0.below(40) as u64));
        }
    }
}

impl Listener for Sleeper {
    fn on(&mut self, _: &Event, _: View<'_>) {
        self.sleep();
    }
}

/// Evictor that keeps the evictions and regenerations that it receives, and passes all calls on to
/// another evictor.
#[derive(Debug)]
struct Ear(Box<dyn Evictor>, Heard);

impl Evictor for Ear {
    fn next(&mut self, want: Want, view: View<'_>) -> Option<Victim> {
        self.0.next(want, view)
    }

    fn on(&mut self, event: &Event, view: View<'_>) {
        let all = self.0.hears();
        let of_memory = is_of_memory(event);
        if of_memory {
            self.1.clone().on(event, view);
        }
        let is_eviction = of_memory || matches!(event, Event::WillForget { .. });
        if !is_eviction || all.and(Hears::EVICTIONS) == all {
            self.0.on(event, view);
        }
    }

    fn by_step(&mut self) -> Option<&mut dyn ByStep> {
        self.0.by_step()
    }

    fn evicts(&self) -> bool {
        self.0.evicts()
    }

    fn hears(&self) -> Hears {
        self.0.hears().and(Hears::EVICTIONS)
    }

    fn kind(&self) -> Option<PolicyKind> {
        self.0.kind()
    }
}

/// Whether the event is an eviction or a regeneration.
fn is_of_memory(event: &Event) -> bool {
    matches!(event, Event::DidEvict { .. } | Event::DidRegenerate { .. })
}

/// Evictions and regenerations since the last call.
fn story(heard: &Heard) -> Vec<Event> {
    heard.take().into_iter().filter(is_of_memory).collect()
}

/// Number of values that were deferred for lack of memory.
fn put_off(story: &[Event]) -> usize {
    let put_off = |event: &&Event| matches!(event, Event::DidEvict { cause: Cause::Postponed, .. });
    story.iter().filter(put_off).count()
}

/// Recorded run.
struct Recorded {
    trace: Trace,
    story: Vec<Event>,
    stats: Stats,
}

/// Records a run whose worker sleeps now and then.
fn recorded(
    builder: Builder,
    start: impl FnOnce(Builder) -> Result<Runtime, Error>,
    seed: u64,
    work: impl FnOnce(&Runtime) -> Result<(), Error>,
) -> Result<Recorded, Error> {
    let (text, heard) = (Shared::default(), Heard::default());
    let sleeper = Sleeper(SplitMix64::new(seed));
    let builder = builder.record(JsonLines::to(text.clone())).listen(heard.clone()).listen(sleeper);
    let runtime = start(builder)?;
    work(&runtime)?;
    let stats = runtime.stats()?;
    runtime.finish_recording()?;
    let text = text.0.lock().unwrap();
    let trace = Trace::read(&**text, "run").unwrap_or_else(|error| panic!("{error}"));
    Ok(Recorded { trace, story: story(&heard), stats })
}

/// Replays a run. Fails unless the same is evicted and regenerated, in the same order and at the
/// same cost.
fn replays(run: &Recorded, replay: &Replay, what: &str) {
    let heard = Heard::default();
    let evictor = match replay.sqrt_sampling {
        true => replay.policy.build_sampled(replay.seed),
        false => replay.policy.build(replay.seed),
    };
    let ear = Ear(evictor, heard.clone());
    let replay = Replay { as_run: Some(run.trace.known().clone()), ..replay.clone() };
    let outcome = replay.run_by(run.trace.program(), Box::new(ear)).unwrap();
    assert!(matches!(outcome.status, Status::Done), "{what}: {:?}", outcome.status);
    let story = story(&heard);
    let parts = story.iter().zip(&run.story).position(|(a, b)| a != b);
    let parts = parts.map(|at| (at, story[at], run.story[at]));
    assert!(parts.is_none(), "{what}: {parts:?} of {}", story.len());
    assert_eq!(story.len(), run.story.len(), "{what}");
    assert_eq!(counts(&outcome.stats), counts(&run.stats), "{what}");
    let costs = |stats: &Stats| (stats.base_cost, stats.recompute_cost);
    assert_eq!(costs(&outcome.stats), costs(&run.stats), "{what}");
}

#[derive(Clone, Copy, Debug)]
enum Net {
    Mlp,
    ResNet(ResNet),
}

/// Trains `steps` steps on images of 3x8x8, on a thread that sleeps now and then.
fn train(runtime: &Runtime, net: Net, steps: usize, seed: u64) -> Result<(), Error> {
    let mut sleeper = Sleeper(SplitMix64::new(!seed));
    let batch = if matches!(net, Net::Mlp) { 256 } else { 64 };
    let mut network: Sequential = match net {
        Net::Mlp => mlp(runtime, 3 * 8 * 8, &[32; 8], 10)?,
        Net::ResNet(kind) => resnet(runtime, kind, 3, [8, 8], 10)?,
    };
    let mut sgd = Optimizer::sgd(0.1, 0.9, 5e-4);
    let zeros = |dtype, shape: &[usize]| HostTensor::zeros(dtype, Dims::new(shape));
    for _ in 0..steps {
        let images = runtime.put(zeros(DType::F32, &[batch, 3, 8, 8])?)?;
        let labels = runtime.put(zeros(DType::I32, &[batch])?)?;
        let tape = Tape::new(runtime);
        tape.watch(&mut network);
        let logits = network.forward(&images, Mode::Train)?;
        sleeper.sleep();
        let loss = logits.cross_entropy(&labels)?;
        drop((images, labels, logits));
        sgd.minimize(tape, &loss, &mut network)?;
        sleeper.sleep();
        runtime.get(&loss)?;
        drop(loss);
        runtime.step()?;
    }
    runtime.sync()
}

fn policies() -> impl Iterator<Item = PolicyKind> {
    let names = ["dtr-eq", "dtr", "lru", "ancestors", "learned", "learned:portfolio"];
    names.into_iter().map(|name| name.parse().unwrap())
}

/// Replay with the settings of [`train`]'s runs.
fn replay(policy: PolicyKind, budget: u64, seed: u64) -> Replay {
    let mut settings = Settings::default();
    settings.dead = Dead::Drop;
    let memory = MemoryKind::Arena;
    Replay { memory, settings, seed, ..Replay::new(policy, budget) }
}

fn full_budget(net: Net, steps: usize) -> u64 {
    let builder = Runtime::builder().budget("1GiB");
    let plain = recorded(builder, Builder::sim, 0, |runtime| train(runtime, net, steps, 0));
    let replay = replay(PolicyKind::None, 1, 0);
    replay.unbudgeted(plain.unwrap().trace.program()).unwrap().full_budget
}

/// Runs on the simulated device, with costs that are never the same.
#[test]
fn a_replay_of_training_does_what_the_run_did_whatever_each_run_cost() {
    const STEPS: usize = 6;
    let nets = [Net::Mlp, Net::ResNet(ResNet::Cifar { n: 1 }), Net::ResNet(ResNet::R18)];
    let (mut seed, mut runs, mut recomputed) = (0, 0, 0);
    for net in nets {
        let full = full_budget(net, STEPS);
        for policy in policies() {
            for percent in [90, 80, 70, 60, 50] {
                seed += 1;
                let budget = full * percent / 100;
                let builder = Runtime::builder().budget(budget).policy(policy).dead(Dead::Drop);
                let builder = builder.seed(seed).cost_model(Wild(SplitMix64::new(seed)));
                let work = |runtime: &Runtime| train(runtime, net, STEPS, seed);
                // A failed command ends a replay but not a run.
                let Ok(run) = recorded(builder, Builder::sim, seed, work) else { continue };
                let what = format!("{net:?} by {policy} at {percent} %");
                replays(&run, &replay(policy, budget, seed), &what);
                runs += 1;
                recomputed += run.stats.recomputed_ops;
            }
        }
    }
    assert!(runs > 45 && recomputed > 2000, "{runs} {recomputed}");
}

/// Runs on the cpu with real times, while both threads sleep.
#[test]
fn a_replay_does_what_the_run_did_by_measured_costs() {
    const STEPS: usize = 4;
    let net = Net::ResNet(ResNet::Cifar { n: 1 });
    let full = full_budget(net, STEPS);
    let policies: Vec<PolicyKind> = policies().collect();
    let (mut runs, mut recomputed) = (0, 0);
    for seed in 0..20 {
        let policy = policies[seed as usize % policies.len()];
        let budget = full * [90, 80, 70, 65][seed as usize % 4] / 100;
        let builder = Runtime::builder().budget(budget).policy(policy).dead(Dead::Drop);
        let builder = builder.seed(seed).cost_model(CostModelKind::Measured).threads(1);
        let work = |runtime: &Runtime| train(runtime, net, STEPS, seed);
        // A run may fail because its free memory is fragmented.
        let Ok(run) = recorded(builder, Builder::cpu, seed, work) else { continue };
        replays(&run, &replay(policy, budget, seed), &format!("run {seed} by {policy}"));
        runs += 1;
        recomputed += run.stats.recomputed_ops;
    }
    // Times decide how many runs succeed, but a few always do.
    assert!(runs > 4 && recomputed > 100, "{runs} {recomputed}");
}

#[test]
fn a_replay_of_any_program_does_what_the_run_did_whatever_each_run_cost() {
    let [programs, recomputed, postponed] = [0u64, 0, 0].map(Cell::new);
    let usual = check("whatever it cost", 600, 1, (deterministic(70), shares()), |case| {
        let (program, shares) = case;
        let seed = shares.rest.seed;
        // The policy `none` evicts nothing and receives no events.
        if shares.rest.policy == PolicyKind::None {
            return;
        }
        let peak = {
            let runtime = Setup::plenty(seed, 1).builder().cpu().unwrap();
            play(&runtime, program, Part::Oracle(None), || {}).stats.peak_bytes
        };
        let setup = shares.of(peak);
        let builder = setup.builder().cost_model(Wild(SplitMix64::new(seed)));
        let failed = Cell::new(false);
        let run = recorded(builder, Builder::cpu, seed, |runtime| {
            let played = play(runtime, program, Part::Subject, || {});
            failed.set(played.observed.iter().any(|one| !one.failures.is_empty()));
            Ok(())
        });
        // A failed command ends a replay but not a run.
        if failed.get() {
            return;
        }
        let run = run.unwrap();
        let mut settings = Settings::default();
        settings.eviction_threshold = setup.threshold;
        settings.min_evict_bytes = setup.min_evict_bytes;
        settings.dead = setup.dead;
        if let Some(limit) = setup.regeneration_limit {
            settings.regeneration_limit = limit;
        }
        let replay = Replay {
            settings,
            sqrt_sampling: setup.sqrt_sampling,
            ..replay(setup.policy, setup.budget, seed)
        };
        replays(&run, &replay, &format!("{setup:?}"));
        programs.set(programs.get() + 1);
        recomputed.set(recomputed.get() + run.stats.recomputed_ops);
        postponed.set(postponed.get() + put_off(&run.story) as u64);
    });
    println!(
        "{} programs, {} ops recomputed, {} put off",
        programs.get(),
        recomputed.get(),
        postponed.get()
    );
    assert!(!usual || programs.get() > 100 && recomputed.get() > 1000);
}

/// A run of an op that is not in the recording gets a recorded cost of this op.
#[test]
fn a_recording_of_wild_costs_replays_in_any_budget_and_as_often_as_wanted() {
    let net = Net::ResNet(ResNet::Cifar { n: 1 });
    let full = full_budget(net, 3);
    let builder = Runtime::builder().budget(full * 7 / 10).policy(PolicyKind::DtrEq);
    let builder = builder.cost_model(Wild(SplitMix64::new(5)));
    let run = recorded(builder, Builder::sim, 5, |runtime| train(runtime, net, 3, 5)).unwrap();
    let program = run.trace.program();
    assert!(program.calls().filter(|call| call.op.reruns.is_some()).count() > 10);
    let longer = run.trace.clone().repeat_step(3).unwrap();
    for policy in policies() {
        for percent in [100, 90, 80, 75] {
            let replay = replay(policy, full * percent / 100, 0);
            let of = |outcome: &Outcome| {
                let Stats { evictions, recomputed_ops, base_cost, recompute_cost, .. } =
                    outcome.stats;
                (evictions, recomputed_ops, base_cost, recompute_cost)
            };
            let what = format!("{policy} at {percent} %");
            let outcome = replay.run(program).unwrap();
            assert!(matches!(outcome.status, Status::Done), "{what}: {:?}", outcome.status);
            assert_eq!(outcome.stats.base_cost, program.base_cost(), "{what}");
            assert_eq!(outcome.stats.recomputed_ops > 0, percent < 100, "{what}");
            // Costs are counted per replay, not over all replays.
            let again = std::thread::scope(|scope| {
                let both = [(), ()].map(|()| scope.spawn(|| replay.run(program).unwrap()));
                both.map(|one| one.join().unwrap())
            });
            again.iter().for_each(|again| assert_eq!(of(again), of(&outcome), "{what}"));
            let repeated = replay.run(longer.program()).unwrap();
            let base = longer.program().base_cost();
            assert!((repeated.stats.base_cost / base - 1.0).abs() < 1e-9, "{what}");
        }
    }
}

/// A deferred value has one cost while it waits and another once it is made.
#[test]
fn puts_and_ops_deferred_in_a_run_are_deferred_in_its_replay() {
    for (seed, policy) in (0..20).flat_map(|seed| policies().map(move |policy| (seed, policy))) {
        let builder = Runtime::builder().budget(4 * 1024u64).policy(policy).dead(Dead::Drop);
        let builder = builder.seed(seed).cost_model(Wild(SplitMix64::new(seed)));
        let run = recorded(builder, Builder::sim, seed, |runtime| {
            let kilobyte = || HostTensor::zeros(DType::F32, [256]);
            let mut leaves = Vec::new();
            for _ in 0..4 {
                leaves.push(runtime.put_leaf(kilobyte()?)?);
            }
            let (put, made) = (runtime.put(kilobyte()?)?, runtime.ones(&[256])?);
            runtime.sync()?;
            leaves.truncate(1);
            for _ in 0..3 {
                runtime.get(&put.add(&made)?)?;
                runtime.get(&put.square()?)?;
                runtime.get(&made.square()?)?;
                runtime.drop_now(&put)?;
                runtime.drop_now(&made)?;
            }
            Ok(())
        });
        let run = run.unwrap();
        assert_eq!(put_off(&run.story), 2, "{policy}");
        replays(&run, &replay(policy, 4 * 1024, seed), &format!("run {seed} by {policy}"));
    }
}
