//! Elapsed time of a training step of ResNet-20 with 64 images of 3x32x32 in f32.
//!
//! The step runs without a budget, and in 60 % and 40 % of the peak, with the same bits. The
//! baseline is PyTorch eager on the same cores in the same run (`benches/resnet20_pytorch.py`). Set
//! `REMAT_PYTHON` to a Python interpreter with PyTorch. Without PyTorch, the table has no baseline.

use remat::autograd::Tape;
use remat::data::{Batches, Dataset};
use remat::nn::{Mode, Module, ResNet, Sequential, resnet};
use remat::optim::Optimizer;
use remat::{CostModelKind, HostTensor, Runtime};
use std::process::Command;
use std::time::Instant;

const BATCH: usize = 64;
const WARM_UP: usize = 3;
const STEPS: usize = 20;

struct Training {
    runtime: Runtime,
    network: Sequential,
    sgd: Optimizer,
    images: HostTensor,
    labels: HostTensor,
}

impl Training {
    fn new(runtime: Runtime) -> Self {
        let data = Dataset::synthetic([3, 32, 32], 1).expect("a usual size").train;
        let (images, labels) = data.batch(Batches::new(data.len(), BATCH, 1).next_batch());
        let network =
            resnet(&runtime, ResNet::Cifar { n: 3 }, 3, [32, 32], 10).expect("a usual size");
        Self { runtime, network, sgd: Optimizer::sgd(0.1, 0.9, 5e-4), images, labels }
    }

    /// Seconds of a step, with the upload and the loss read back.
    fn step(&mut self) -> f64 {
        let start = Instant::now();
        let runtime = &self.runtime;
        let images = runtime.put(self.images.clone()).expect("the runtime runs");
        let labels = runtime.put(self.labels.clone()).expect("the runtime runs");
        let tape = Tape::new(runtime);
        tape.watch(&mut self.network);
        let logits = self.network.forward(&images, Mode::Train).expect("shapes fit");
        let loss = logits.cross_entropy(&labels).expect("shapes fit");
        drop((images, labels, logits));
        self.sgd.minimize(tape, &loss, &mut self.network).expect("shapes fit");
        runtime.step().expect("the runtime runs");
        loss.item().expect("the budget suffices");
        start.elapsed().as_secs_f64()
    }
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

/// Milliseconds of a step in PyTorch, if PyTorch is found.
fn pytorch() -> Option<f64> {
    let python = std::env::var("REMAT_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/resnet20_pytorch.py");
    let output = Command::new(python).arg(script).output().ok().filter(|o| o.status.success())?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}

fn main() {
    let dry = Runtime::builder().sim().expect("a sim starts");
    let mut training = Training::new(dry.clone());
    for _ in 0..2 {
        training.step();
    }
    let peak = dry.stats().expect("the runtime runs").peak_bytes;
    drop(training);

    let mut rows: Vec<(String, Training, Vec<f64>)> =
        [(None, 2), (Some(60), 2), (Some(40), 2), (None, 1)]
            .into_iter()
            .map(|(percent, threads)| {
                let builder =
                    Runtime::builder().threads(threads).seed(1).cost_model(CostModelKind::Flops);
                let builder = match percent {
                    Some(percent) => builder.budget(peak * percent / 100),
                    None => builder,
                };
                let budget =
                    percent.map_or("no budget".to_owned(), |p| format!("{p} % of {peak} bytes"));
                let training = Training::new(builder.cpu().expect("it starts"));
                (format!("{budget}, {threads} threads"), training, Vec::new())
            })
            .collect();
    let baseline = pytorch();
    // Rounds of the rows alternate, so that other work on the machine disturbs all rows equally.
    // The row with one thread runs last and separately, because a virtual machine is slow to
    // reactivate an idle core.
    let (two_threads, one_thread) = rows.split_at_mut(3);
    for group in [two_threads, one_thread] {
        for step in 0..WARM_UP + STEPS {
            for (_, training, seconds) in &mut *group {
                let time = training.step();
                if step >= WARM_UP {
                    seconds.push(time);
                }
            }
        }
    }
    println!(
        "{:44} {:>10} {:>10} {:>12}",
        "ResNet-20 step, batch 64, 3x32x32", "median ms", "best ms", "to PyTorch"
    );
    match baseline {
        Some(ms) => println!(
            "{:44} {ms:10.1} {:>10} {:12.2}",
            "PyTorch eager, 2 threads (baseline)", "", 1.0
        ),
        None => println!("PyTorch was not found: set REMAT_PYTHON to a Python that has it"),
    }
    for (name, _, seconds) in rows {
        let best = 1e3 * seconds.iter().copied().fold(f64::INFINITY, f64::min);
        let median = 1e3 * median(seconds);
        let ratio = baseline.map_or("-".to_owned(), |ms| format!("{:.2}", median / ms));
        println!("{name:44} {median:10.1} {best:10.1} {ratio:>12}");
    }
}
