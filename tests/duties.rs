//! Duties of the engine beside running commands hold on every path. A loop may run by plan, under a
//! window, recorded, or while its steps are learned. The failures, counters, limits, cancellation
//! and warnings of the loop are always those of a plain loop.
//!
//! `docs/design.md` lists the duties.

use crate::common::{kind, say_nothing_of_what_is_on_purpose};
use remat::device::{DeviceError, cpu};
use remat::evict::View;
use remat::ops::CustomOp;
use remat::prelude::*;
use remat::unstable::event::Event;
use remat::unstable::ops::Accumulate;
use remat::unstable::program::{Entry, Recorder};
use remat::{Builder, CostModelKind, Layout, Listener, Plan, PolicyKind, Stats};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

const TURNS: usize = 20;
const LAYERS: usize = 6;

/// Way in which commands reach the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Path {
    Plain,
    Plan,
    Window,
    Recorded,
    /// Learns, and also uses plans.
    Learned,
}

const PATHS: [Path; 4] = [Path::Plan, Path::Window, Path::Recorded, Path::Learned];

/// Recorder that discards all entries.
#[derive(Debug)]
struct Nowhere;

impl Recorder for Nowhere {
    fn record(&mut self, _: &Entry) {}

    fn finish(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Path {
    fn of(self, builder: Builder) -> Builder {
        match self {
            Self::Plain => builder,
            Self::Plan => builder.plan(Plan::Auto),
            Self::Window => builder.look_ahead(4),
            Self::Recorded => builder.record(Nowhere),
            Self::Learned => builder.plan(Plan::Auto).policy(PolicyKind::default()),
        }
    }
}

/// Listener that counts events.
#[derive(Clone, Debug, Default)]
struct Heard(Arc<Mutex<Counts>>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    ops: u64,
    steps: u64,
    failures: u64,
    kept_leaves: u64,
    thrashes: u64,
    above_threshold: u64,
}

impl Listener for Heard {
    fn on(&mut self, event: &Event, _: View<'_>) {
        let mut counts = self.0.lock().unwrap();
        match event {
            Event::DidRun { again: false, .. } => counts.ops += 1,
            Event::DidReplay { ops, .. } => counts.ops += ops,
            Event::DidStep { .. } => counts.steps += 1,
            Event::DidFail { .. } => counts.failures += 1,
            Event::DidKeepLeaf { .. } => counts.kept_leaves += 1,
            Event::Thrash { .. } => counts.thrashes += 1,
            Event::AboveThreshold { .. } => counts.above_threshold += 1,
            _ => {}
        }
    }
}

/// Custom op that copies its input, after a wait, or that fails.
#[derive(Debug)]
struct Pass {
    fails: bool,
    waits: Option<Mutex<Receiver<()>>>,
    canceller: Option<remat::Canceller>,
}

impl CustomOp for Pass {
    fn name(&self) -> &str {
        "pass"
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Vec<Layout>, String> {
        Ok(vec![Layout::contiguous(DType::F32, *inputs[0].shape())])
    }

    fn cpu(&self, mut operands: cpu::Operands<'_>) -> Result<(), DeviceError> {
        if let Some(waits) = &self.waits {
            _ = waits.lock().unwrap().recv();
        }
        if let Some(canceller) = &self.canceller {
            canceller.cancel();
        }
        if self.fails {
            return Err(DeviceError::new("on purpose"));
        }
        let x: &[f32] = operands.read(0);
        operands.write::<f32>(0).copy_from_slice(x);
        Ok(())
    }
}

/// Extra act of a turn, beside what every turn does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Nothing,
    Fails,
    Cancels,
    /// Asks for the eviction of a leaf.
    DropsLeaf,
    Budget(u64),
    Threshold(u64),
}

struct Loop {
    runtime: Runtime,
    heard: Heard,
    weights: Vec<Tensor>,
    told: Vec<(usize, String)>,
    read: Vec<u32>,
}

impl Loop {
    fn new(path: Path, builder: Builder) -> Result<Self, Error> {
        let heard = Heard::default();
        let builder = builder.threads(1).min_evict_bytes(0u64).cost_model(CostModelKind::Flops);
        let runtime = path.of(builder.policy(PolicyKind::DtrEq).listen(heard.clone())).cpu()?;
        let weights =
            (0..LAYERS).map(|_| runtime.full(&[16, 16], 0.1)).collect::<Result<Vec<_>, _>>()?;
        weights.iter().try_for_each(|weight| runtime.commit(weight))?;
        Ok(Self { runtime, heard, weights, told: vec![], read: vec![] })
    }

    fn hear(&mut self, turn: usize, heard: Result<f32, Error>) {
        match heard {
            Ok(value) => self.read.push(value.to_bits()),
            Err(error) => self.told.push((turn, kind(&error))),
        }
    }

    /// Runs a forward pass, a backward pass over all values kept, and an update of each weight.
    fn turn(&mut self, turn: usize, deed: Deed) -> Result<(), Error> {
        let runtime = self.runtime.clone();
        let mut passed = vec![runtime.full(&[64, 16], 0.5)?];
        for weight in &self.weights {
            passed.push(passed[passed.len() - 1].matmul(weight)?.tanh()?);
        }
        let mut go: Option<Sender<()>> = None;
        let last = &passed[LAYERS];
        let op = match deed {
            Deed::Cancels => {
                let (sender, receiver) = channel();
                go = Some(sender);
                let canceller = Some(runtime.canceller());
                Pass { fails: false, waits: Some(Mutex::new(receiver)), canceller }
            }
            _ => Pass { fails: deed == Deed::Fails, waits: None, canceller: None },
        };
        let mut gradient = Tensor::apply(op, &[last])?.swap_remove(0);
        for layer in (0..LAYERS).rev() {
            let slope = passed[layer + 1].square()?;
            gradient = gradient.sub(&gradient.mul(&slope)?)?;
            let of_weight = passed[layer].transpose()?.matmul(&gradient)?;
            gradient = gradient.matmul(&self.weights[layer].transpose()?)?;
            let small = of_weight.tanh()?;
            runtime.update(Accumulate, &mut [&mut self.weights[layer]], &[&small])?;
        }
        drop(passed);
        match deed {
            Deed::DropsLeaf => runtime.drop_now(&self.weights[0])?,
            Deed::Budget(bytes) => {
                let done = runtime.set_budget(bytes).map(|()| 0.0);
                self.hear(turn, done);
            }
            Deed::Threshold(bytes) => {
                let done = runtime.set_eviction_threshold(Some(bytes)).map(|()| 0.0);
                self.hear(turn, done);
            }
            Deed::Nothing | Deed::Fails | Deed::Cancels => {}
        }
        let loss = gradient.mean()?;
        let pending = runtime.get_later(&loss)?;
        drop((loss, gradient));
        drop(go);
        let loss = pending.wait().map(|value| value.as_f32().unwrap()[0]);
        self.hear(turn, loss);
        runtime.step()
    }
}

/// Observations that are the same on each path.
#[derive(Debug, PartialEq)]
struct Seen {
    told: Vec<(usize, String)>,
    read: Vec<u32>,
    end: Option<String>,
    ops: u64,
    steps: u64,
    cost: f32,
    kept_leaves: u64,
    thrashed: bool,
    above_threshold: u64,
}

fn run(
    path: Path,
    builder: Builder,
    deed: impl Fn(usize) -> Deed,
) -> Result<(Seen, Stats, Counts), Error> {
    let mut one = Loop::new(path, builder)?;
    for turn in 0..TURNS {
        one.turn(turn, deed(turn))?;
    }
    let end = one.runtime.sync().err().map(|error| kind(&error));
    let stats = one.runtime.stats()?;
    let counts = *one.heard.0.lock().unwrap();
    assert_eq!(counts.ops, stats.ops, "{path:?}: listeners hear what is counted");
    assert_eq!(counts.steps, stats.steps, "{path:?}");
    assert_eq!(counts.thrashes, stats.thrashed_steps, "{path:?}");
    let seen = Seen {
        told: one.told,
        read: one.read,
        end,
        ops: stats.ops,
        steps: stats.steps,
        // Paths add the same costs in another order, so the sums are rounded.
        cost: stats.base_cost as f32,
        kept_leaves: counts.kept_leaves,
        thrashed: counts.thrashes > 0,
        above_threshold: counts.above_threshold,
    };
    Ok((seen, stats, counts))
}

fn peak() -> u64 {
    let builder = Runtime::builder().budget("64MiB");
    run(Path::Plain, builder, |_| Deed::Nothing).unwrap().1.peak_bytes
}

/// Runs loops that each have `deed` in one turn, so that `deed` comes while plans are prepared,
/// entered and followed.
fn at_each_turn(deed: Deed, budget: u64) {
    say_nothing_of_what_is_on_purpose();
    let mut planned = 0;
    for at in [0, 1, 2, 3, 4, 5, 6, 7, 12, TURNS - 2] {
        let of = |path| {
            let deed = |turn| if turn == at { deed } else { Deed::Nothing };
            run(path, Runtime::builder().budget(budget), deed).unwrap()
        };
        let (plain, ..) = of(Path::Plain);
        for path in PATHS {
            let (seen, stats, _) = of(path);
            assert_eq!(seen, plain, "{deed:?} in turn {at}, {path:?}");
            planned += stats.planned_steps;
        }
    }
    assert!(planned > TURNS as u64, "{deed:?}: {planned}");
}

#[test]
fn failures_are_told_and_everything_is_counted() {
    at_each_turn(Deed::Nothing, 4 * peak());
    at_each_turn(Deed::Fails, 4 * peak());
}

#[test]
fn a_wish_that_cannot_be_met_is_warned_of_each_time() {
    at_each_turn(Deed::DropsLeaf, 4 * peak());
    let always =
        |path| run(path, Runtime::builder().budget(4 * peak()), |_| Deed::DropsLeaf).unwrap();
    let (plain, ..) = always(Path::Plain);
    assert_eq!(plain.kept_leaves, TURNS as u64);
    for path in PATHS {
        assert_eq!(always(path).0, plain, "{path:?}");
    }
}

#[test]
fn settings_hold_at_once() {
    let peak = peak();
    at_each_turn(Deed::Budget(2 * peak), 4 * peak);
    at_each_turn(Deed::Threshold(3 * peak), 4 * peak);
    at_each_turn(Deed::Budget(10), 4 * peak);
}

/// A plan takes its whole block at once. The block may be larger than the bytes that steps without
/// a plan ever had in use.
#[test]
fn a_threshold_holds_by_plan() {
    let peak = peak();
    for percent in [101, 105, 110, 130] {
        let threshold = peak * percent / 100;
        let builder = || Runtime::builder().budget(4 * peak).eviction_threshold(threshold);
        let (plain, before, _) = run(Path::Plain, builder(), |_| Deed::Nothing).unwrap();
        assert!(before.peak_bytes <= threshold);
        for path in PATHS {
            let (seen, stats, _) = run(path, builder(), |_| Deed::Nothing).unwrap();
            assert_eq!(seen, plain, "{path:?}");
            assert!(stats.peak_bytes <= threshold, "{path:?}: {} of {threshold}", stats.peak_bytes);
        }
    }
}

/// Budgets in which steps recompute, with plans and without.
#[test]
fn recomputing_steps_can_be_cancelled_limited_and_warned_of() {
    let peak = peak();
    let (mut cancelled, mut thrashed, mut evicting, mut limited) = (0, 0, 0, 0);
    for percent in (40..90).step_by(5) {
        let builder = || Runtime::builder().budget(peak * percent / 100);
        let of = |path, deed: &dyn Fn(usize) -> Deed| run(path, builder(), deed);
        let Ok((plain, ..)) = of(Path::Plain, &|_| Deed::Nothing) else { continue };
        if !plain.told.is_empty() {
            continue;
        }
        for path in PATHS {
            let (seen, stats, counts) = of(path, &|_| Deed::Nothing).unwrap();
            assert_eq!(
                (&seen.told, &seen.read),
                (&plain.told, &plain.read),
                "{path:?} {percent} %"
            );
            evicting += stats.planned_steps_evicting;
            thrashed += counts.thrashes;
            // Both loops warn of thrashing, or neither does.
            assert_eq!(seen.thrashed, plain.thrashed, "{path:?} at {percent} %");
            for at in [3, 10, 15] {
                let deed = |turn| if turn == at { Deed::Cancels } else { Deed::Nothing };
                let (seen, ..) = of(path, &deed).unwrap();
                let (same, ..) = of(Path::Plain, &deed).unwrap();
                assert_eq!(seen.told, same.told, "{path:?} at {percent} %, cancelled in {at}");
                cancelled += seen.told.len();
            }
            let limit = builder().recompute_limit(0.05);
            let (seen, ..) = run(path, limit, |_| Deed::Nothing).unwrap();
            limited += seen.told.len();
            assert!(seen.told.iter().all(|(_, told)| told.contains("recompute limit")), "{seen:?}");
        }
    }
    println!(
        "{cancelled} cancelled, {thrashed} thrashed, {evicting} planned steps evict, {limited} limited"
    );
    assert!(cancelled > 0 && evicting > 0 && limited > 0);
}
