//! Saves a checkpoint of a network, its optimizer and its random numbers. A run that resumes from
//! the checkpoint ends with the bits of an uninterrupted run.
//!
//! ```sh
//! cargo run --release --example 12_save_and_resume
//! ```

use remat::autograd::Tape;
use remat::checkpoint::{Checkpoint, CheckpointError, Writer};
use remat::nn::{Dropout, Linear, Mode, Module as _, Sequential, State, state};
use remat::optim::{Group, Optimizer, Schedule};
use remat::{Error, HostTensor, Runtime, Tensor};

const STEPS: usize = 40;

/// Training run at some step.
struct Run {
    runtime: Runtime,
    network: Sequential,
    optimizer: Optimizer,
}

impl Run {
    /// Begins a run. The seed determines the initial weights and the random numbers of dropout.
    fn new() -> Result<Self, Error> {
        let runtime = Runtime::builder().budget("512KiB").seed(7).cpu()?;
        let network = Sequential::new()
            .then("hidden", Linear::new(&runtime, 8, 64)?)
            .then_fn("relu", Tensor::relu)
            .then("dropout", Dropout::new(0.1))
            .then("out", Linear::new(&runtime, 64, 1)?);
        let optimizer = Optimizer::adamw(0.0, 0.01).group(Group::vectors().weight_decay(0.0));
        Ok(Self { runtime, network, optimizer })
    }

    /// Resumes from a checkpoint. Also returns the number of the step.
    fn resume(path: &std::path::Path) -> Result<(Self, usize), CheckpointError> {
        let mut run = Self::new()?;
        let checkpoint = Checkpoint::open(path)?;
        checkpoint.load(&run.runtime, &mut run.network)?;
        checkpoint.load_optimizer(&run.runtime, &mut run.network, &mut run.optimizer)?;
        checkpoint.load_random(&run.runtime)?;
        let step = checkpoint.get("step").and_then(|step| step.parse().ok()).unwrap_or(0);
        Ok((run, step))
    }

    /// Learns the mean of eight numbers. Data and learning rate depend only on the number of the
    /// step.
    fn train(&mut self, steps: std::ops::Range<usize>) -> Result<f32, Error> {
        let schedule = Schedule::cosine(0.01, 0.0, STEPS - 5).warmup(5);
        let mut last = f32::NAN;
        for step in steps {
            let number = |i: usize| ((i * 31 + step * 17) % 101) as f32 / 50.0 - 1.0;
            let x = self.runtime.tensor(&[64, 8], (0..512).map(number).collect())?;
            let target = x.mean_along(&[1], true)?;
            let tape = Tape::new(&self.runtime);
            tape.watch(&mut self.network);
            let y = self.network.forward(&x, Mode::Train)?;
            let loss = y.mse_loss(&target)?;
            self.optimizer.lr = schedule.rate(step);
            self.optimizer.minimize(tape, &loss, &mut self.network)?;
            self.runtime.step()?;
            last = loss.item()?;
        }
        Ok(last)
    }

    fn values(&mut self) -> Result<Vec<HostTensor>, Error> {
        let each = state(&mut self.network).into_iter();
        let each = each.map(|(_, State::Parameter(tensor) | State::Buffer(tensor))| tensor);
        each.map(|tensor| self.runtime.get(tensor)).collect()
    }
}

fn main() -> Result<(), CheckpointError> {
    let path =
        std::env::temp_dir().join(format!("remat-example-{}.safetensors", std::process::id()));

    let mut whole = Run::new()?;
    whole.train(0..STEPS)?;

    let mut first = Run::new()?;
    let loss = first.train(0..STEPS / 2)?;
    let writer = Writer::of(&mut first.network).optimizer(&first.optimizer);
    writer.with("step", STEPS / 2).save(&first.runtime, &path)?;
    println!("step {}: loss {loss:.5}, saved", STEPS / 2);
    drop(first);

    let (mut second, step) = Run::resume(&path)?;
    let loss = second.train(step..STEPS)?;
    println!("step {STEPS}: loss {loss:.5}");
    assert_eq!(second.values()?, whole.values()?);
    println!("the same bits as without the interruption");
    std::fs::remove_file(&path).map_err(|error| CheckpointError::Io { path, error })
}
