//! Memory of a run, as read from its recording: bytes in use after each command, evictions and
//! regenerations.

use crate::common::training::Shared;
use remat::autograd::Tape;
use remat::evict::View;
use remat::nn::{Mode, Module as _, ResNet, Sequential, mlp, resnet};
use remat::optim::Optimizer;
use remat::trace::{Entry, JsonLines, Recorder};
use remat::unstable::event::{Cause, Event};
use remat::unstable::graph::Residence;
use remat::unstable::lab::{History, NoHistory, Replay, Trace};
use remat::unstable::program::Command;
use remat::{Builder, DType, Dead, Error, HostTensor, Listener, PolicyKind, Runtime, Stats};
use std::sync::{Arc, Mutex};

/// Recorder that keeps its entries.
#[derive(Clone, Debug, Default)]
struct Kept(Arc<Mutex<Vec<Entry>>>);

impl Kept {
    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Reads the recording back, as from a file.
    fn trace(&self) -> Trace {
        let text = Shared::default();
        let mut lines = JsonLines::to(text.clone());
        self.0.lock().unwrap().iter().for_each(|entry| lines.record(entry));
        lines.finish().unwrap();
        Trace::read(&text.0.lock().unwrap()[..], "kept.jsonl").unwrap()
    }
}

impl Recorder for Kept {
    fn record(&mut self, entry: &Entry) {
        self.0.lock().unwrap().push(entry.clone());
    }

