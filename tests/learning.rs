//! While a program runs, its runtime searches for the settings with which its steps recompute
//! least. Learning changes only evictions.

use remat::evict::{Clock, Forecast, Learn, View};
use remat::unstable::evict::Setting;

use remat::autograd::Gradients;
use remat::nn::{Mode, Module, mlp};
use remat::optim::Optimizer;
use remat::prelude::{Error, Runtime, Tape, Tensor};
use remat::unstable::event::Event;
use remat::unstable::lab::Search;
use remat::unstable::program::{KnownSteps, Learner, Turn};
use remat::unstable::step::StepFuture;
use remat::{Builder, CostModelKind, Listener, PolicyKind, Stats};
use remat_rng::SplitMix64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Runs a training loop of `steps` steps. If `looks` is above 0, an inference pass follows every
/// `looks` steps.
///
/// Returns the counters at the start and after each step.
fn train(
    builder: Builder,
    steps: usize,
    marked: bool,
    looks: usize,
) -> Result<(Runtime, Vec<Stats>), Error> {
    train_slowly(builder, steps, marked, looks, || {})
}

/// Like [`train`], but calls `pause` in each step.
fn train_slowly(
    builder: Builder,
    steps: usize,
    marked: bool,
    looks: usize,
    mut pause: impl FnMut(),
) -> Result<(Runtime, Vec<Stats>), Error> {
    let runtime = builder.cost_model(CostModelKind::Flops).sim()?;
    let hidden = [64; 14];
    let mut network = mlp(&runtime, 64, &hidden, 10)?;
    let mut optimizer = Optimizer::sgd(0.1, 0.9, 0.0);
    let mut stats = vec![runtime.stats()?];
    for step in 0..steps {
        let x = runtime.normal(&[2048, 64], 0.0, 1.0)?;
        let tape = Tape::new(&runtime);
        tape.watch(&mut network);
        let loss = network.forward(&x, Mode::Train)?.square()?.mean()?;
        pause();
        optimizer.minimize(tape, &loss, &mut network)?;
        if marked {
            runtime.step()?;
        }
        if looks > 0 && step % looks == looks - 1 {
            let x = runtime.normal(&[512, 64], 0.0, 1.0)?;
            network.forward(&x, Mode::Infer)?.mean()?.item()?;
        }
        stats.push(runtime.stats()?);
    }
    Ok((runtime, stats))
}

fn peak() -> u64 {
    train(Runtime::builder().budget("1GiB"), 3, true, 0).unwrap().1[3].peak_bytes
}

fn of(policy: &str, budget: u64) -> Builder {
    Runtime::builder().budget(budget).policy(policy.parse::<PolicyKind>().unwrap())
}

/// Cost recomputed between two steps, as a share of the work of those steps.
fn recomputed(stats: &[Stats], from: usize, to: usize) -> f64 {
    let (from, to) = (stats[from], stats[to]);
    (to.recompute_cost - from.recompute_cost) / (to.base_cost - from.base_cost)
}

/// With predictions of the step, less is recomputed than without, and with a search still less.
/// The test runs with and without marks of steps, and with passes of inference between steps.
#[test]
fn the_more_is_learned_the_less_is_recomputed() {
    let peak = peak();
    for (marked, looks) in [(true, 0), (false, 0), (true, 7), (false, 10)] {
        let [mut guessed, mut ahead, mut searched] = [0.0; 3];
        for percent in [40, 60] {
            let budget = peak * percent / 100;
            let run = |policy| {
                let (_, stats) = train(of(policy, budget), 50, marked, looks).unwrap();
                recomputed(&stats, 35, 50)
            };
            let each = [run("dtr-eq"), run("learned"), run("learned:search")];
            guessed += each[0];
            ahead += each[1];
            searched += each[2];
        }
        assert!(ahead < guessed, "marked {marked}, looks {looks}: {ahead}, dtr-eq {guessed}");
        assert!(searched < ahead, "marked {marked}, looks {looks}: {searched}, ahead {ahead}");
    }
}

