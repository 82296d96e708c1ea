//! Ops, cost models, policies, recorders and devices of the user may panic, or return invalid
//! answers. The error names the code at fault.
//!
//! If a callback that computes an answer panics, only its command fails, and the runtime goes on.
//! If a callback that is only notified of a change panics, the runtime ends, and every later error
//! says so.

use crate::common::faulty::{Fault, Faults};
use crate::common::learner::faulty_cpu;
use remat::device::DeviceError;
use remat::device::sim::{Sim, Speed};
use remat::evict::{Policy, View};
use remat::op::{OpError, Operation, Outputs};
use remat::trace::{self, Recorder};
use remat::unstable::event::Event;
use remat::unstable::graph::StorageKey;
use remat::{CostModel, Error, HostTensor, Layout, Run, Runtime, Tensor};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn put(runtime: &Runtime, x: f32) -> Tensor {
    runtime.put(HostTensor::f32([256], vec![x; 256]).unwrap()).unwrap()
}

fn words<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    result.expect_err("somebody panicked").to_string()
}

/// Op that panics when one of its methods is called.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wild {
    Tame,
    Infer,
    Flops,
    Workspace,
}

impl Operation for Wild {
    fn name(&self) -> &str {
        "wild"
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, OpError> {
        assert!(*self != Self::Infer, "what outputs?");
        Ok(Outputs::fresh([inputs[0]]))
    }

    fn flops(&self, _: &[Layout], _: &[Layout]) -> f64 {
        assert!(*self != Self::Flops, "what flops?");
        1.0
    }
}

#[test]
fn an_op_that_panics_when_it_is_asked_fails_alone() {
    let sim = |bytes| {
        Ok(Sim::<Wild, Layout>::new(bytes, Speed::CPU).with_workspace(|op, _, _| {
            assert!(*op != Wild::Workspace, "what workspace?");
            0
        }))
    };
    let runtime = Runtime::builder().budget("64KiB").device(sim).unwrap();
    let x = runtime.put(Layout::raw(100)).unwrap();
    let text = words(runtime.apply(Wild::Infer, &[&x]));
    assert_eq!(text, "wild: its outputs panicked: what outputs?");
    for (op, what) in [(Wild::Flops, "flops"), (Wild::Workspace, "workspace")] {
        let lost = runtime.apply(op, &[&x]).unwrap().swap_remove(0);
        let more = runtime.apply(Wild::Tame, &[&lost]).unwrap().swap_remove(0);
        for tensor in [&lost, &more] {
            let text = words(runtime.get(tensor));
            assert_eq!(text, format!("wild: its {what} panicked: what {what}?"));
        }
        runtime.sync().expect("told");
        let fine = runtime.apply(Wild::Tame, &[&x]).unwrap().swap_remove(0);
        runtime.get(&fine).unwrap();
    }
}

/// Cost model with a fixed answer.
#[derive(Debug)]
struct Costs(Answer);

#[derive(Clone, Copy, Debug)]
enum Answer {
    Cost(f64),
    Panic,
    PanicWhenAskedForTimes,
}

impl CostModel for Costs {
    fn name(&self) -> &str {
        "mine"
    }

    fn cost(&mut self, run: Run<'_>) -> f64 {
        match self.0 {
            _ if run.op != "square" => 1.0,
            Answer::Cost(cost) => cost,
            Answer::Panic => panic!("no idea"),
            Answer::PanicWhenAskedForTimes => 1.0,
        }
    }

    fn wants_time(&mut self, run: Run<'_>) -> bool {
        assert!(run.op != "square" || !matches!(self.0, Answer::PanicWhenAskedForTimes), "no time");
        false
    }
}

#[test]
fn a_cost_model_that_answers_nonsense_is_named() {
    for (answer, expected) in [
        (
            Answer::Cost(-1.0),
            "the cost model `mine` gives square a cost of -1; give a finite number",
        ),
        (Answer::Cost(f64::NAN), "the cost model `mine` gives square a cost of NaN"),
        (Answer::Cost(f64::INFINITY), "the cost model `mine` gives square a cost of inf"),
        (Answer::Panic, "the cost model panicked: no idea"),
        (Answer::PanicWhenAskedForTimes, "the cost model panicked: no time"),
    ] {
        let builder = Runtime::builder().budget("1MiB").threads(1).cost_model(Costs(answer));
        let runtime = builder.cpu().unwrap();
        let x = put(&runtime, 3.0);
        let y = x.square().unwrap();
        let text = words(runtime.get(&y));
        assert!(text.starts_with(expected), "{text}");
        let z = x.neg().unwrap();
        assert_eq!(runtime.get(&z).unwrap().as_f32().unwrap()[0], -3.0);
        runtime.sync().unwrap();
    }
}

/// Policy that panics while the test requests it.
#[derive(Debug)]
struct Nervous {
    panics: Arc<AtomicBool>,
    /// Whether the policy panics at the event of an eviction. Otherwise the policy panics when it
    /// computes a score.
    when_told: bool,
}

impl Policy for Nervous {
    fn score(&mut self, _: StorageKey, _: View<'_>) -> f64 {
        assert!(self.when_told || !self.panics.load(Ordering::SeqCst), "not this one");
        1.0
    }

