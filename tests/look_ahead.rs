//! With `look_ahead`, evictors see commands before they run, and nothing else changes. Policies
//! that do not look ahead make the same evictions for any window. What an evictor sees depends only
//! on the program.

use remat::device::sim::Sim;
use remat::evict::{Evictor, Victim, View, Want};
use remat::nn::{Mode, Module, ResNet, mlp, resnet};
use remat::op::Outputs;
use remat::optim::Optimizer;
use remat::prelude::{Error, HostTensor, Runtime, Tape, Tensor};
use remat::unstable::engine::{Engine, Settings};
use remat::unstable::event::Event;
use remat::unstable::ops::{Accumulate, Binary, Reshape};
use remat::unstable::program::{Apply, Command, Driver, TensorId, Window};
use remat::{Builder, CostModelKind, DType, Layout, Listener, Op, PolicyKind, Stats};
use remat_rng::SplitMix64;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Number of commands that an evictor saw, and two distances for its victim: to the next read, and
/// to the drop of the last handle.
type Seen = (usize, Option<usize>, Option<usize>);

/// Evictor that evicts the storage read farthest ahead, and keeps what it saw.
#[derive(Clone, Debug, Default)]
struct Farthest {
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Evictor for Farthest {
    fn next(&mut self, want: Want, view: View<'_>) -> Option<Victim> {
        let future = view.graph.future();
        let distance = |key| future.next_read(key).unwrap_or(usize::MAX);
        let key = view.evictable(want).max_by_key(|&key| (distance(key), key))?;
        let handles = view.graph.storage(key).handles;
        let ends = future.last_handle(key, handles);
        self.seen.lock().unwrap().push((future.commands(), future.next_read(key), ends));
        Some(Victim::new(key))
    }
}

/// Listener that keeps evictions and regenerations in order.
#[derive(Clone, Debug, Default)]
struct Evictions(Arc<Mutex<Vec<Event>>>);

impl Listener for Evictions {
    fn on(&mut self, event: &Event, _: View<'_>) {
        if matches!(event, Event::DidEvict { .. } | Event::DidRegenerate { .. }) {
            self.0.lock().unwrap().push(*event);
        }
    }
}

fn without_times(stats: Stats) -> Stats {
    let mut stats = stats;
    (stats.search_seconds, stats.recompute_seconds) = (0.0, 0.0);
    stats
}

/// Trains a deep network with batch norm, or a plain one, for three steps. Calls `sleep` between
/// commands.
fn train(runtime: &Runtime, deep: bool, mut sleep: impl FnMut()) -> Result<(), Error> {
    let mut net = match deep {
        true => resnet(runtime, ResNet::Cifar { n: 2 }, 3, [8, 8], 10)?,
        false => mlp(runtime, 192, &[64, 64, 64], 10)?,
    };
    let mut sgd = Optimizer::sgd(0.1, 0.9, 1e-4);
    for step in 0..3 {
        let images = runtime.put(HostTensor::zeros(DType::F32, [256, 3, 8, 8])?)?;
        let labels = runtime.put_leaf(HostTensor::zeros(DType::I32, [256])?)?;
        let tape = Tape::new(runtime);
        tape.watch(&mut net);
        sleep();
        let loss = net.forward(&images, Mode::Train)?.cross_entropy(&labels)?;
        drop((images, labels));
        sleep();
        sgd.minimize(tape, &loss, &mut net)?;
        sleep();
        runtime.step()?;
        if step != 1 {
            loss.item()?;
        }
    }
    runtime.sync()
}

fn trained(builder: Builder, deep: bool, sleep: impl FnMut()) -> (Stats, Vec<Event>) {
    let evictions = Evictions::default();
    let runtime = builder.listen(evictions.clone()).sim().unwrap();
    train(&runtime, deep, sleep).unwrap();
    let stats = without_times(runtime.stats().unwrap());
    drop(runtime);
    let events = evictions.0.lock().unwrap().clone();
    (stats, events)
}

#[test]
fn whoever_does_not_look_ahead_evicts_the_same_for_any_window() {
    for deep in [false, true] {
        let peak = trained(Runtime::builder().budget("1GiB"), deep, || {}).0.peak_bytes;
        for policy in ["dtr-eq", "dtr", "megengine", "megengine-article", "lru", "msps", "random"] {
            let policy: PolicyKind = policy.parse().unwrap();
            for share in if deep { [60, 80] } else { [75, 90] } {
                let run = |window| {
                    let builder = Runtime::builder().budget(peak * share / 100).policy(policy);
                    trained(builder.min_evict_bytes(0u64).look_ahead(window), deep, || {})
                };
                let expected = run(0);
                assert!(expected.0.evictions > 0, "{policy} {share} % {deep}");
                for window in [1, 2, 7, 50, 1000, 100_000] {
                    assert_eq!(run(window), expected, "{policy} {share} % {window}");
                }
            }
        }
    }
}

/// Listener that sleeps now and then after an op.
#[derive(Debug)]
struct Sleepy(SplitMix64);

impl Listener for Sleepy {
    fn on(&mut self, event: &Event, _: View<'_>) {
        if matches!(event, Event::DidRun { .. }) && self.0.below(12) == 0 {
            std::thread::sleep(Duration::from_micros(400 * self.0.below(8) as u64));
        }
    }
}

#[test]
fn an_evictors_view_does_not_depend_on_time() {
    let peak = trained(Runtime::builder().budget("1GiB"), false, || {}).0.peak_bytes;
    for window in [1, 5, 40, 1000] {
        let run = |seed: u64| {
            let evictor = Farthest::default();
            let mut builder = Runtime::builder().budget(peak * 3 / 4).min_evict_bytes(0u64);
            if seed > 0 {
                builder = builder.listen(Sleepy(SplitMix64::new(seed)));
            }
            let mut draw = SplitMix64::new(seed);
            let sleep = || {
                if seed > 0 && draw.below(2) == 0 {
                    // Some sleeps are so long that the worker treats the program as idle.
                    std::thread::sleep(Duration::from_millis(7 * draw.below(4) as u64));
                }
            };
            let builder = builder.evictor(evictor.clone()).look_ahead(window);
            let (stats, events) = trained(builder, false, sleep);
            let seen = evictor.seen.lock().unwrap().clone();
            (stats, events, seen)
        };
        let expected = run(0);
        assert!(expected.0.evictions > 2);
        let farthest = expected.2.iter().map(|(commands, ..)| *commands).max();
        assert!(farthest <= Some(window), "{farthest:?}");
        assert!(window > 40 || farthest == Some(window), "{farthest:?}");
        for seed in 1..4 {
            assert_eq!(run(seed), expected, "window {window}, sleeps {seed}");
        }
    }
}

/// The bytes of queued values are limited, and the worker does not wait to fill the window with
/// commands that the limit holds back.
#[test]
fn a_window_that_never_fills_stops_nobody() {
    let runtime = Runtime::builder().budget("1GiB").look_ahead(1000).sim().unwrap();
    let large = || HostTensor::zeros(DType::F32, [1 << 22]).unwrap();
    let many: Vec<Tensor> = (0..12).map(|_| runtime.put(large()).unwrap()).collect();
    let huge = runtime.put(HostTensor::zeros(DType::F32, [1 << 25]).unwrap()).unwrap();
    let after = huge.square().unwrap();
    drop(many);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let runtime = &runtime;
            scope.spawn(move || (0..8).for_each(|_| drop(runtime.put(large()).unwrap())));
        }
    });
    let later = runtime.get_later(&after).unwrap();
    assert_eq!(later.wait().unwrap().as_f32().unwrap().len(), 1 << 25);
    // Commands that no call waits for still run before the runtime ends.
    let recorded = runtime.zeros(&[4]).unwrap();
    let clone = runtime.clone();
    drop(runtime);
    drop(clone);
    assert!(recorded.to_host().is_err());
}