/// In a budget that suffices, predicting the step takes no additional memory.
#[test]
fn nothing_is_kept_that_is_not_needed() {
    let peak = peak();
    for policy in ["learned", "learned:search"] {
        let (_, stats) = train(of(policy, 4 * peak), 30, true, 0).unwrap();
        assert_eq!(stats[30].peak_bytes, peak, "{policy}");
        assert_eq!(stats[30].evictions, 0, "{policy}");
    }
}

/// Forecasts of one run help the next run, once that run recognizes the step.
#[test]
fn forecasts_are_for_later_runs_too() {
    let budget = peak() * 45 / 100;
    let (runtime, first) = train(of("learned:search", budget), 20, true, 0).unwrap();
    let found = runtime.forecasts(Some(200)).unwrap();
    assert!(!found.is_empty());
    let (_, second) = train(of("learned", budget).forecasts(found), 20, true, 0).unwrap();
    let (_, plain) = train(of("learned", budget), 20, true, 0).unwrap();
    let share = |stats: &[Stats]| recomputed(stats, 5, 20);
    assert!(share(&second) <= share(&first), "{} {}", share(&second), share(&first));
    assert!(share(&second) < share(&plain), "{} {}", share(&second), share(&plain));
}

/// Learner that keeps the turns it is given.
#[derive(Debug)]
struct Notebook(Arc<Mutex<Vec<Turn>>>);

impl Learner for Notebook {
    fn begin(&mut self, turn: Turn) {
        self.0.lock().unwrap().push(turn);
    }
}

/// Number of ops in a turn, and numbers of simulated ops that were requested before each later
/// turn.
#[derive(Debug, Default)]
struct Asked {
    turn_ops: u64,
    ops: Vec<u64>,
}

/// Learner that keeps the numbers of simulated ops that the runtime requests.
#[derive(Debug)]
struct Counter(Arc<Mutex<Asked>>);

impl Learner for Counter {
    fn wants(&self, _step: &StepFuture, _budget: u64) -> bool {
        // Only the first kind of step is wanted.
        self.0.lock().unwrap().turn_ops == 0
    }

    fn begin(&mut self, turn: Turn) {
        self.0.lock().unwrap().turn_ops = turn.ops();
    }

    fn prepare(&mut self, _step: u64, _budget: u64, ops: u64) {
        self.0.lock().unwrap().ops.push(ops);
    }
}

/// Effort is counted in simulated ops, not in runs, so a search in a small budget takes no more ops
/// than in a large one.
#[test]
fn a_runtime_asks_for_as_many_simulated_ops_in_any_budget() {
    let peak = peak();
    let mut all = Vec::new();
    for percent in [45, 60, 80] {
        let asked = Arc::<Mutex<Asked>>::default();
        let builder = of("learned", peak * percent / 100).learn_by(Counter(asked.clone()));
        train(builder, 20, true, 0).unwrap();
        let Asked { turn_ops, ops } = std::mem::take(&mut *asked.lock().unwrap());
        assert!(turn_ops > 0 && ops.len() > 8, "{percent} %: {turn_ops}, {ops:?}");
        for (turn, &ops) in ops.iter().enumerate() {
            assert_eq!(ops, turn_ops * (72 + 8 * turn as u64), "{percent} %, turn {turn}");
        }
        all.push(turn_ops);
    }
    assert_eq!(all[0], all[1]);
    assert_eq!(all[1], all[2]);
}

