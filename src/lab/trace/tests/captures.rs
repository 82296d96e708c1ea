//! Tests with captures of recorded steps and of the paper's logs. The tests check that steps
//! repeat, and that steps need less memory in other orders.

use super::*;
use crate::autograd::Tape;
use crate::nn::{Mode, Module as _, ResNet, Sequential, mlp, resnet};
use crate::optim::Optimizer;
use crate::sync::{Mutex, lock};
use crate::trace::JsonLines;
use crate::{DType, Dims, HostTensor, Runtime};
use remat_plan::order::{self, Reach};
use remat_plan::{BestFit, Capture, CapturedOp, Limits};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn in_crate(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Traces in a folder, by name.
fn traces(folder: &Path) -> Vec<Trace> {
    let Ok(files) = std::fs::read_dir(folder) else {
        eprintln!("skipped, there is no {}", folder.display());
        return vec![];
    };
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| Trace::open(file).unwrap()).collect()
}

fn last_step(trace: &Trace) -> Capture {
    let program = trace.program();
    let step = program.steps().pop().unwrap_or(0..program.commands().len());
    program.capture(step, 1).unwrap()
}

#[test]
fn recorded_steps_repeat() {
    let trace = Trace::open(in_crate("tests/data/resnet20-v3.jsonl.gz")).unwrap();
    let trace = trace.repeat_step(3).unwrap();
    let steps: Vec<Capture> = trace
        .program()
        .steps()
        .into_iter()
        .map(|step| trace.program().capture(step, 256).unwrap())
        .collect();
    assert_eq!(steps.len(), 4);
    // The first step includes the initial values.
    assert!(steps[0].ops().len() > steps[1].ops().len());
    assert!(steps[0].difference(&steps[1]).is_some());
    for later in &steps[2..] {
        assert_eq!(later.difference(&steps[1]).map(|one| one.to_string()), None);
        assert_eq!(later.signature(), steps[1].signature());
    }
    let best = order::LeastPeak;
    let own = steps[1].program().load();
    let order = order::Scheduler::order(&best, &steps[1], Reach::Offline, &Limits::none()).unwrap();
    assert!(order.load() <= own && order::floor(&steps[1]) <= order.load());
}

#[test]
fn the_papers_logs_are_steps() {
    for trace in traces(&in_crate("../shared/data/traces")) {
        let capture = last_step(&trace);
        let (cost, base) = (capture.cost(), trace.program().base_cost());
        assert!((cost / base - 1.0).abs() < 1e-9, "{}: {cost} {base}", trace.name());
        // A capture frees a value after its last read. In a log, the last name of the value is
        // released later.
        let own = capture.program().load();
        let peak = paper_logs::peak(trace.program());
        assert!(own <= peak && own > peak / 2, "{}: {own} {peak}", trace.name());
    }
}

/// Prints the memory that steps need in different orders, for the recordings in a folder and for
/// the paper's logs: `REMAT_RECORDINGS=folder cargo test --lib --release captures -- --ignored
/// --nocapture`.
#[test]
#[ignore = "figures, which take a minute"]
fn figures() {
    let mut all = traces(&in_crate("../shared/data/traces"));
    if let Ok(folder) = std::env::var("REMAT_RECORDINGS") {
        all.extend(traces(Path::new(&folder)));
    }
    for trace in all {
        let capture = last_step(&trace);
        let own = capture.program().load();
        let to_own = |bytes: u64| 100.0 * (bytes as f64 / own as f64 - 1.0);
        println!(
            "{}: {} ops, load {own}, floor {:+.2} %",
            trace.name(),
            capture.ops().len(),
            to_own(order::floor(&capture))
        );
        for reach in [Reach::Offline, Reach::Held(usize::MAX), Reach::Held(64)] {
            let limits = Limits::within(std::time::Duration::from_secs(20));
            for one in order::score(&capture, &order::all(), reach, &BestFit, &limits) {
                match one {
                    Ok(one) => println!(
                        "  {reach:?} {}: load {:+.2} %, planned {:+.2} %, holds back {:?}",
                        one.name,
                        to_own(one.load),
                        to_own(one.planned),
                        one.order.held(),
                    ),
                    Err(error) => println!("  {reach:?}: {error}"),
                }
            }
        }
    }
}

/// Buffer that another thread writes.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        lock(&self.0).write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Records a few steps of training, with random numbers and a falling learning rate.
fn training(
    network: impl FnOnce(&Runtime) -> Sequential,
    optimizer: fn(f32) -> Optimizer,
) -> Trace {
    let text = Shared::default();
    let runtime = Runtime::builder().record(JsonLines::to(text.clone())).sim().unwrap();
    let mut network = network(&runtime);
    let mut optimizer = optimizer(0.1);
    for _ in 0..5 {
        let zeros = |dtype, shape: &[usize]| HostTensor::zeros(dtype, Dims::new(shape)).unwrap();
        let images = runtime.put(zeros(DType::F32, &[2, 3, 16, 16])).unwrap();
        let labels = runtime.put(zeros(DType::I32, &[2])).unwrap();
        let tape = Tape::new(&runtime);
        tape.watch(&mut network);
        let logits = network.forward(&images, Mode::Train).unwrap().dropout(0.5).unwrap();
        let loss = logits.cross_entropy(&labels).unwrap();
        drop((images, labels, logits));
        optimizer.minimize(tape, &loss, &mut network).unwrap();
        optimizer.lr *= 0.7;
        runtime.get(&loss).unwrap();
        drop(loss);
        runtime.step().unwrap();
    }
    runtime.finish_recording().unwrap();
    let text = lock(&text.0);
    Trace::read(&text[..], "training").unwrap()
}

#[test]
fn steps_of_training_repeat() {
    type Network = fn(&Runtime) -> Sequential;
    let networks: [Network; 2] = [
        |runtime| mlp(runtime, 3 * 16 * 16, &[20, 10], 10).unwrap(),
        |runtime| resnet(runtime, ResNet::Cifar { n: 1 }, 3, [16, 16], 10).unwrap(),
    ];
    let optimizers: [fn(f32) -> Optimizer; 2] =
        [|lr| Optimizer::sgd(lr, 0.9, 5e-4), |lr| Optimizer::adamw(lr, 0.01)];
    for network in networks {
        for optimizer in optimizers {
            let trace = training(network, optimizer);
            let steps = trace.program().steps();
            assert_eq!(steps.len(), 5);
            let capture = |step: Range<usize>| trace.program().capture(step, 256).unwrap();
            let steps: Vec<Capture> = steps.into_iter().map(capture).collect();
            for later in &steps[2..] {
                assert_eq!(later.difference(&steps[1]).map(|one| one.to_string()), None);
            }
            // The step is not empty: it updates values in place.
            let updates = |op: &&CapturedOp| !op.updates.is_empty();
            assert!(steps[1].ops().iter().filter(updates).count() > 0);
        }
    }
}
