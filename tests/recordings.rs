//! Recordings of earlier versions, some of them in `tests/data`, can still be read. New recordings
//! are checked line by line. A replay makes the evictions of its run.

use crate::common::training::{Shared, counts};
use remat::autograd::Tape;
use remat::evict::Learn;
use remat::nn::{Mode, Module as _, ResNet, Sequential, mlp, resnet};
use remat::op::Outputs;
use remat::optim::Optimizer;
use remat::trace::{Entry, JsonLines, Recorder};
use remat::unstable::engine::Settings;
use remat::unstable::event::Cause;
use remat::unstable::lab::{
    MemoryKind, NoHistory, RepeatError, Replay, Status, Trace, TraceProblem,
};
use remat::unstable::ops::Accumulate;
use remat::unstable::program::{Command, KnownSteps, RecordedCommand, TensorId, VERSION, Window};
use remat::{Builder, DType, Dead, Dims, Error, HostTensor, PolicyKind, Runtime};
use std::collections::HashMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn read(text: &str, name: &str) -> Trace {
    Trace::read(text.as_bytes(), name).unwrap_or_else(|error| panic!("{error}"))
}

fn unpacked(name: &str) -> String {
    let mut text = String::new();
    let file = std::fs::File::open(data(name)).unwrap();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    text
}