/// A search uses a turn that was recorded without a limit, and finds a forecast for the budget of a
/// later run.
#[test]
fn turns_may_be_learned_from_elsewhere() {
    let turns = Arc::<Mutex<Vec<Turn>>>::default();
    let known = KnownSteps::marked();
    let unlimited = of("learned", 1 << 30).known_steps(known).learn_by(Notebook(turns.clone()));
    let (runtime, _) = train(unlimited, 6, true, 0).unwrap();
    let usual = turns.lock().unwrap().pop().expect("it was given a turn");
    let peak = peak();
    let mut better = 0;
    for percent in [35, 40, 45, 50, 60] {
        let budget = peak * percent / 100;
        let mut search = Search::of_turn(Turn { budget, ..usual.clone() }, 0).unwrap();
        search.learn(Learn::Portfolio).unwrap();
        let [best, others @ ..] = &search.finalists()[..] else { panic!("some pass") };
        let excess = |forecast: &Forecast| forecast.excess.expect("it passed");
        assert!(search.least() <= excess(best));
        assert!(others.iter().all(|other| other != best && excess(other) >= excess(best)));
        let with = of("learned", budget).forecasts([best.clone()]);
        let [with, without] =
            [with, of("learned", budget)].map(|builder| train(builder, 12, true, 0).unwrap().1);
        let [with, without] = [with, without].map(|stats| recomputed(&stats, 6, 12));
        assert!(with <= without * 1.001, "{percent} %: {with}, without {without}, by {best:?}");
        better += u32::from(with < 0.99 * without);
    }
    assert!(better > 1, "{better} of 5 forecasts help");

    // Setting a policy drops the learner.
    runtime.set_policy(PolicyKind::Learned(Learn::Ahead)).unwrap();
    drop(runtime);
    assert_eq!(Arc::strong_count(&turns), 1, "nobody has the notebook any more");
}

/// If turns with a forecast recompute much more than predicted, some turns run without the
/// forecast. The forecast is kept only if turns with it recompute less.
#[test]
fn a_forecast_that_does_not_hold_is_dropped() {
    let peak = peak();
    let mut dropped = 0;
    for percent in [35, 40, 45, 50] {
        let budget = peak * percent / 100;
        let (runtime, _) = train(of("learned:search", budget), 20, true, 0).unwrap();
        let found = runtime.forecasts(Some(200)).unwrap();
        let last = |change: &dyn Fn(&mut Forecast)| {
            let mut forecasts = found.clone();
            forecasts.iter_mut().for_each(change);
            let builder = of("learned", budget).forecasts(forecasts);
            recomputed(&train(builder, 30, true, 0).unwrap().1, 25, 30)
        };
        let good = last(&|_| {});
        let plain = last(&|forecast| forecast.step ^= 1);
        // A good forecast that predicts too little recomputation.
        let promised = last(&|forecast| forecast.excess = Some(0.0));
        assert!(promised <= good.min(plain) * 1.001, "{percent} %: {promised}, {good}, {plain}");
        // A bad forecast, as after a change of costs: the storage with the latest next use is
        // evicted first, whatever its recomputation costs.
        let bad = |excess| {
            last(&move |forecast| {
                forecast.clock = Clock::default();
                forecast.setting = Setting { live: 0.0, shared: 0.0, time: 16.0 };
                forecast.excess = Some(excess);
            })
        };
        // A bad forecast that predicts much recomputation predicts correctly, and is not dropped.
        let kept = bad(10.0);
        let mended = bad(good);
        assert!(mended <= plain.max(1.2 * good + 0.01) * 1.001, "{percent} %: {mended}, {plain}");
        dropped += u32::from(mended < 0.9 * kept);
    }
    assert!(dropped > 0, "no forecast was bad");
}

/// Listener that keeps evictions and regenerations. With random numbers, the listener also sleeps
/// after some ops, so that the search gets ahead.
#[derive(Debug)]
struct Sleepy {
    evictions: Arc<Mutex<Vec<Event>>>,
    random: Option<SplitMix64>,
}

impl Listener for Sleepy {
    fn on(&mut self, event: &Event, _: View<'_>) {
        match event {
            Event::DidEvict { .. } | Event::DidRegenerate { .. } => {
                self.evictions.lock().unwrap().push(*event);
            }
            Event::DidRun { .. } => self.random.iter_mut().for_each(sleep),
            _ => {}
        }
    }
}

fn sleep(random: &mut SplitMix64) {
    if random.below(16) == 0 {
        std::thread::sleep(Duration::from_micros(100 * random.below(8) as u64));
    }
}