/// Random commands, and the storage that each tensor number stands for.
struct Script {
    commands: Vec<Command<Op, HostTensor>>,
    /// Number of a tensor -> number of the tensor that its storage was made for.
    storage_of: HashMap<TensorId, TensorId>,
}

fn script(seed: u64) -> Script {
    let mut draw = SplitMix64::new(seed);
    let layout = Layout::contiguous(DType::F32, [16]);
    let host = Arc::new(HostTensor::zeros(DType::F32, [16]).unwrap());
    let mut commands: Vec<Command<Op, HostTensor>> = Vec::new();
    let mut storage_of = HashMap::new();
    let mut alive: Vec<TensorId> = Vec::new();
    let mut next = TensorId(0);
    let mut new = || {
        next = next.plus(1);
        next
    };
    for _ in 0..200 {
        let pick = |draw: &mut SplitMix64, alive: &[TensorId]| alive[draw.below(alive.len())];
        if alive.len() < 3 {
            let tensor = new();
            commands.push(Command::Put {
                tensor,
                host: Arc::clone(&host),
                leaf: draw.below(4) == 0,
            });
            storage_of.insert(tensor, tensor);
            alive.push(tensor);
            continue;
        }
        let a = pick(&mut draw, &alive);
        let call = |op: Op, inputs: &[TensorId], outputs, made| Apply {
            op,
            inputs: inputs.into(),
            consumed: Default::default(),
            outputs,
            made,
        };
        match draw.below(12) {
            0..=3 => {
                let (b, made) = (pick(&mut draw, &alive), new());
                let outputs = Outputs::fresh([layout]);
                commands.push(Command::Apply(call(Binary::Add.into(), &[a, b], outputs, made)));
                storage_of.insert(made, made);
                alive.push(made);
            }
            4 | 5 => {
                let made = new();
                let op = Reshape { shape: [16].into() };
                commands.push(Command::Apply(call(
                    op.into(),
                    &[a],
                    Outputs::view(0, layout),
                    made,
                )));
                storage_of.insert(made, storage_of[&a]);
                alive.push(made);
            }
            6 | 7 => {
                let (b, made) = (pick(&mut draw, &alive), new());
                let mut update = call(Accumulate.into(), &[a, b], Outputs::updates(1), made);
                if draw.below(2) == 0 {
                    update.consumed.insert(0);
                    alive.retain(|&other| other != a);
                }
                commands.push(match draw.below(2) {
                    0 => Command::Apply(update),
                    _ => Command::UpdateAll(vec![update]),
                });
                storage_of.insert(made, made);
                alive.push(made);
            }
            8 => {
                let (target, made) = (pick(&mut draw, &alive), new());
                let consumed = target != a && draw.below(2) == 0;
                commands.push(Command::Replace { target, consumed, value: a, made });
                if consumed {
                    alive.retain(|&other| other != target);
                }
                storage_of.insert(made, storage_of[&a]);
                alive.push(made);
            }
            9 => {
                commands.push(Command::Del(a));
                alive.retain(|&other| other != a);
            }
            10 => commands.push(Command::Get(a)),
            _ => commands.push(match draw.below(3) {
                0 => Command::Commit(a),
                1 => Command::Drop(a),
                _ => Command::Step,
            }),
        }
    }
    Script { commands, storage_of }
}

