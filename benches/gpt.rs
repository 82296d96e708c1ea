//! One training step of a GPT of 4 layers, width 128, 4 heads, 128 tokens, batch 16, vocabulary 256, in f32.
//!
//! Unbudgeted and at 60 % and 40 % of the peak, with the same bits. The baseline is PyTorch eager on the same cores in the
//! same run, where Python finds it (`benches/gpt_pytorch.py`, set `REMAT_PYTHON` to its interpreter); otherwise the
//! table says that it is missing.

use remat::autograd::Tape;
use remat::nn::{Gpt, LanguageModel, Mode, Module as _, gpt};
use remat::optim::Optimizer;
use remat::{HostTensor, Runtime};
use std::process::Command;
use std::time::Instant;

const SIZES: Gpt =
    Gpt { vocabulary: 256, context: 128, layers: 4, width: 128, heads: 4, dropout: 0.0 };
const BATCH: usize = 16;
const WARM_UP: usize = 3;
const STEPS: usize = 20;
const THREADS: usize = 2;

struct Training {
    runtime: Runtime,
    network: LanguageModel,
    optimizer: Optimizer,
}

impl Training {
    fn new(runtime: Runtime) -> Self {
        let network = gpt(&runtime, &SIZES).expect("usual sizes");
        Self { runtime, network, optimizer: Optimizer::sgd(0.05, 0.9, 0.0) }
    }

    /// Seconds of one step, the upload and the loss read back included.
    fn step(&mut self) -> f64 {
        let start = Instant::now();
        let runtime = &self.runtime;
        let count = BATCH * SIZES.context;
        let tokens = |shift: usize| (0..count).map(|i| ((i + shift) * 31 % 251) as i32).collect();
        let x = HostTensor::i32([BATCH, SIZES.context], tokens(0)).expect("as many");
        let labels = HostTensor::i32([count], tokens(1)).expect("as many");
        let x = runtime.put(x).expect("the runtime runs");
        let labels = runtime.put(labels).expect("the runtime runs");
        let tape = Tape::new(runtime);
        tape.watch(&mut self.network);
        let logits = self.network.forward(&x, Mode::Train).expect("shapes fit");
        let logits = logits.reshape(&[count, SIZES.vocabulary]).expect("shapes fit");
        let loss = logits.cross_entropy(&labels).expect("shapes fit");
        drop((x, labels, logits));
        self.optimizer.minimize(tape, &loss, &mut self.network).expect("shapes fit");
        runtime.step().expect("the runtime runs");
        loss.item().expect("the budget suffices");
        start.elapsed().as_secs_f64()
    }
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

/// Milliseconds of a step in PyTorch, if there is one.
fn pytorch() -> Option<f64> {
    let python = std::env::var("REMAT_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/gpt_pytorch.py");
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
    let mut rows = Vec::new();
    for percent in [None, Some(60), Some(40)] {
        let budget = percent.map_or(2 * peak, |percent| peak * percent / 100);
        let builder = Runtime::builder().budget(budget).threads(THREADS);
        rows.push((percent, Training::new(builder.cpu().expect("there is memory")), Vec::new()));
    }
    // Taking turns, so that all meet the same weather.
    let mut theirs = Vec::new();
    for round in 0..WARM_UP + STEPS {
        for (_, training, seconds) in &mut rows {
            let taken = training.step();
            if round >= WARM_UP {
                seconds.push(taken);
            }
        }
        if round % 10 == 0 {
            theirs.extend(pytorch().map(|milliseconds| milliseconds / 1e3));
        }
    }
    println!(
        "GPT, batch {BATCH}, {THREADS} threads, peak {:.1} MiB",
        peak as f64 / f64::from(1 << 20)
    );
    for (percent, _, seconds) in rows {
        let name = percent.map_or("unbudgeted".to_owned(), |percent| format!("{percent} %"));
        println!("{name:>12}: {:7.1} ms", 1e3 * median(seconds));
    }
    match theirs.is_empty() {
        true => println!("{:>12}: missing", "PyTorch"),
        false => println!("{:>12}: {:7.1} ms", "PyTorch", 1e3 * median(theirs)),
    }
}