#[test]
fn evictions_do_not_depend_on_how_fast_anything_is() {
    let budget = peak() * 45 / 100;
    for policy in ["learned:portfolio", "learned:search"] {
        let run = |seed: Option<u64>| {
            let evictions = Arc::default();
            let random = seed.map(SplitMix64::new);
            let listener = Sleepy { evictions: Arc::clone(&evictions), random };
            let mut own = seed.map(|seed| SplitMix64::new(!seed));
            let builder = of(policy, budget).listen(listener);
            let pause = || own.iter_mut().for_each(|random| (0..16).for_each(|_| sleep(random)));
            train_slowly(builder, 18, true, 5, pause).unwrap();
            Arc::into_inner(evictions).map(|evictions| evictions.into_inner().unwrap())
        };
        let expected = run(None);
        assert!(expected.as_ref().is_some_and(|events| events.len() > 1000));
        for seed in 0..20 {
            assert!(run(Some(seed)) == expected, "{policy}, seed {seed}");
        }
    }
}

/// Steps seen by one run, and forecasts for them, help the next run from its first step on.
#[test]
fn the_first_step_may_be_known() {
    let peak = peak();
    for (marked, looks) in [(true, 0), (false, 0), (true, 7), (false, 10)] {
        let builder = of("learned", 4 * peak).known_steps(KnownSteps::default());
        let (recognized, _) = train(builder, 4, marked, looks).unwrap();
        let steps = recognized.known_steps().unwrap().expect("steps are recognized");
        let [mut guessed, mut known] = [0.0; 2];
        for percent in [30, 40, 50, 60, 70] {
            let budget = peak * percent / 100;
            let builder = of("learned:portfolio", budget).known_steps(steps.clone());
            let (rehearsal, _) = train(builder, 4, marked, looks).unwrap();
            let found = rehearsal.forecasts(Some(64)).unwrap();
            assert!(!found.is_empty(), "marked {marked}, looks {looks}: {percent} %");
            let first = |builder: Builder| {
                let (_, stats) = train(builder, 1, marked, looks).unwrap();
                recomputed(&stats, 0, 1)
            };
            guessed += first(of("learned", budget));
            known += first(of("learned", budget).known_steps(steps.clone()).forecasts(found));
        }
        // Without marks, the runtime may recognize a step that begins at another command, so that
        // the first step is incomplete.
        let most = guessed * if marked { 0.98 } else { 1.01 };
        assert!(known < most, "marked {marked}, looks {looks}: {known}, {guessed}");
    }
}

/// A step that contains a smaller loop is sometimes mistaken for several steps. Searches still end,
/// and the recomputed work stays bounded.
#[test]
fn loops_in_steps_are_learned_too() {
    let accumulated = |builder: Builder, batches: usize| {
        let runtime = builder.cost_model(CostModelKind::Flops).sim().unwrap();
        let hidden = [64; 8];
        let mut network = mlp(&runtime, 64, &hidden, 10).unwrap();
        let mut optimizer = Optimizer::sgd(0.1, 0.9, 0.0);
        for _ in 0..6 {
            let mut gradients = Gradients::default();
            for batch in 0..batches {
                let x = runtime.normal(&[512, 64], 0.0, 1.0).unwrap();
                let tape = Tape::new(&runtime);
                tape.watch(&mut network);
                let loss = network.forward(&x, Mode::Train).unwrap().square().unwrap();
                let loss = loss.mean().unwrap();
                drop(x);
                if batch + 1 < batches {
                    tape.backward_onto(&loss, &mut gradients).unwrap();
                    continue;
                }
                let all = std::mem::take(&mut gradients);
                optimizer.minimize_with(tape, &loss, &mut network, all).unwrap();
            }
            runtime.step().unwrap();
        }
        runtime.sync().unwrap();
        runtime
    };
    let mut all = 0.0;
    for batches in 1..5 {
        let builder = of("learned", 1 << 30).known_steps(KnownSteps::default());
        let recognized = accumulated(builder, batches);
        let peak = recognized.stats().unwrap().peak_bytes;
        let steps = recognized.known_steps().unwrap().unwrap();
        for percent in [50, 60, 75] {
            let builder = of("learned:portfolio", peak * percent / 100);
            let runtime = accumulated(builder.known_steps(steps.clone()), batches);
            let stats = runtime.stats().unwrap();
            let guessed = accumulated(of("dtr-eq", peak * percent / 100), batches);
            let guessed = guessed.stats().unwrap().recompute_cost;
            all += stats.recompute_cost / guessed;
            runtime.forecasts(Some(40)).unwrap();
        }
    }
    assert!(all < 12.0, "worse than a guess: {}", all / 12.0);
}