/// The next reads that the graph shows to an evictor are those of the waiting commands.
#[test]
fn the_future_is_what_is_to_come() {
    let mut reads = 0;
    for seed in 0..60 {
        let Script { commands, storage_of } = script(seed);
        for window in [1, 3, 20, 1000] {
            let device = Sim::<Op, HostTensor>::cpu(64 * if seed % 2 == 0 { 12 } else { 4096 });
            let costs = CostModelKind::Flops.build();
            let evictor = PolicyKind::DtrEq.build(0);
            let engine = Engine::new(device, Settings::default(), evictor, costs).unwrap();
            let mut driver = Driver::new(engine);
            let counts = |command: &Command<_, _>| !matches!(command, Command::Del(_));
            let (mut admitted, mut failed) = (0, false);
            for (at, command) in commands.iter().enumerate() {
                let end = (commands.len()).min(at + window);
                // The next `window` commands are admitted before each command runs.
                while admitted < end {
                    driver.admit(&commands[admitted]);
                    admitted += 1;
                }
                driver.execute(command.clone());
                while driver.engine_mut().take_failure().is_some() {
                    failed = true;
                }
                let waiting = &commands[at + 1..admitted.max(at + 1)];
                let future = driver.engine().graph().future();
                assert_eq!(future.commands(), waiting.iter().filter(|c| counts(c)).count());
                // For each storage that exists now: the first waiting command that reads it.
                for (&tensor, root) in &storage_of {
                    let Ok(key) = driver.key(tensor) else { continue };
                    let storage = driver.engine().graph().tensor(key).unwrap().storage;
                    let mut distance = 0;
                    let first = waiting.iter().find_map(|command| {
                        distance += usize::from(counts(command));
                        let mut hit = false;
                        command.reads(|read| {
                            hit |= match driver.key(read) {
                                Ok(other) => {
                                    let graph = driver.engine().graph();
                                    graph.tensor(other).unwrap().storage == storage
                                }
                                // The tensor is not made yet: it is a view of the storage, directly
                                // or not.
                                Err(_) => storage_of[&read] == *root && *root == tensor,
                            };
                        });
                        hit.then_some(distance)
                    });
                    let known = future.next_read(storage);
                    reads += usize::from(known.is_some());
                    // After a replacement that was skipped, a number names another value than
                    // expected.
                    if !failed {
                        assert_eq!(known, first, "seed {seed}, {at}, window {window}");
                    }
                    assert!(known.is_none_or(|known| known <= future.commands()));
                }
            }
            let future = driver.engine().graph().future();
            assert_eq!((future.commands(), window), (0, window));
            assert!(
                driver.engine().graph().storages().all(|(key, _)| future.next_read(key).is_none())
            );
        }
    }
    assert!(reads > 10_000, "{reads}");
}

