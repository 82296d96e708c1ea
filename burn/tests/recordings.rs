//! A recording of a Burn run replays in remat's lab with the same evictions.

mod common;

use burn_flex::Flex;
use common::{Cnn, MlpDropout, Net, Transformer, train};
use remat_burn::remat::evict::{Evictor, Learn, Victim, View, Want};
use remat_burn::remat::trace::JsonLines;
use remat_burn::remat::unstable::engine::Settings;
use remat_burn::remat::unstable::event::{Event, Hears};
use remat_burn::remat::unstable::lab::{Replay, Trace};
use remat_burn::remat::unstable::program::KnownSteps;
use remat_burn::remat::{Listener, PolicyKind, RecomputeLimit};
use std::io::Write;
use std::sync::{Arc, Mutex};

/// Evictions and regenerations in order, each with its bytes and whether it was an eviction.
#[derive(Clone, Debug, Default)]
struct Heard(Arc<Mutex<Vec<(u64, bool)>>>);

impl Heard {
    fn hear(&self, event: &Event) {
        match *event {
            Event::DidEvict { bytes, .. } => self.0.lock().unwrap().push((bytes, true)),
            Event::DidRegenerate { bytes, .. } => self.0.lock().unwrap().push((bytes, false)),
            _ => {}
        }
    }
}

impl Listener for Heard {
    fn on(&mut self, event: &Event, _: View<'_>) {
        self.hear(event);
    }
}

/// Evictor that passes all events to an inner evictor, and collects them.
#[derive(Debug)]
struct Overheard(Box<dyn Evictor>, Heard);

impl Evictor for Overheard {
    fn next(&mut self, want: Want, view: View<'_>) -> Option<Victim> {
        self.0.next(want, view)
    }

    fn on(&mut self, event: &Event, view: View<'_>) {
        self.1.hear(event);
        self.0.on(event, view);
    }

    /// Selects only the events that the inner evictor requests. Other events would mislead the
    /// inner evictor.
    fn hears(&self) -> Hears {
        self.0.hears()
    }

    fn score_evaluations(&self) -> u64 {
        self.0.score_evaluations()
    }
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn replays<N: Net>(policy: PolicyKind, percent: u64, look_ahead: usize) {
    replays_knowing::<N>(policy, percent, look_ahead, None);
}

fn replays_knowing<N: Net>(
    policy: PolicyKind,
    percent: u64,
    look_ahead: usize,
    known: Option<KnownSteps>,
) {
    let is_learned = matches!(policy, PolicyKind::Learned(_));
    // Steps are recognized after five steps.
    let steps = if is_learned { 5 } else { 2 };
    let what = std::any::type_name::<N>();
    // Peak bytes without a limit.
    let full = {
        let device = remat_burn::budget("1GiB").serve::<Flex>(Default::default()).unwrap();
        train::<N>(&device.autodiff(), 2, || device.step().unwrap());
        device.stats().unwrap().peak_bytes
    };
    // A recorded run under the budget.
    let (file, heard) = (Shared::default(), Heard::default());
    let mut builder = remat_burn::budget(full * percent / 100);
    if let Some(known) = known {
        builder = builder.known_steps(known);
    }
    let device = builder
        .policy(policy)
        .look_ahead(look_ahead)
        .recompute_limit(3.0)
        .record(JsonLines::to(file.clone()))
        .listen(heard.clone())
        .serve::<Flex>(Default::default())
        .unwrap();
    train::<N>(&device.autodiff(), steps, || device.step().unwrap());
    let ran = device.stats().unwrap();
    println!("{what} {percent} %\n{}", device.summary().unwrap());
    device.finish_recording().unwrap();
    // The replay of the recording in the lab.
    let bytes = file.0.lock().unwrap().clone();
    let trace = Trace::read(&bytes[..], "burn.jsonl").unwrap();
    let mut replay = Replay::new(policy, ran.budget_bytes);
    replay.settings = Settings::default();
    replay.settings.recompute_limit = Some(RecomputeLimit::Multiple(100.0));
    replay.window = trace.window();
    let again = Heard::default();
    let outcome = if is_learned {
        replay.as_run = Some(trace.known().clone());
        replay.run(trace.program()).unwrap()
    } else {
        let evictor = Overheard(policy.build(0), again.clone());
        replay.run_by(trace.program(), Box::new(evictor)).unwrap()
    };
    // Run and replay must have the same evictions and recomputation.
    assert!(outcome.slowdown().is_some(), "{what}: {:?}", outcome.status);
    assert!(ran.evictions > 0, "{what} under {percent} % evicts nothing");
    let stats = outcome.stats;
    assert_eq!(
        (
            stats.evictions,
            stats.recomputed_ops,
            stats.recompute_cost,
            stats.base_cost,
            stats.peak_bytes
        ),
        (ran.evictions, ran.recomputed_ops, ran.recompute_cost, ran.base_cost, ran.peak_bytes),
        "{what} by {policy} under {percent} %, {look_ahead} ahead"
    );
    // `learned` also receives forecasts, which this evictor does not pass on.
    if !is_learned {
        assert!(
            *again.0.lock().unwrap() == *heard.0.lock().unwrap(),
            "{what}: others were evicted"
        );
    }
}

#[test]
fn a_recording_replays_with_the_runs_very_evictions() {
    replays::<MlpDropout>(PolicyKind::DtrEq, 50, 0);
    replays::<MlpDropout>(PolicyKind::DtrEq, 35, 0);
    replays::<Transformer>(PolicyKind::Dtr, 70, 0);
    replays::<Cnn>(PolicyKind::DtrEq, 40, 0);
    replays::<Cnn>(PolicyKind::DtrEq, 50, 16);
}

#[test]
fn so_does_one_whose_steps_were_recognized_or_known() {
    for policy in [Learn::Ahead, Learn::Portfolio].map(PolicyKind::Learned) {
        if cfg!(feature = "lab") || policy == PolicyKind::Learned(Learn::Ahead) {
            replays::<Cnn>(policy, 50, 0);
            replays::<Transformer>(policy, 50, 0);
        }
    }
    let builder = remat_burn::budget("1GiB").known_steps(KnownSteps::marked());
    let device = builder.sim::<Flex>(Default::default()).unwrap();
    train::<Cnn>(&device.autodiff(), 4, || device.step().unwrap());
    let known = device.known_steps().unwrap();
    replays_knowing::<Cnn>(PolicyKind::Learned(Learn::Ahead), 30, 0, known);
}
