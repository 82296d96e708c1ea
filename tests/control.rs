//! Control of a runtime beside its commands. Regenerations can be cancelled, a program that is far
//! ahead must wait, tensors that an idle program drops are freed, and invalid requests are
//! reported.

use crate::common::faulty::{Doing, Faults};
use crate::common::heard::{Heard, storage};
use crate::common::learner::faulty_cpu;
use remat::autograd::Tape;
use remat::error::{RegenerationError, RuntimeError};
use remat::nn::parameters;
use remat::ops::Op;
use remat::optim::Optimizer;
use remat::trace::{Entry, Recorder};
use remat::unstable::event::Event;
use remat::{
    ByteSize, CostModel, CostModelKind, Error, HostTensor, PolicyKind, Run, Runtime, Tensor,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

fn host(x: f32) -> HostTensor {
    HostTensor::f32([256], vec![x; 256]).unwrap()
}

fn put(runtime: &Runtime, x: f32) -> Tensor {
    runtime.put(host(x)).unwrap()
}

/// Chain of values. The program holds only the last value, which is evicted.
fn evicted_chain(runtime: &Runtime, length: usize) -> Tensor {
    let mut x = put(runtime, 0.5);
    for _ in 0..length {
        x = x.tanh().unwrap();
    }
    runtime.drop_now(&x).unwrap();
    runtime.sync().unwrap();
    x
}

#[test]
fn cancelling_ends_what_is_being_brought_back_and_nothing_else() {
    let faults = Arc::<Faults>::default();
    let runtime = faulty_cpu(Runtime::builder().budget("1MiB"), &faults).unwrap();
    let x = evicted_chain(&runtime, 200);
    // At its 50th run from now on, the device waits until this thread has cancelled.
    let (reached, cancelled) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let (there, go_on) = (Arc::clone(&reached), Arc::clone(&cancelled));
    let mut runs = 0;
    faults.watch(move |_| {
        runs += 1;
        if runs == 50 {
            there.wait();
            go_on.wait();
        }
    });
    let before = runtime.stats().unwrap().recomputed_ops;
    let waiting = runtime.get_later(&x).unwrap();
    // A second read waits in the queue, and would regenerate the same value.
    let behind = runtime.get_later(&x).unwrap();
    reached.wait();
    runtime.cancel();
    cancelled.wait();
    for pending in [waiting, behind] {
        let Err(Error::Regeneration(error)) = pending.wait() else { panic!("not cancelled") };
        assert_eq!(*error, RegenerationError::Cancelled);
    }
    let stats = runtime.stats().unwrap();
    assert!(stats.recomputed_ops - before <= 51, "{}", stats.recomputed_ops - before);
    runtime.sync().expect("whoever waited was told");
    // Later commands are not affected, and the value is not lost.
    runtime.get(&x).unwrap();
    let y = x.square().unwrap();
    runtime.get(&y).unwrap();
}

/// Dropping a runtime ends a regeneration if no read waits for its result any more.
#[test]
fn dropping_a_runtime_gives_up_what_nobody_waits_for() {
    const LENGTH: usize = 4000;
    for reads in [false, true] {
        let faults = Arc::<Faults>::default();
        let runtime = faulty_cpu(Runtime::builder().budget("8MiB"), &faults).unwrap();
        let x = evicted_chain(&runtime, LENGTH);
        let runs = Arc::<AtomicU64>::default();
        let count = Arc::clone(&runs);
        faults.watch(move |_| {
            count.fetch_add(1, Ordering::SeqCst);
            if !reads {
                // All runs of the regeneration together take far longer than dropping a runtime may
                // take.
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let pending = runtime.get_later(&x).unwrap();
        if reads {
            drop(runtime);
            pending.wait().expect("somebody waits for this one");
        } else {
            drop(pending);
            drop(runtime);
            let runs = runs.load(Ordering::SeqCst);
            assert!(runs < LENGTH as u64, "{runs}");
        }
    }
}

#[test]
fn cancelling_an_idle_runtime_does_nothing() {
    let runtime = Runtime::builder().budget("1MiB").threads(1).cpu().unwrap();
    runtime.cancel();
    let x = evicted_chain(&runtime, 10);
    runtime.cancel();
    runtime.get(&x).unwrap();
}

/// Regression: 600 values of 4 MiB filled 2.4 GiB of host memory under a budget of 64 MiB.
#[test]
fn a_program_far_ahead_waits_with_its_values_in_hand() {
    const BYTES: usize = 4 << 20;
    let faults = Arc::<Faults>::default();
    let runtime = faulty_cpu(Runtime::builder().budget("64MiB"), &faults).unwrap();
    let issued = Arc::<AtomicU64>::default();
    let (seen, most) = (Arc::clone(&issued), Arc::<AtomicU64>::default());
    let highest = Arc::clone(&most);
    let mut written = 0;
    faults.watch(move |doing| {
        // The first upload begins only when the program is ahead of the worker.
        while written == 0 && seen.load(Ordering::SeqCst) < 12 {
            std::thread::yield_now();
        }
        if doing == Doing::Write {
            highest
                .fetch_max(seen.load(Ordering::SeqCst).saturating_sub(written), Ordering::SeqCst);
            written += 1;
        }
    });
    for i in 0..100 {
        let value = HostTensor::f32([BYTES / 4], vec![i as f32; BYTES / 4]).unwrap();
        drop(runtime.put(value).unwrap());
        issued.fetch_add(1, Ordering::SeqCst);
    }
    runtime.sync().unwrap();
    let most = most.load(Ordering::SeqCst);
    println!("at most {most} values of 4 MiB were on their way");
    assert!((12..=17).contains(&most), "{most}");
}

#[test]
fn one_value_may_be_larger_than_all_that_may_be_on_its_way() {
    let runtime = Runtime::builder().budget("100MiB").threads(1).cpu().unwrap();
    let n = 20 << 20;
    let x = runtime.put(HostTensor::f32([n], vec![1.0; n]).unwrap()).unwrap();
    assert_eq!(runtime.get(&x).unwrap().as_f32().unwrap().len(), n);
}

/// Regression: the memory of dropped handles was freed only with the next command.
#[test]
fn handles_dropped_by_an_idle_program_are_freed() {
    let runtime = Runtime::builder().budget("1MiB").threads(1).cpu().unwrap();
    for round in 0..20 {
        let value = Arc::new(host(1.0));
        let x = runtime.put(Arc::clone(&value)).unwrap();
        let y = x.square().unwrap();
        if round % 2 == 0 {
            runtime.sync().unwrap();
        }
        drop((x, y));
        // No command follows. The engine's host copy is freed with the tensor.
        let mut patience = 0;
        while Arc::strong_count(&value) > 1 {
            std::thread::sleep(Duration::from_millis(1));
            patience += 1;
            assert!(patience < 300_000, "still there after minutes");
        }
    }
    assert_eq!(runtime.stats().unwrap().tensors, 0);
}

#[test]
fn host_copies_are_counted_and_can_be_given_up() {
    let runtime = Runtime::builder().budget("64KiB").threads(1).cpu().unwrap();
    let kept: Vec<Tensor> = (0..10).map(|i| put(&runtime, i as f32)).collect();
    assert_eq!(runtime.stats().unwrap().host_bytes, 10 * 1024);
    runtime.commit(&kept[0]).unwrap();
    assert_eq!(runtime.stats().unwrap().host_bytes, 9 * 1024);
    let leaf = runtime.put_leaf(host(3.0)).unwrap();
    assert_eq!(runtime.stats().unwrap().host_bytes, 9 * 1024);
    let y = kept[1].square().unwrap();
    drop(kept);
    assert_eq!(runtime.stats().unwrap().host_bytes, 1024, "what `y` is made from");
    drop((leaf, y));
    assert_eq!(runtime.stats().unwrap().host_bytes, 0);
}

/// Regression: every target beyond the 64th was copied, without a message.
#[test]
fn an_update_of_many_tensors_copies_none() {
    #[derive(Clone, Debug)]
    struct Many;
    impl remat::op::Operation for Many {
        fn name(&self) -> &str {
            "many"
        }

        fn infer(
            &self,
            inputs: &[remat::Layout],
        ) -> Result<remat::op::Outputs, remat::op::OpError> {
            Ok(remat::op::Outputs::updates(inputs.len()))
        }
    }
    use remat::device::sim::{Sim, Speed};
    let sim = |bytes| Ok(Sim::<Many, remat::Layout>::new(bytes, Speed::CPU));
    let runtime = Runtime::builder().budget("64KiB").device(sim).unwrap();
    // The targets fill all memory, so that no copy fits.
    let mut targets: Vec<Tensor> = (0..256)
        .map(|_| runtime.put_leaf(remat::Layout::contiguous(remat::DType::F32, [64])).unwrap())
        .collect();
    assert_eq!(runtime.stats().unwrap().used_bytes, 64 << 10);
    let mut all: Vec<&mut Tensor> = targets.iter_mut().collect();
    runtime.update(Many, &mut all, &[]).unwrap();
    runtime.sync().unwrap();
    assert_eq!(runtime.stats().unwrap().peak_bytes, 64 << 10);
}

/// Regression: whether memory has addresses was a setting, which could contradict the device. Two
/// tensors then shared offset 0.
#[test]
fn the_budget_is_what_the_device_has_and_never_more_than_was_asked_for() {
    use remat::device::sim::{Sim, Speed};
    let start = |has: u64, asked: &str| {
        let sim = move |_| Ok(Sim::<Op, HostTensor>::new(has, Speed::CPU));
        Runtime::builder().budget(asked).device(sim)
    };
    for has in [4096, 60 << 10, 64 << 10] {
        let runtime = start(has, "64KiB").unwrap();
        assert_eq!(runtime.stats().unwrap().budget_bytes, has);
        runtime.full(&[1024], 1.0).unwrap().to_vec::<f32>().unwrap();
        let too_much = runtime.full(&[has as usize / 4 + 1], 1.0).unwrap();
        assert!(matches!(too_much.to_vec::<f32>(), Err(Error::OutOfMemory(_))));
    }
    for (has, expected) in [
        (65 << 10, "sim has 65.00 KiB of memory, more than the budget of 64.00 KiB"),
        (0, "a budget of 0 bytes"),
    ] {
        let text = start(has, "64KiB").map(drop).unwrap_err().to_string();
        assert!(text.contains(expected), "{text}");
    }
}

#[derive(Debug)]
struct MyCosts;

impl CostModel for MyCosts {
    fn name(&self) -> &str {
        "my-costs"
    }

    fn cost(&mut self, _: Run<'_>) -> f64 {
        1.0
    }
}

#[derive(Clone, Debug, Default)]
struct Events(Arc<Mutex<Vec<Entry>>>);

impl Recorder for Events {
    fn record(&mut self, entry: &Entry) {
        self.0.lock().unwrap().push(entry.clone());
    }

    fn finish(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Regression: a custom cost model was recorded as `flops`, and a replay took the recorded costs
/// for numbers of floating-point operations.
#[test]
fn a_cost_model_of_ones_own_is_recorded_under_its_name() {
    let events = Events::default();
    let builder = Runtime::builder().budget("1MiB").threads(1).cost_model(MyCosts);
    drop(builder.record(events.clone()).cpu().unwrap());
    let events = events.0.lock().unwrap();
    assert!(
        matches!(&events[0], Entry::Begin { cost_model, .. } if cost_model == "my-costs"),
        "{events:?}"
    );
}

#[test]
fn absurd_settings_are_refused_with_what_is_allowed() {
    let refused = |builder: remat::Builder| match builder.cpu() {
        Err(Error::Runtime(e)) if matches!(*e, RuntimeError::Settings(_)) => e.to_string(),
        other => panic!("not refused: {other:?}"),
    };
    for threads in [0, 1025, 10_000, usize::MAX] {
        let text = refused(Runtime::builder().budget("1MiB").threads(threads));
        assert!(text.contains(&threads.to_string()) && text.contains("1 to 1024"), "{text}");
    }
    for limit in [0.0, 0.99, -1.0, f64::NAN] {
        let text = refused(Runtime::builder().budget("1MiB").regeneration_limit(limit));
        assert!(text.contains(&limit.to_string()) && text.contains("at least 1.0"), "{text}");
    }
    let text = refused(Runtime::builder().budget("1MiB").regeneration_limit(2.0).budget(""));
    assert!(text.contains("budget"), "{text}");
    drop(Runtime::builder().budget(ByteSize(1 << 20)).threads(2).cpu().unwrap());
}

#[test]
fn learning_from_nothing_is_an_error() {
    let runtime = Runtime::builder().budget("1MiB").threads(1).cpu().unwrap();
    let mut x = put(&runtime, 2.0);
    let text = |result: Result<(), Error>| result.unwrap_err().to_string();
    let tape = Tape::new(&runtime);
    let loss = x.square().unwrap().mean().unwrap();
    let said = text(tape.backward(&loss).map(drop));
    assert!(said.starts_with("backward: no tensor is watched"), "{said}");

    let tape = Tape::new(&runtime);
    tape.watch(&mut x);
    let loss = x.detach().square().unwrap().mean().unwrap();
    let said = text(tape.backward(&loss).map(drop));
    assert!(said.contains("depends on none of the 1 watched tensors"), "{said}");

    let mut network = remat::nn::mlp(&runtime, 256, &[8], 3).unwrap();
    let tape = Tape::new(&runtime);
    let loss = x.square().unwrap().mean().unwrap();
    for all_or_none in [false, true] {
        let mut sgd = Optimizer::sgd(0.1, 0.9, 0.0);
        sgd.all_or_none = all_or_none;
        let said = text(sgd.minimize(Tape::new(&runtime), &loss, &mut network));
        assert!(said.starts_with("optimizer: none of the parameters is watched"), "{said}");
    }
    assert!(parameters(&mut network).count() > 0);
    // This tensor is watched but is not a parameter of the network.
    tape.watch(&mut x);
    let loss = x.square().unwrap().mean().unwrap();
    let said = text(Optimizer::sgd(0.1, 0.9, 0.0).minimize(tape, &loss, &mut network));
    assert!(said.contains("none of the parameters"), "{said}");
}

#[test]
fn unmet_wishes_are_told_as_events() {
    use crate::common::toy::{Bytes, engine_with, mix, settings};
    let mut settings = settings();
    settings.eviction_threshold = Some(64);
    let mut engine = engine_with(256, settings, PolicyKind::default(), CostModelKind::Flops);
    let leaf = engine.put_leaf(Bytes::of(80, 1));
    let heard = Heard::of(&mut engine);
    engine.apply(mix(16, 1), &[leaf]).unwrap();
    engine.apply(mix(16, 2), &[leaf]).unwrap();
    let warned = |event: &&Event| matches!(event, Event::AboveThreshold { .. });
    let told = heard.take();
    let said: Vec<_> = told.iter().filter(warned).collect();
    assert_eq!(said, [&Event::AboveThreshold { threshold: 64, kept: 80 }], "once");
    assert!(!engine.drop_now(leaf).unwrap());
    let storage = storage(&engine, leaf);
    assert_eq!(heard.take(), [Event::DidKeepLeaf { storage, bytes: 80 }]);
}

/// Regression: the history grew without end, and without a warning.
#[test]
fn a_loop_that_marks_no_steps_is_told_so() {
    use crate::common::toy::{Bytes, engine, mix};
    for marks in [false, true] {
        let mut engine = engine(1 << 20);
        let heard = Heard::of(&mut engine);
        let mut state = engine.put(Bytes::of(1, 1));
        for i in 0..20_000 {
            let next = engine.apply(mix(1, i), &[state]).unwrap()[0];
            engine.del(state);
            state = next;
            if marks {
                engine.step();
            }
        }
        let told = heard.take();
        let warned = told.iter().filter(|event| matches!(event, Event::HistoryGrows { .. }));
        assert_eq!(warned.count(), usize::from(!marks));
    }
}

/// Regression: the warning named the budget when the threshold was too low.
#[test]
fn thrashing_is_blamed_on_what_is_too_low() {
    use crate::common::toy::{Bytes, GRANULE, engine_with, mix, settings};
    let few = 4 * GRANULE;
    for (budget, threshold, expected) in
        [(1 << 16, Some(few), "eviction threshold"), (few, None, "budget")]
    {
        let mut settings = settings();
        settings.eviction_threshold = threshold;
        let mut engine = engine_with(budget, settings, PolicyKind::Lru, CostModelKind::Flops);
        let heard = Heard::of(&mut engine);
        let mut chain = vec![engine.put(Bytes::of(16, 1))];
        for i in 0..40 {
            chain.push(engine.apply(mix(16, i), &[chain[i as usize]]).unwrap()[0]);
        }
        while engine.stats().thrashed_steps == 0 {
            chain.iter().for_each(|&key| drop(engine.get(key).unwrap()));
        }
        let told = heard.take();
        let mut said = told.iter().filter(|event| matches!(event, Event::Thrash { .. }));
        // Steps count from 1, as in the event at a step's end. The number in the message has no
        // needless digits.
        let Some(&Event::Thrash { step: 1, times, raise, .. }) = said.next() else {
            panic!("{told:?}")
        };
        assert_eq!((raise, said.next()), (expected, None));
        assert!(times >= 4.0 && times.to_string().len() <= 4, "{times}");
    }
}