/// Layers of the chain in which a step may differ.
const LAYERS: usize = 12;

/// Difference of a step.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// Additional op.
    More,
    /// One op less.
    Less,
    /// Another op.
    Other,
    /// The shape changes from this layer on.
    Shape,
    /// A read of the value.
    Read,
    /// Early end of the forward pass.
    Exit,
}

/// Runs steps of a chain of layers, forward and back. Step 6 differs at a layer. Returns the final
/// bits of the weight, and the runtime.
fn differing(builder: Builder, change: Option<(usize, Change)>) -> (Vec<u32>, Runtime) {
    let runtime = builder.cost_model(CostModelKind::Flops).cpu().unwrap();
    let ramp = |rows: usize| (0..rows * 32).map(|i| (i % 17) as f32 / 16.0 - 0.5).collect();
    let mut weight = runtime.tensor(&[32, 32], ramp(32)).unwrap();
    for step in 0..9 {
        let change = change.filter(|_| step == 6);
        let mut x = runtime.tensor(&[64, 32], ramp(64)).unwrap();
        let mut kept = Vec::new();
        for layer in 0..LAYERS {
            let here = change.filter(|(at, _)| *at == layer).map(|(_, change)| change);
            let w = &weight;
            let next = |x: &Tensor| x.matmul(w).unwrap();
            x = match here {
                Some(Change::More) => next(&x).square().unwrap().tanh().unwrap(),
                Some(Change::Less) => x.tanh().unwrap(),
                Some(Change::Other) => next(&x).square().unwrap(),
                Some(Change::Shape) => next(&x.slice(0, 0..16).unwrap()).tanh().unwrap(),
                _ => next(&x).tanh().unwrap(),
            };
            kept.push(x.clone());
            match here {
                Some(Change::Read) => drop(x.to_vec::<f32>().unwrap()),
                Some(Change::Exit) => break,
                _ => {}
            }
        }
        // The backward pass reads all values once more.
        let mut sum = x.mean().unwrap();
        for x in kept.into_iter().rev() {
            sum = (sum + x.square().unwrap().mean().unwrap()).unwrap();
        }
        let scale = ((sum * 1e-3).unwrap() + 0.999).unwrap();
        weight = (&weight * &scale).unwrap();
        runtime.step().unwrap();
    }
    let left: Vec<f32> = weight.to_vec().unwrap();
    (left.into_iter().map(f32::to_bits).collect(), runtime)
}

/// A step that differs from the prediction only loses its forecast. The bits stay the same and the
/// budget holds, wherever the step differs.
///
/// The earlier steps may be of the same run or known from another run.
#[test]
fn a_step_may_differ_anywhere() {
    use Change::{Exit, Less, More, Other, Read, Shape};
    let plenty = || of("learned", 1 << 30).known_steps(KnownSteps::default());
    let known = |runtime: &Runtime| runtime.known_steps().unwrap().expect("steps are recognized");
    let plain = differing(plenty(), None).1;
    let budget = plain.stats().unwrap().peak_bytes * 6 / 10;
    let usual = known(&plain);
    for change in [More, Less, Other, Shape, Read, Exit] {
        for at in 0..LAYERS {
            let change = Some((at, change));
            let (expected, other) = differing(plenty(), change);
            for (policy, seen) in [
                ("learned", None),
                ("learned", Some(&usual)),
                ("learned:portfolio", None),
                ("learned:portfolio", Some(&known(&other))),
            ] {
                let builder = match seen {
                    Some(seen) => of(policy, budget).known_steps(seen.clone()),
                    None => of(policy, budget),
                };
                let (found, runtime) = differing(builder, change);
                let stats = runtime.stats().unwrap();
                assert_eq!(found, expected, "{policy}, {change:?}");
                assert!(stats.peak_bytes <= budget, "{policy}, {change:?}: {stats:?}");
                assert!(stats.recomputed_ops > 0, "{policy}, {change:?}: {stats:?}");
            }
        }
    }
}