#[test]
fn a_window_counts_commands_up_to_a_blocking_one() {
    assert_eq!(Window::default().commands, 0);
    let evictor = Farthest::default();
    let builder = Runtime::builder().budget("16KiB").min_evict_bytes(0u64);
    let runtime = builder.evictor(evictor.clone()).look_ahead(10).sim().unwrap();
    let x = runtime.ones(&[1024]).unwrap();
    let kept: Vec<Tensor> = (0..8).map(|_| x.square().unwrap()).collect();
    runtime.get(&kept[0]).unwrap();
    let seen = evictor.seen.lock().unwrap().clone();
    // The program has nine ops and a get. The evictor first chooses at about the fifth op, and sees
    // commands up to the get.
    assert!(seen.iter().all(|(commands, ..)| *commands <= 9), "{seen:?}");
    let lefts: Vec<usize> = seen.iter().map(|(commands, ..)| *commands).collect();
    assert!(lefts.is_sorted_by(|a, b| a >= b) && lefts.last() <= Some(&1), "{lefts:?}");
}

/// A recording contains the window, and the calls that waited for an answer. In a replay, an
/// evictor therefore sees the commands that it saw in the run.
#[cfg(feature = "lab")]
#[test]
fn a_replay_sees_what_the_run_saw() {
    use crate::common::training::Shared;
    use remat::trace::JsonLines;
    use remat::unstable::lab::{MemoryKind, Replay, Trace};
    for deep in [false, true] {
        let peak = trained(Runtime::builder().budget("1GiB"), deep, || {}).0.peak_bytes;
        for window in [1, 3, 30, 300, 10_000] {
            let text = Shared::default();
            let (evictor, budget) = (Farthest::default(), peak * 4 / 5);
            let builder = Runtime::builder().budget(budget).evictor(evictor.clone());
            let builder = builder.look_ahead(window).record(JsonLines::to(text.clone()));
            let runtime = builder.sim().unwrap();
            train(&runtime, deep, || {}).unwrap();
            let stats = runtime.stats().unwrap();
            runtime.finish_recording().unwrap();
            let seen = std::mem::take(&mut *evictor.seen.lock().unwrap());
            assert!(seen.len() > 2);

            let trace = Trace::read(&**text.0.lock().unwrap(), "run").unwrap();
            assert_eq!(trace.window(), Window::of(window));
            let mut replay = Replay::new(PolicyKind::None, budget);
            replay.memory = MemoryKind::Arena;
            replay.settings = Settings::default();
            replay.window = trace.window();
            let outcome = replay.run_by(trace.program(), Box::new(evictor.clone())).unwrap();
            let what = format!("{deep} {window}");
            assert_eq!(*evictor.seen.lock().unwrap(), seen, "{what}");
            let figures = |stats: &Stats| {
                (stats.evictions, stats.evicted_bytes, stats.recomputed_ops, stats.peak_bytes)
            };
            assert_eq!(figures(&outcome.stats), figures(&stats), "{what}");
            // With another window, the evictor sees other commands in the replay.
            replay.window = Window::of(window + 1);
            replay.run_by(trace.program(), Box::new(evictor.clone())).unwrap();
            let wider = evictor.seen.lock().unwrap()[seen.len()..].to_vec();
            assert!(wider != seen || window >= 300, "{what}");
        }
    }
}
