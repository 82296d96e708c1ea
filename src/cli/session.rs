//! A session is a network with its optimizer on a runtime. A rehearsal on a simulated device runs
//! the same code as the training.

use super::interrupt;
use super::optimizer::OptimizerArgs;
use super::task::{Batch, Network, Score, Task};
use remat::autograd::{Gradients, Tape};
use remat::checkpoint::{Checkpoint, CheckpointError, Writer};
use remat::nn::{Sampling, State, generate, parameters, state};
use remat::optim::Optimizer;
use remat::{Error, HostTensor, Pending, Runtime, Stats, Tensor};
use sha2::{Digest as _, Sha256};
use std::ops::ControlFlow;
use std::path::Path;

/// Settings of a training.
#[derive(Clone, Copy)]
pub struct Setup<'a> {
    pub task: &'a dyn Task,
    pub batch: usize,
    /// Whether the network is also tested between steps.
    pub tests_between: bool,
    pub optimizer: &'a OptimizerArgs,
}

impl Setup<'_> {
    /// Number of examples in a step.
    pub const fn examples(&self) -> usize {
        self.batch.saturating_mul(self.optimizer.accumulate)
    }
}

/// A network with an optimizer, on a runtime.
pub struct Session {
    runtime: Runtime,
    network: Box<dyn Network>,
    optimizer: Optimizer,
    /// Number of batches whose gradients are added up in a step.
    accumulate: usize,
}

/// Results of an issued step. The results arrive when the runtime's worker thread has executed the
/// step.
pub struct Step {
    loss: Pending<HostTensor>,
    stats: Pending<Stats>,
}

impl Step {
    /// Waits for the loss, and for the statistics after the step. Fails if the step failed.
    pub fn wait(self) -> Result<(f32, Stats), Error> {
        let loss = self.loss.wait()?;
        let loss = loss.as_f32().and_then(|loss| loss.first().copied());
        Ok((loss.expect("a loss is a number"), self.stats.wait()?))
    }
}

impl Session {
    /// A session with a fresh network.
    pub fn new(runtime: Runtime, setup: &Setup<'_>) -> Result<Self, Error> {
        interrupt::cancels(runtime.canceller());
        let mut network = setup.task.network(&runtime)?;
        for (name, state) in state(network.module()) {
            let (State::Parameter(tensor) | State::Buffer(tensor)) = state;
            runtime.label(tensor, name)?;
        }
        let OptimizerArgs { accumulate, .. } = *setup.optimizer;
        Ok(Self { runtime, network, optimizer: setup.optimizer.build(), accumulate })
    }

    /// Runtime of the session.
    pub const fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Issues a step, and requests the statistics after the step.
    pub fn step(&mut self, batch: impl Fn(usize) -> Batch, lr: f32) -> Result<Step, Error> {
        let loss = self.give(batch, lr)?;
        Ok(Step { loss, stats: self.runtime.stats_later()? })
    }

    /// Issues a step, without requesting statistics. `batch(i)` makes batch `i` of the step. Every
    /// handle is dropped as soon as the last op that reads its tensor is issued.
    pub fn give(
        &mut self,
        batch: impl Fn(usize) -> Batch,
        lr: f32,
    ) -> Result<Pending<HostTensor>, Error> {
        let Self { runtime, network, optimizer, accumulate } = self;
        optimizer.lr = lr;
        let last = *accumulate - 1;
        let (mut gradients, mut sum) = (Gradients::default(), None::<Tensor>);
        for part in 0..=last {
            let tape = Tape::new(runtime);
            tape.watch(network.module());
            let mut loss = network.loss(runtime, &tape, batch(part))?;
            if last > 0 {
                loss = (loss / *accumulate as f32)?;
            }
            if part < last {
                tape.backward_onto(&loss, &mut gradients)?;
            } else {
                let gradients = std::mem::take(&mut gradients);
                optimizer.minimize_with(tape, &loss, network.module(), gradients)?;
            }
            let loss = loss.detach();
            sum = Some(match sum.take() {
                Some(sum) => (sum + loss)?,
                None => loss,
            });
        }
        let loss = sum.expect("at least one batch");
        let answer = runtime.get_later(&loss)?;
        drop(loss);
        runtime.step()?;
        Ok(answer)
    }

    /// Writes a checkpoint: the network, the states of the optimizer and of the random numbers, and
    /// the metadata `text` under `name`.
    pub fn save(
        &mut self,
        path: &Path,
        (name, text): (&str, String),
    ) -> Result<(), CheckpointError> {
        let Self { runtime, network, optimizer, .. } = self;
        Writer::of(network.module()).optimizer(optimizer).with(name, text).save(runtime, path)
    }

    /// Loads the network, and the states of the optimizer and of the random numbers.
    pub fn load(&mut self, checkpoint: &Checkpoint) -> Result<(), CheckpointError> {
        let Self { runtime, network, optimizer, .. } = self;
        checkpoint.load(runtime, network.module())?;
        checkpoint.load_optimizer(runtime, network.module(), optimizer)?;
        checkpoint.load_random(runtime)
    }

    /// Loads the network, but no state of the optimizer or of random numbers.
    pub fn load_network(&mut self, checkpoint: &Checkpoint) -> Result<(), CheckpointError> {
        checkpoint.load(&self.runtime, self.network.module())
    }

    /// Continues the text of `prompt`. Calls `told` with each new token.
    pub fn generate(
        &mut self,
        prompt: &[i32],
        sampling: Sampling,
        told: impl FnMut(i32) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        generate(&self.runtime, self.network.module(), prompt, sampling, told)
    }

    /// Score of the network on a batch.
    pub fn score(&mut self, batch: Batch) -> Result<Score, Error> {
        self.network.score(&self.runtime, batch)
    }

    /// Number of learned values.
    pub fn parameters(&mut self) -> usize {
        parameters(self.network.module()).map(|(_, parameter)| parameter.layout().elements()).sum()
    }

    /// SHA-256 over the bytes of all parameters and buffers, in the order of [`state`].
    pub fn digest(&mut self) -> Result<String, Error> {
        let mut hash = Sha256::new();
        for (_, state) in state(self.network.module()) {
            let (State::Parameter(tensor) | State::Buffer(tensor)) = state;
            hash.update(self.runtime.get(tensor)?.as_bytes());
        }
        Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }
}