    fn on(&mut self, event: &Event, _: View<'_>) {
        let evicted = matches!(event, Event::DidEvict { .. });
        assert!(!evicted || !self.when_told || !self.panics.load(Ordering::SeqCst), "oh no");
    }
}

fn nervous(when_told: bool) -> (Runtime, Arc<AtomicBool>) {
    let panics = Arc::<AtomicBool>::default();
    let policy = Nervous { panics: Arc::clone(&panics), when_told };
    let builder = Runtime::builder().budget("4KiB").min_evict_bytes(0u64).threads(1);
    (builder.policy(policy).cpu().unwrap(), panics)
}

#[test]
fn a_policy_that_panics_over_a_score_fails_the_command_that_asked() {
    let (runtime, panics) = nervous(false);
    let tensors: Vec<Tensor> = (0..4).map(|i| put(&runtime, i as f32)).collect();
    runtime.sync().unwrap();
    panics.store(true, Ordering::SeqCst);
    let y = tensors[0].square().unwrap();
    assert_eq!(words(runtime.get(&y)), "the policy panicked: not this one");
    runtime.sync().expect("told");
    panics.store(false, Ordering::SeqCst);
    for (i, x) in tensors.iter().enumerate() {
        let y = x.square().unwrap();
        assert_eq!(runtime.get(&y).unwrap().as_f32().unwrap()[0], (i * i) as f32);
    }
}

#[test]
fn a_policy_that_panics_over_an_eviction_ends_the_runtime_and_is_named() {
    let (runtime, panics) = nervous(true);
    let tensors: Vec<Tensor> = (0..4).map(|i| put(&runtime, i as f32)).collect();
    runtime.sync().unwrap();
    panics.store(true, Ordering::SeqCst);
    let expected = "the policy panicked: oh no";
    let asked: Vec<_> = (0..50)
        .map_while(|_| tensors[0].square().and_then(|y| runtime.get_later(&y)).ok())
        .collect();
    assert!(asked.into_iter().all(|pending| words(pending.wait()).contains(expected)));
    assert!(words(runtime.sync()).contains(expected));
    assert!(words(runtime.put(HostTensor::scalar(1.0))).contains(expected));
    assert!(words(runtime.get(&tensors[0])).contains(expected));
    assert!(words(runtime.stats()).contains(expected));
}

/// Recorder that panics at an event, or at the end of the recording.
#[derive(Debug)]
struct Clumsy {
    left: usize,
}

impl Recorder for Clumsy {
    fn record(&mut self, _: &trace::Entry) {
        assert!(self.left > 0, "out of ink");
        self.left -= 1;
    }

    fn finish(&mut self) -> std::io::Result<()> {
        panic!("lost the book")
    }
}

#[test]
fn a_recorder_that_panics_loses_the_recording_alone() {
    for (left, expected) in [(3, "out of ink"), (1000, "lost the book")] {
        let runtime =
            Runtime::builder().budget("1MiB").threads(1).record(Clumsy { left }).cpu().unwrap();
        let x = put(&runtime, 2.0);
        for _ in 0..5 {
            let y = x.square().unwrap();
            assert_eq!(runtime.get(&y).unwrap().as_f32().unwrap()[0], 4.0);
        }
        let expected = format!("the recorder panicked: {expected}");
        if left < 1000 {
            assert_eq!(words(runtime.sync()), expected);
        }
        runtime.sync().unwrap();
        assert_eq!(words(runtime.finish_recording()), expected);
        runtime.get(&x).unwrap();
    }
    // Dropping a runtime whose recorder panics does not hang.
    let builder = Runtime::builder().budget("1MiB").threads(1).record(Clumsy { left: 1000 });
    drop(builder.cpu().unwrap());
}

#[test]
fn a_device_that_panics_when_it_is_made_is_an_error_of_starting() {
    fn broken(_: u64) -> Result<Sim<Wild, Layout>, DeviceError> {
        panic!("no power")
    }
    let text = words(Runtime::builder().budget("1MiB").device(broken).map(drop));
    assert!(text.ends_with("panicked: no power"), "{text}");
}

/// Each call that training makes to the device fails once and panics once. The errors are reported,
/// and the runtime goes on.
#[test]
fn any_call_to_the_device_may_fail() {
    let run = |faults: &Arc<Faults>| -> Result<Vec<u8>, Error> {
        let builder = Runtime::builder().budget("20KiB").min_evict_bytes(0u64);
        let runtime = faulty_cpu(builder, faults)?;
        let mut w = put(&runtime, 0.5);
        let mut xs: Vec<Tensor> = (0..6).map(|i| put(&runtime, i as f32 / 7.0)).collect();
        for i in 0..6 {
            let y = xs[i].mul(&w)?;
            let z = y.add(&xs[(i + 1) % 6])?.tanh()?;
            xs.push(z);
            let mut moved = Tensor::concat(&[&xs[i], &y], 0)?;
            runtime.update(remat::unstable::ops::Accumulate, &mut [&mut w], &[&xs[i + 6]])?;
            std::mem::swap(&mut moved, &mut xs[i]);
            xs[i] = xs[i].slice(0, 0..256)?;
            runtime.step()?;
        }
        let mut bits = Vec::new();
        for tensor in xs.iter().chain([&w]) {
            bits.extend_from_slice(runtime.get(tensor)?.as_bytes());
        }
        runtime.sync()?;
        Ok(bits)
    };
    let expected = run(&Arc::default()).unwrap();
    let mut told = 0;
    for fault in [Fault::Fails, Fault::Panics, Fault::NoMemory] {
        for call in 0.. {
            let faults = Arc::<Faults>::default();
            faults.at_call(call, fault);
            let result = run(&faults);
            if !faults.disarm() {
                assert_eq!(result.unwrap(), expected);
                assert!(call > 50, "{call}");
                break;
            }
            match result {
                // The call was repeated or did not matter: `NoMemory` only affects calls that ask
                // for workspaces.
                Ok(bits) => assert!(bits == expected, "{fault:?} at call {call}"),
                Err(error) => {
                    told += 1;
                    let text = error.to_string();
                    let named = ["on purpose", "out of memory"].iter().any(|w| text.contains(w));
                    assert!(named, "{fault:?} at call {call}: {text}");
                }
            }
        }
    }
    assert!(told > 100, "{told}");
}