/// Recordings of two steps of a ResNet-20, made by programs that wrote these versions of the
/// format. The recording of version 1 is made from that of version 2, by removing the last line.
fn old_recordings() -> [(u32, &'static str, Trace); 3] {
    let second = unpacked("resnet20-v2.jsonl.gz");
    assert!(second.starts_with(r#"{"event":"begin","version":2,"#));
    let first = second.replacen(r#""version":2"#, r#""version":1"#, 1);
    let first = first.strip_suffix("{\"event\":\"end\"}\n").unwrap();
    [
        (1, "resnet20-v2", read(first, "resnet20-v2.jsonl")),
        (2, "resnet20-v2", Trace::open(data("resnet20-v2.jsonl.gz")).unwrap()),
        (3, "resnet20-v3", Trace::open(data("resnet20-v3.jsonl.gz")).unwrap()),
    ]
}

/// `recordings.csv` has the figures of `remat sweep` for these recordings. The columns are those of
/// before version 4. The figures were renewed when leaves without a handle began to give way.
#[test]
fn recordings_of_earlier_versions_replay_with_the_figures_they_had() {
    let text = std::fs::read_to_string(data("recordings.csv")).unwrap();
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    let rows: Vec<HashMap<&str, &str>> =
        lines.map(|line| names.iter().copied().zip(line.split(',')).collect()).collect();
    let mut compared = 0;
    for (version, name, trace) in old_recordings() {
        for row in rows.iter().filter(|row| row["trace"] == name) {
            let mut replay =
                Replay::new(row["policy"].parse().unwrap(), row["budget_bytes"].parse().unwrap());
            replay.memory =
                if row["arena"] == "bfc" { MemoryKind::Arena } else { MemoryKind::Counted };
            assert_eq!(row["dead"], "drop");
            replay.settings.dead = Dead::Drop;
            let what = format!("version {version}: {row:?}");
            let unbudgeted = replay.unbudgeted(trace.program()).unwrap();
            assert_eq!(unbudgeted.full_budget.to_string(), row["full_budget_bytes"], "{what}");
            assert_eq!(unbudgeted.peak_bytes.to_string(), row["unbudgeted_peak_bytes"], "{what}");
            let outcome = replay.run(trace.program()).unwrap();
            let slowdown = outcome.slowdown().map_or(String::new(), |slowdown| {
                let digits = format!("{slowdown:.6}");
                digits.trim_end_matches('0').trim_end_matches('.').to_owned()
            });
            let wanted = row["slowdown"].trim_end_matches(".0");
            assert_eq!(slowdown, wanted, "{what}");
            let stats = outcome.stats;
            if !slowdown.is_empty() {
                assert_eq!(trace.program().ops() as u64, stats.ops, "{what}");
            }
            for (key, found) in [
                ("peak_bytes", stats.peak_bytes),
                ("ops", stats.ops),
                ("recomputed_ops", stats.recomputed_ops),
                ("evictions", stats.evictions),
                ("score_evaluations", stats.score_evaluations),
                ("compactions", stats.compactions),
                ("moved_bytes", stats.moved_bytes),
            ] {
                assert_eq!(found.to_string(), row[key], "{key} of {what}");
            }
            compared += 1;
        }
    }
    assert_eq!(compared, 96);
}

#[test]
fn earlier_versions_are_read_with_all_that_they_say() {
    for (version, name, trace) in old_recordings() {
        assert_eq!((trace.name(), trace.is_recording()), (name, true));
        assert!(trace.program().has_flops(), "version {version}");
        assert_eq!(trace.window(), Window::default(), "nobody looked ahead then");
        let program = trace.program();
        let steps = program.commands().iter().filter(|c| matches!(c, Command::Step)).count();
        assert_eq!(steps, 2);
        // Each repetition of a step has the same work.
        let [twice, thrice] = [2, 3].map(|times| trace.clone().repeat_step(times).unwrap());
        let base = |trace: &Trace| (trace.program().base_cost(), trace.program().ops());
        let (one, two, three) = (base(&trace), base(&twice), base(&thrice));
        assert_eq!(three.1 - two.1, two.1 - one.1, "version {version}");
        let [second, third] = [two.0 - one.0, three.0 - two.0];
        assert!((third / second - 1.0).abs() < 1e-9, "version {version}: {second} {third}");
        assert_eq!(trace.history().is_ok(), version >= 3);
    }
    // The history has the figures that the program drew when it made the recording.
    let [.., (_, _, trace)] = old_recordings();
    let history = trace.history().unwrap();
    assert_eq!((history.steps, history.ops, history.peak_bytes), (2, 648, 3_560_448));
    assert_eq!((history.regenerations.times, history.regenerations.bytes), (130, 13_773_312));
    let tally = |cause| (history.evictions[&cause].times, history.evictions[&cause].bytes);
    assert_eq!(tally(Cause::Room), (86, 8_595_968));
    assert_eq!(tally(Cause::Unheld), (278, 14_094_344));
    assert_eq!(
        (&*history.regenerated_ops[0].0, history.regenerated_ops[0].1.times),
        ("conv2d", 35)
    );
    assert!((history.recompute_cost - 0.582_151_552).abs() < 1e-9);
    let old = old_recordings();
    assert_eq!(old[1].2.history().unwrap_err(), NoHistory::Unknown);
}

#[test]
fn a_version_to_come_is_refused_by_its_number() {
    for version in [0, VERSION + 1, 99, u32::MAX] {
        // A recording of an unknown version is refused, whatever follows on its first line.
        for rest in [r#","cost_model":"flops"}"#, r#","costs":{}}"#] {
            let text = format!("{{\"event\":\"begin\",\"version\":{version}{rest}\n");
            let error = Trace::read(text.as_bytes(), "later.jsonl").unwrap_err();
            assert!(matches!(error.problem, TraceProblem::Version(found) if found == version));
            let expected = format!(
                "later.jsonl, line 1: the trace is of version {version}; this program reads versions 1 to {VERSION}"
            );
            assert_eq!(error.to_string(), expected);
        }
    }
}

/// Earlier recordings may list updated and fresh outputs in any order.
#[test]
fn updates_of_earlier_recordings_may_be_in_any_order() {
    let put = |tensor: u64, bytes: u64| {
        format!(r#"{{"event":"put","tensor":{tensor},"bytes":{bytes},"cost":1.0}}"#)
    };
    let update = |tensor: u64, input: u64, consumed: bool, bytes: u64| {
        format!(
            r#"{{"tensor":{tensor},"bytes":{bytes},"source":"in_place","input":{input},"consumed":{consumed}}}"#
        )
    };
    let fresh = r#"{"tensor":22,"bytes":16,"source":"fresh"}"#.to_owned();
    let outputs = [update(20, 2, true, 300), fresh, update(21, 0, false, 100)];
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for (version, order) in orders.into_iter().flat_map(|order| [(1, order), (3, order)]) {
        let listed = order.map(|i| outputs[i].clone()).join(",");
        let mut lines = vec![
            format!(r#"{{"event":"begin","version":{version},"cost_model":"flops"}}"#),
            put(10, 100),
            put(11, 200),
            put(12, 300),
            format!(
                r#"{{"event":"apply","op":"f","inputs":[10,11,12,11],"outputs":[{listed}],"workspace":0,"cost":5.0,"rematerializable":false}}"#
            ),
        ];
        // Tensor 20 was kept and can be deleted; tensor 12 was consumed and cannot.
        lines.extend([10, 11, 20].map(|n| format!(r#"{{"event":"del","tensor":{n}}}"#)));
        lines.extend([21, 22].map(|n| format!(r#"{{"event":"get","tensor":{n}}}"#)));
        lines.extend((version > 1).then(|| r#"{"event":"end"}"#.to_owned()));
        let text = lines.join("\n");
        let trace = read(&text, "orders.jsonl");
        let call = trace.program().calls().next().unwrap();
        let Outputs::Updates { targets: 2, fresh } = &call.outputs else { panic!("{call:?}") };
        assert_eq!((fresh.len(), fresh[0].bytes(), call.inputs.len()), (1, 16, 4));
        // Targets come first, in the order in which they were recorded.
        let third_first = order.iter().position(|i| *i == 0) < order.iter().position(|i| *i == 2);
        let expected = if third_first { [2, 0, 1, 1] } else { [0, 2, 1, 1] };
        assert_eq!(call.inputs[..], expected.map(TensorId), "{order:?}");
        let ended: Vec<TensorId> = call.ended().collect();
        assert_eq!(ended, [TensorId(2)], "{order:?}");
        let replay = Replay::new(PolicyKind::Lru, 1 << 20);
        // The peak is 100, 200 and 300 bytes, a copy of the first, and the 16 new bytes.
        assert_eq!(replay.unbudgeted(trace.program()).unwrap().peak_bytes, 716, "{order:?}");
        let outcome = replay.run(trace.program()).unwrap();
        assert!(matches!(outcome.status, Status::Done), "{order:?}: {:?}", outcome.status);
        let gone = text.replacen(r#""del","tensor":10"#, r#""del","tensor":12"#, 1);
        let error = Trace::read(gone.as_bytes(), "orders.jsonl").unwrap_err();
        assert!(matches!(error.problem, TraceProblem::UnknownTensor(12)), "{error}");
        assert_eq!(error.line, Some(6));
    }
}

/// Recorder that also keeps the entries it writes.
#[derive(Debug)]
struct Kept(Arc<Mutex<Vec<Entry>>>, JsonLines);

impl Recorder for Kept {
    fn record(&mut self, entry: &Entry) {
        self.0.lock().unwrap().push(entry.clone());
        self.1.record(entry);
    }

    fn finish(&mut self) -> std::io::Result<()> {
        self.1.finish()
    }
}

/// Network to train.
#[derive(Clone, Copy, Debug)]
enum Net {
    Mlp,
    ResNet(ResNet),
}

impl Net {
    /// Batch so large that activations take most of the memory.
    const fn batch(self) -> usize {
        match self {
            Self::Mlp => 512,
            Self::ResNet(_) => 64,
        }
    }
}

/// Trains `steps` steps on images of 3x16x16.
fn train(runtime: &Runtime, net: Net, steps: usize) -> Result<(), Error> {
    let batch = net.batch();
    let mut network: Sequential = match net {
        Net::Mlp => mlp(runtime, 3 * 16 * 16, &[64; 8], 10)?,
        Net::ResNet(kind) => resnet(runtime, kind, 3, [16, 16], 10)?,
    };
    let mut sgd = Optimizer::sgd(0.1, 0.9, 5e-4);
    let zeros = |dtype, shape: &[usize]| HostTensor::zeros(dtype, Dims::new(shape));
    // The scale is a leaf for all steps.
    let scale = runtime.put_leaf(HostTensor::f32([], vec![0.5]).expect("it is one"))?;
    runtime.label(&scale, "the \"scale\"")?;
    for _ in 0..steps {
        let images = runtime.put(zeros(DType::F32, &[batch, 3, 16, 16])?)?;
        let labels = runtime.put(zeros(DType::I32, &[batch])?)?;
        let tape = Tape::new(runtime);
        tape.watch(&mut network);
        let logits = network.forward(&images, Mode::Train)?;
        let loss = logits.cross_entropy(&labels)?.mul(&scale)?;
        drop((images, labels, logits));
        sgd.minimize(tape, &loss, &mut network)?;
        runtime.sync()?;
        runtime.get(&loss)?;
        drop(loss);
        runtime.step()?;
    }
    runtime.sync()
}

/// Records a run. Returns the text, the entries, and the runtime.
fn recorded(
    builder: Builder,
    work: impl FnOnce(&Runtime) -> Result<(), Error>,
) -> Result<(String, Vec<Entry>, Runtime), Error> {
    let (entries, text) = (Arc::<Mutex<Vec<Entry>>>::default(), Shared::default());
    let kept = Kept(Arc::clone(&entries), JsonLines::to(text.clone()));
    let runtime = builder.record(kept).sim()?;
    work(&runtime)?;
    runtime.finish_recording()?;
    let entries = entries.lock().unwrap().clone();
    let text = String::from_utf8(text.0.lock().unwrap().clone()).expect("JSON is text");
    Ok((text, entries, runtime))
}

fn plenty() -> Builder {
    Runtime::builder().budget("1GiB")
}

/// Number of commands of each kind.
fn kinds<'a>(commands: impl Iterator<Item = &'a RecordedCommand>) -> HashMap<&'static str, usize> {
    let mut kinds = HashMap::new();
    commands.for_each(|command| *kinds.entry(command.name()).or_default() += 1);
    kinds
}

#[test]
fn each_line_of_a_recording_reads_back_as_it_was() {
    let nets = [Net::Mlp, Net::ResNet(ResNet::Cifar { n: 1 }), Net::ResNet(ResNet::R18)];
    for (net, ahead) in nets.into_iter().flat_map(|net| [(net, 0), (net, 5)]) {
        // The budget is short, so that evictions are recorded.
        let (text, ..) = recorded(plenty(), |runtime| train(runtime, net, 2)).unwrap();
        let mut replay = Replay::new(PolicyKind::None, 1);
        replay.memory = MemoryKind::Arena;
        let budget = replay.unbudgeted(read(&text, "a").program()).unwrap().full_budget * 8 / 10;
        let short = Runtime::builder().budget(budget).look_ahead(ahead);
        // The training sends most kinds of commands, and the calls after the training send the
        // other kinds.
        let all = |runtime: &Runtime| {
            train(runtime, net, 2)?;
            let x = runtime.ones(&[4, 4])?;
            runtime.drop_now(&x)?;
            runtime.commit(&x)?;
            let [mut a, mut b, c] =
                [runtime.ones(&[4, 4])?, runtime.ones(&[2])?, runtime.ones(&[2])?];
            let kept = a.clone();
            let update = |target, other| remat::Update {
                op: Accumulate.into(),
                targets: vec![target],
                others: vec![other],
            };
            runtime.update_all(vec![update(&mut a, &x), update(&mut b, &c)])?;
            drop(kept);
            let turned = x.transpose()?;
            runtime.get(&turned).map(drop)
        };
        let (text, entries, _) = recorded(short, all).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), entries.len() + 1, "and the end");
        // Each line is read as its entry, and written again as the same text.
        for (line, entry) in lines.iter().zip(&entries) {
            let again: Entry = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
            assert_eq!(format!("{again:?}"), format!("{entry:?}"));
            assert_eq!(serde_json::to_string(&again).unwrap(), **line);
        }
        assert!(matches!(serde_json::from_str(lines[lines.len() - 1]), Ok(Entry::End)));
        let commands = || {
            entries.iter().filter_map(|entry| match entry {
                Entry::Did { command, .. } => Some(command),
                _ => None,
            })
        };
        let is_leaf =
            |command: &&RecordedCommand| matches!(command, Command::Put { leaf: true, .. });
        assert_eq!(commands().filter(is_leaf).count(), 1, "{net:?}");
        // Every kind of command is in the recording, and so are evictions and regenerations.
        let mut found = kinds(commands());
        assert_eq!(found["step"], 2);
        assert_eq!(found.remove("replace").is_some(), matches!(net, Net::ResNet(_)), "{net:?}");
        let mut names: Vec<&str> = found.into_keys().collect();
        names.sort_unstable();
        let expected = [
            "apply",
            "commit",
            "confirm",
            "del",
            "drop",
            "get",
            "label",
            "put",
            "step",
            "sync",
            "update_all",
        ];
        assert_eq!(names, expected, "{net:?}");
        let of_memory =
            |entry: &&Entry| matches!(entry, Entry::Evict { .. } | Entry::Regenerate { .. });
        assert!(entries.iter().filter(of_memory).count() > 10, "{net:?}");
        // The text is read as the same commands, apart from their tensor numbers.
        let trace = read(&text, "whole");
        assert_eq!(trace.window(), Window::of(ahead));
        let program = trace.program();
        assert_eq!(program.commands().len(), commands().count());
        let words = |command: &RecordedCommand| {
            let unnumbered = command.clone().renumbered(|_| TensorId(0));
            format!("{unnumbered:?}")
        };
        for (read, told) in program.commands().iter().zip(commands()) {
            assert_eq!(words(read), words(told));
        }
    }
}

#[test]
fn a_recorded_step_is_repeated_with_what_replaced_its_values() {
    let nets = [
        Net::Mlp,
        Net::ResNet(ResNet::Cifar { n: 1 }),
        Net::ResNet(ResNet::Cifar { n: 2 }),
        Net::ResNet(ResNet::R18),
    ];
    for net in nets {
        let of = |steps| {
            let (text, ..) = recorded(plenty(), |runtime| train(runtime, net, steps)).unwrap();
            read(&text, "steps")
        };
        // A recording of two steps, repeated four times, is compared with a run of five steps.
        let (repeated, real) = (of(2).repeat_step(4).unwrap(), of(5));
        let (repeated, real) = (repeated.program(), real.program());
        assert_eq!(repeated.ops(), real.ops(), "{net:?}");
        assert_eq!(kinds(repeated.commands().iter()), kinds(real.commands().iter()), "{net:?}");
        let [a, b] = [repeated, real].map(remat::unstable::command::Program::base_cost);
        assert!((a / b - 1.0).abs() < 1e-12, "{net:?}: {a} {b}");
        assert_eq!(repeated.alive().count(), real.alive().count(), "{net:?}");
        for memory in [MemoryKind::Counted, MemoryKind::Arena] {
            let mut replay = Replay::new(PolicyKind::DtrEq, 1);
            replay.memory = memory;
            let [a, b] = [repeated, real].map(|program| replay.unbudgeted(program).unwrap());
            assert_eq!((a.peak_bytes, a.full_budget), (b.peak_bytes, b.full_budget), "{net:?}");
            for percent in [100, 80] {
                replay.budget = a.full_budget * percent / 100;
                let [a, b] = [repeated, real].map(|program| replay.run(program).unwrap());
                let of = |outcome: &remat::unstable::lab::Outcome| {
                    let stats = &outcome.stats;
                    (stats.evictions, stats.recomputed_ops, stats.peak_bytes, stats.steps)
                };
                assert_eq!(of(&a), of(&b), "{net:?} at {percent} %, {memory:?}");
                assert!(a.slowdown().is_some(), "{net:?} at {percent} %: {:?}", a.status);
            }
        }
        // Each step replaces the tensors that the previous step made by replacement.
        let mut steps: Vec<Vec<(TensorId, TensorId)>> = vec![vec![]];
        for command in repeated.commands() {
            match *command {
                Command::Replace { target, made, .. } => {
                    steps.last_mut().unwrap().push((target, made));
                }
                Command::Step => steps.push(vec![]),
                _ => {}
            }
        }
        steps.pop();
        assert_eq!(steps.len(), 5);
        assert_eq!(steps[0].is_empty(), matches!(net, Net::Mlp), "{net:?}");
        for pair in steps.windows(2) {
            let made: Vec<TensorId> = pair[0].iter().map(|(_, made)| *made).collect();
            let replaced: Vec<TensorId> = pair[1].iter().map(|(target, _)| *target).collect();
            assert_eq!(made, replaced, "{net:?}");
        }
    }
    let nothing = recorded(plenty(), |runtime| runtime.ones(&[4]).map(drop)).unwrap().0;
    assert_eq!(read(&nothing, "a").repeat_step(2).unwrap_err(), RepeatError::NoStep);
}

/// The replay of a run under the cost model `flops` has exactly its evictions and recomputations,
/// for many settings and budgets.
#[test]
fn a_replay_evicts_and_recomputes_exactly_what_the_run_did() {
    let nets = [Net::Mlp, Net::ResNet(ResNet::Cifar { n: 1 }), Net::ResNet(ResNet::R18)];
    let (mut runs, mut evictions, mut recomputed) = (0, 0, 0);
    for net in nets {
        let work = |runtime: &Runtime| train(runtime, net, 2);
        let mut replay = Replay::new(PolicyKind::None, 1);
        replay.memory = MemoryKind::Arena;
        let (plain, ..) = recorded(plenty(), work).unwrap();
        let full = replay.unbudgeted(read(&plain, "plain").program()).unwrap().full_budget;
        let foresees = plenty().policy(PolicyKind::Learned(Learn::Ahead));
        // Some of the following runs begin with the known steps of this run.
        let known = recorded(foresees.known_steps(KnownSteps::default()), work).unwrap();
        let known = known.2.known_steps().unwrap();
        assert!(known.as_ref().is_some_and(|known| known.len() > 100));
        for policy in PolicyKind::all() {
            for (percent, dead, threshold, sqrt_sampling, min_evict_bytes, ahead) in [
                (100, Dead::Drop, None, false, None, 0),
                (85, Dead::Drop, None, false, None, 0),
                (85, Dead::Keep, None, true, Some(1), 7),
                (70, Dead::Drop, Some(60), false, Some(1), 0),
                (60, Dead::Keep, None, false, None, 3),
                (60, Dead::Drop, None, true, Some(1), 0),
            ] {
                let budget = full * percent / 100;
                let threshold = threshold.map(|percent| full * percent / 100);
                let seed = percent;
                let mut builder = Runtime::builder().budget(budget).policy(policy).dead(dead);
                builder = builder.sqrt_sampling(sqrt_sampling).seed(seed).look_ahead(ahead);
                if let Some(bytes) = threshold {
                    builder = builder.eviction_threshold(bytes);
                }
                if let Some(bytes) = min_evict_bytes {
                    builder = builder.min_evict_bytes(bytes);
                }
                if let Some(known) = known.clone().filter(|_| percent % 2 == 0) {
                    builder = builder.known_steps(known);
                }
                // A failed command ends a replay but not a run.
                let Ok((text, _, runtime)) = recorded(builder, work) else { continue };
                let ran = runtime.stats().unwrap();
                let trace = read(&text, "run");
                // The replay has the settings of the run, and its known steps and forecasts.
                let mut settings = Settings::default();
                settings.eviction_threshold = threshold;
                settings.min_evict_bytes = min_evict_bytes;
                settings.dead = dead;
                let window = trace.window();
                let replay = Replay {
                    budget,
                    settings,
                    policy,
                    sqrt_sampling,
                    seed,
                    window,
                    as_run: Some(trace.known().clone()),
                    ..replay.clone()
                };
                let outcome = replay.run(trace.program()).unwrap();
                let what = format!("{net:?} by {policy} at {percent} %, {dead:?}, {threshold:?}");
                assert!(matches!(outcome.status, Status::Done), "{what}: {:?}", outcome.status);
                assert_eq!(counts(&outcome.stats), counts(&ran), "{what}");
                let costs = [outcome.stats.recompute_cost, ran.recompute_cost];
                assert!((costs[0] - costs[1]).abs() <= 1e-9 * costs[1], "{what}: {costs:?}");
                runs += 1;
                evictions += ran.evictions;
                recomputed += ran.recomputed_ops;
            }
        }
    }
    assert!(runs > 100 && evictions > 1000 && recomputed > 1000, "{runs} {evictions} {recomputed}");
}
