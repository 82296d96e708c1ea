//! A network being trained: the same steps whether a device computes them or only counts.

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

/// What is trained, and how.
#[derive(Clone, Copy)]
pub struct Setup<'a> {
    pub task: &'a dyn Task,
    pub batch: usize,
    /// Whether there are tests between steps.
    pub tests_between: bool,
    pub optimizer: &'a OptimizerArgs,
}

impl Setup<'_> {
    /// Examples that a step learns from.
    pub const fn examples(&self) -> usize {
        self.batch.saturating_mul(self.optimizer.accumulate)
    }
}

/// A network and its optimizer on a runtime.
pub struct Session {
    runtime: Runtime,
    network: Box<dyn Network>,
    optimizer: Optimizer,
    /// Batches whose gradients are added up in a step.
    accumulate: usize,
}

/// What a step will say when the worker is through with it.
pub struct Step {
    loss: Pending<HostTensor>,
    stats: Pending<Stats>,
}

impl Step {
    /// The loss and the counters after it. The error of a step that failed comes out here.
    pub fn wait(self) -> Result<(f32, Stats), Error> {
        let loss = self.loss.wait()?;
        let loss = loss.as_f32().and_then(|loss| loss.first().copied());
        Ok((loss.expect("a loss is a number"), self.stats.wait()?))
    }
}

impl Session {
    /// A fresh network.
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

    /// The runtime it is on.
    pub const fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Does a step, and asks for the counters after it.
    pub fn step(&mut self, batch: impl Fn(usize) -> Batch, lr: f32) -> Result<Step, Error> {
        let loss = self.give(batch, lr)?;
        Ok(Step { loss, stats: self.runtime.stats_later()? })
    }

    /// Learns from a step's batches, which `batch` makes by their number in the step. Every handle goes as soon as the
    /// last op that reads it was given.
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

    /// Writes all that it has, and a text of this name, to a file.
    pub fn save(
        &mut self,
        path: &Path,
        (name, text): (&str, String),
    ) -> Result<(), CheckpointError> {
        let Self { runtime, network, optimizer, .. } = self;
        Writer::of(network.module()).optimizer(optimizer).with(name, text).save(runtime, path)
    }

    /// Takes the network, what the optimizer keeps, and where random numbers go on from a file.
    pub fn load(&mut self, checkpoint: &Checkpoint) -> Result<(), CheckpointError> {
        let Self { runtime, network, optimizer, .. } = self;
        checkpoint.load(runtime, network.module())?;
        checkpoint.load_optimizer(runtime, network.module(), optimizer)?;
        checkpoint.load_random(runtime)
    }

    /// Takes the network alone.
    pub fn load_network(&mut self, checkpoint: &Checkpoint) -> Result<(), CheckpointError> {
        checkpoint.load(&self.runtime, self.network.module())
    }

    /// Continues a text.
    pub fn generate(
        &mut self,
        prompt: &[i32],
        sampling: Sampling,
        told: impl FnMut(i32) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        generate(&self.runtime, self.network.module(), prompt, sampling, told)
    }

    /// How well the network does on a batch.
    pub fn score(&mut self, batch: Batch) -> Result<Score, Error> {
        self.network.score(&self.runtime, batch)
    }

    /// Number of learned values.
    pub fn parameters(&mut self) -> usize {
        parameters(self.network.module()).map(|(_, parameter)| parameter.layout().elements()).sum()
    }

    /// SHA-256 of all parameters and buffers in state order, as they lie in memory.
    pub fn digest(&mut self) -> Result<String, Error> {
        let mut hash = Sha256::new();
        for (_, state) in state(self.network.module()) {
            let (State::Parameter(tensor) | State::Buffer(tensor)) = state;
            hash.update(self.runtime.get(tensor)?.as_bytes());
        }
        Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }
}