    fn finish(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn is_step(entry: &Entry) -> bool {
    matches!(entry, Entry::Did { command: Command::Step, .. })
}

/// Listener that keeps, for each end of a step, the bytes of evicted storages with handles.
#[derive(Clone, Debug, Default)]
struct HeldEvicted(Arc<Mutex<Vec<u64>>>);

impl Listener for HeldEvicted {
    fn on(&mut self, event: &Event, view: View<'_>) {
        if matches!(event, Event::DidStep { .. }) {
            let all = view.graph.storages().map(|(_, storage)| storage);
            let held = all.filter(|s| s.handles > 0 && s.residence == Residence::Evicted);
            self.0.lock().unwrap().push(held.map(|s| s.bytes).sum());
        }
    }
}

/// Recorded run, whose counters are read after each command.
struct Watched {
    runtime: Runtime,
    kept: Kept,
    held_evicted: HeldEvicted,
    /// Number of entries after each command, and the counters.
    seen: Vec<(usize, Stats)>,
}

impl Watched {
    fn new(builder: Builder, start: fn(Builder) -> Result<Runtime, Error>) -> Self {
        let (kept, held_evicted) = (Kept::default(), HeldEvicted::default());
        let runtime = start(builder.record(kept.clone()).listen(held_evicted.clone())).unwrap();
        Self { runtime, kept, held_evicted, seen: Vec::new() }
    }

    /// Reads the counters after a command. Returns the command's result.
    fn look<T>(&mut self, done: Result<T, Error>) -> Result<T, Error> {
        let stats = self.runtime.stats()?;
        self.seen.push((self.kept.len(), stats));
        done
    }

    /// Compares all counters with the recording.
    fn check(mut self, what: &str, is_done: bool) -> History {
        // This command makes the worker delete the dropped handles now, and not at an unknown later
        // time.
        self.look(Ok(())).unwrap();
        let trace = self.kept.trace();
        let history = trace.history().unwrap();
        // Each entry but the first and the last has one sample.
        let samples = &history.timeline.samples;
        assert_eq!(samples.len() + 1, self.kept.len(), "{what}");
        for (entries, stats) in &self.seen {
            let sample = samples[entries - 2];
            assert_eq!(sample.used, stats.used_bytes, "{what}, after entry {entries}");
            let cost = stats.base_cost + stats.recompute_cost;
            assert!((sample.at - cost).abs() <= 1e-9 * cost, "{what}: {} {cost}", sample.at);
        }
        let (_, stats) = self.seen.last().unwrap();
        assert!(samples.is_sorted_by(|a, b| a.at <= b.at), "{what}");
        assert_eq!(history.timeline.budget, stats.budget_bytes);
        assert_eq!(history.steps, stats.steps, "{what}");
        // A failed op is an op of the program, but is not counted by the engine.
        assert!(history.ops >= stats.ops, "{what}");
        assert!(history.ops == stats.ops || !is_done, "{what}");
        let of = |wanted: fn(Cause) -> bool| {
            let of_kind = history.evictions.iter().filter(|(cause, _)| wanted(**cause));
            of_kind.fold((0, 0), |(times, bytes), (_, tally)| {
                (times + tally.times, bytes + tally.bytes)
            })
        };
        assert_eq!(of(Cause::is_chosen), (stats.evictions, stats.evicted_bytes), "{what}");
        assert_eq!(of(|cause| cause == Cause::Unheld).0, stats.fake_deletes, "{what}");
        let regenerated: u64 = samples.iter().map(|sample| sample.regenerated).sum();
        assert_eq!(history.regenerations.bytes, regenerated);
        let by_op = history.regenerated_ops.iter().map(|(_, tally)| tally.times);
        assert_eq!(history.regenerations.times, by_op.sum::<u64>());
        // Bytes of evicted storages with handles, at the ends of steps.
        let kept = self.kept.0.lock().unwrap();
        let ends = kept.iter().enumerate().filter(|(_, entry)| is_step(entry));
        let evicted: Vec<u64> = ends.map(|(at, _)| samples[at - 1].evicted).collect();
        assert_eq!(evicted, *self.held_evicted.0.lock().unwrap(), "{what}");
        if is_done && let Some(at) = kept.iter().rposition(is_step) {
            let Entry::Did { peak, .. } = kept[at] else { unreachable!("it is a step") };
            assert_eq!(Some(history.peak_bytes), peak);
            assert_eq!(history.peak_bytes, stats.peak_bytes, "{what}");
        }
        history.clone()
    }
}

fn cpu(builder: Builder) -> Result<Runtime, Error> {
    builder.threads(1).cpu()
}

/// Network to train.
#[derive(Clone, Copy, Debug)]
enum Net {
    Mlp,
    ResNet,
}

/// Trains `steps` steps, reading the counters after each call.
fn train(watched: &mut Watched, net: Net, batch: usize, steps: usize) -> Result<(), Error> {
    let runtime = watched.runtime.clone();
    let mut network: Sequential = match net {
        Net::Mlp => mlp(&runtime, 3 * 8 * 8, &[64, 32], 10)?,
        Net::ResNet => resnet(&runtime, ResNet::Cifar { n: 1 }, 3, [8, 8], 10)?,
    };
    let mut sgd = Optimizer::sgd(0.1, 0.9, 5e-4);
    for _ in 0..steps {
        let images = HostTensor::zeros(DType::F32, [batch, 3, 8, 8])?;
        let images = watched.look(runtime.put(images))?;
        let labels = watched.look(runtime.put(HostTensor::zeros(DType::I32, [batch])?))?;
        let tape = Tape::new(&runtime);
        tape.watch(&mut network);
        let logits = watched.look(network.forward(&images, Mode::Train))?;
        drop(images);
        let loss = watched.look(logits.cross_entropy(&labels))?;
        drop((labels, logits));
        let done = sgd.minimize(tape, &loss, &mut network);
        watched.look(done)?;
        watched.look(runtime.get(&loss))?;
        drop(loss);
        watched.look(runtime.step())?;
    }
    Ok(())
}

/// Runs a chain of single ops, with evictions and reads. Between two comparisons of the counters,
/// there are only one command and deletions.
fn single_ops(watched: &mut Watched) -> Result<(), Error> {
    let runtime = watched.runtime.clone();
    let mut state = watched.look(runtime.put_leaf(HostTensor::f32([512], vec![0.5; 512])?))?;
    for step in 0..3 {
        let mut held = vec![watched.look(runtime.put(HostTensor::f32([512], vec![1.5; 512])?))?];
        for i in 0..12 {
            let next = &held[i] + &state;
            held.push(watched.look(next)?);
            if i % 4 == 3 {
                let view = held[i].reshape(&[2, 256]);
                held[i] = watched.look(watched_flat(view))?;
            }
        }
        watched.look(runtime.drop_now(&held[5]))?;
        watched.look(held[6].to_host())?;
        held.drain(3..7);
        watched.look(runtime.commit(&held[6]))?;
        for tensor in &held {
            watched.look(tensor.to_host())?;
        }
        let others = &held[held.len() - 1];
        let done = runtime.update(remat::unstable::ops::Accumulate, &mut [&mut state], &[others]);
        watched.look(done)?;
        if step == 1 {
            let done = state.replace(&held[2]);
            watched.look(done)?;
        }
        watched.look(runtime.step())?;
    }
    Ok(())
}

/// Reshapes a view, which makes a view of a view.
fn watched_flat(view: Result<remat::Tensor, Error>) -> Result<remat::Tensor, Error> {
    view?.reshape(&[512])
}

fn builders(budget: u64) -> impl Iterator<Item = (String, Builder)> {
    let policies = PolicyKind::all().chain([PolicyKind::None]);
    let grid = policies.flat_map(move |policy| {
        [(Dead::Drop, None), (Dead::Keep, None), (Dead::Drop, Some(budget * 6 / 10))]
            .map(|(dead, threshold)| (policy, dead, threshold))
    });
    grid.map(move |(policy, dead, threshold)| {
        let mut builder =
            Runtime::builder().budget(budget).min_evict_bytes(1).policy(policy).dead(dead);
        if let Some(threshold) = threshold {
            builder = builder.eviction_threshold(threshold);
        }
        (format!("{policy} {dead:?} within {budget}, from {threshold:?}"), builder)
    })
}

/// Smallest budget in which nothing is evicted.
fn full_budget(work: impl FnOnce(&mut Watched) -> Result<(), Error>) -> u64 {
    let mut watched = Watched::new(Runtime::builder().budget("1GiB"), Builder::sim);
    work(&mut watched).unwrap();
    let mut replay = Replay::new(PolicyKind::None, 1);
    replay.memory = remat::unstable::lab::MemoryKind::Arena;
    let trace = watched.kept.trace();
    replay.unbudgeted(trace.program()).unwrap().full_budget
}

#[test]
fn the_history_of_training_is_what_was_in_use_after_each_command() {
    let mut told = [0; 2];
    for net in [Net::Mlp, Net::ResNet] {
        let full = full_budget(|watched| train(watched, net, 96, 2));
        for percent in [100, 80, 60, 40] {
            for (what, builder) in builders(full * percent / 100) {
                let mut watched = Watched::new(builder, Builder::sim);
                // The memory of a failed run is drawn as well.
                let done = train(&mut watched, net, 96, 2);
                let what = format!("{net:?} at {percent} %, {what}");
                let history = watched.check(&what, done.is_ok());
                assert!(done.is_ok() || percent < 100, "{what}");
                told[0] += u64::from(done.is_ok() && history.regenerations.times > 0);
                told[1] += u64::from(done.is_err());
            }
        }
    }
    assert!(told[0] >= 50 && told[1] >= 10, "runs that were drawn, and failed ones: {told:?}");
}

#[test]
fn the_history_of_single_ops_is_what_was_in_use_after_each() {
    let full = full_budget(single_ops);
    for percent in [100, 70, 50, 35, 20, 10] {
        for start in [Builder::sim as fn(Builder) -> _, cpu] {
            for (what, builder) in builders(full * percent / 100) {
                let mut watched = Watched::new(builder, start);
                let done = single_ops(&mut watched);
                watched.check(&format!("at {percent} %, {what}"), done.is_ok());
            }
        }
    }
}

/// A put for which memory was short is not resident, and costs nothing until its value is read.
#[test]
fn a_deferred_put_is_drawn_when_it_is_made() {
    let mut watched = Watched::new(Runtime::builder().budget(4096).min_evict_bytes(1), cpu);
    let runtime = watched.runtime.clone();
    let full = watched.look(runtime.put_leaf(HostTensor::f32([1024], vec![1.0; 1024]).unwrap()));
    let late = watched.look(runtime.put(HostTensor::f32([512], vec![2.0; 512]).unwrap())).unwrap();
    drop(full);
    assert_eq!(watched.look(late.to_vec::<f32>()).unwrap(), [2.0; 512]);
    let history = watched.check("put off", true);
    assert_eq!((history.regenerations.times, history.evictions.len()), (1, 0));
    assert_eq!(history.timeline.samples.iter().map(|s| s.evicted).max(), Some(2048));
}

#[test]
fn events_during_a_command_are_recorded_before_it() {
    let watched = Watched::new(Runtime::builder().budget(4096).min_evict_bytes(1), cpu);
    let runtime = watched.runtime.clone();
    let x = runtime.put(HostTensor::f32([512], vec![1.0; 512]).unwrap()).unwrap();
    let y = (&x + &x).unwrap();
    let z = (&y + &y).unwrap();
    runtime.get(&x).unwrap();
    let last = z.id();
    drop(z);
    runtime.sync().unwrap();
    let kept = watched.kept.0.lock().unwrap().clone();
    let ([x, y], z) = ([x, y].map(|tensor| tensor.id()), last);
    let words = |entry: &Entry| match *entry {
        Entry::Did { ref command, used: Some(used), .. } => {
            let tensor = match command {
                Command::Put { tensor, .. } | Command::Get(tensor) | Command::Del(tensor) => tensor,
                Command::Apply(call) => &call.made,
                other => return format!("{}: {used}", other.name()),
            };
            format!("{} {tensor}: {used}", command.name())
        }
        Entry::Evict { tensor, cause, used, .. } => format!("evict {tensor}, {cause:?}: {used}"),
        Entry::Regenerate { tensor, used, .. } => format!("regenerate {tensor}: {used}"),
        ref other => format!("{other:?}"),
    };
    let told: Vec<String> = kept[1..].iter().map(words).collect();
    let expected = [
        format!("put {x}: 2048"),
        format!("apply {y}: 4096"),
        format!("evict {x}, Room: 2048"),
        format!("apply {z}: 4096"),
    ];
    assert_eq!(told[..4], expected);
    let back = told.iter().position(|line| *line == format!("regenerate {x}: 4096")).unwrap();
    assert!(told[back - 1].starts_with("evict ") && told[back + 1].starts_with("get "), "{told:?}");
    // A query that waits for all earlier commands is recorded at its position.
    assert_eq!(told[told.len() - 2..], [format!("del {z}: 2048"), "sync: 2048".to_owned()]);
}

#[test]
fn traces_without_used_bytes_have_no_history() {
    let log = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/small.log");
    assert_eq!(Trace::open(log).unwrap().history().unwrap_err(), NoHistory::Log);
    let lines = |begin: &str, used: &str| {
        let text = format!(
            "{{\"event\":\"begin\",\"cost_model\":\"flops\",{begin}}}\n{{\"event\":\"put\",\"tensor\":3,\"bytes\":8,\"cost\":1.0{used}}}\n\
             {{\"event\":\"step\"{used}}}\n{{\"event\":\"end\"}}\n"
        );
        Trace::read(text.as_bytes(), "made up").unwrap()
    };
    let now = lines("\"version\":3,\"budget\":64", ",\"used\":8");
    assert_eq!(now.history().unwrap().timeline.samples.len(), 2);
    for (begin, used) in [
        ("\"version\":1", ""),
        ("\"version\":2", ""),
        ("\"version\":3", ""),
        ("\"version\":3,\"budget\":64", ""),
        ("\"version\":3", ",\"used\":8"),
    ] {
        let then = lines(begin, used);
        assert_eq!(then.history().unwrap_err(), NoHistory::Unknown, "{begin}");
        let commands = |trace: &Trace| format!("{:?}", trace.program().commands());
        assert_eq!(commands(&then), commands(&now), "{begin}");
    }
    let repeated = now.repeat_step(2).unwrap();
    assert_eq!(repeated.history().unwrap_err(), NoHistory::Repeated);
}
