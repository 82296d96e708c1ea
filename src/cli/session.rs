//! A session is a network with its optimizer on a runtime. A rehearsal on a simulated device runs
//! the same code as the training.

use super::failure::Failure;
use super::interrupt;
use super::optimizer::OptimizerArgs;
use super::task::{Batch, Network, Score, Task};
use remat::autograd::{Gradients, Tape};
use remat::checkpoint::{Checkpoint, CheckpointError, Writer};
use remat::nn::{Sampling, State, generate, parameters, state};
use remat::optim::Optimizer;
use remat::unstable::collective::Ranks;
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
    /// The ranks that train together, if there are several.
    pub several: Option<&'a Several>,
}

impl<'a> Setup<'a> {
    /// Settings of one rank, which is not tested between steps.
    pub const fn alone(task: &'a dyn Task, batch: usize, optimizer: &'a OptimizerArgs) -> Self {
        Self { task, batch, tests_between: false, optimizer, several: None }
    }

    /// Number of batches in a step of all ranks.
    pub fn parts(&self) -> usize {
        let ranks = self.several.map_or(1, |several| several.ranks.size());
        self.optimizer.accumulate.saturating_mul(ranks)
    }

    /// Number of examples in a step of all ranks.
    pub fn examples(&self) -> usize {
        self.batch.saturating_mul(self.parts())
    }
}

/// Several ranks that train together. The parts of a step are numbered over all ranks: part `i` of
/// rank `r` of `N` ranks is part `i * N + r` of the step.
#[derive(Clone)]
pub struct Several {
    pub ranks: Ranks,
    /// Number of random ops in a part of a step. With this number, each rank draws the random
    /// numbers that a single rank would draw for the part.
    draws: u64,
}

impl Several {
    /// Ranks that train with batches of `batch` examples.
    pub fn new(ranks: &Ranks, task: &dyn Task, batch: usize) -> Result<Self, Failure> {
        let dry = Runtime::builder().budget(1u64 << 60).sim()?;
        let mut network = task.network(&dry)?;
        let (_, before) = dry.random_position();
        let tape = Tape::new(&dry);
        tape.watch(network.module());
        network.loss(&dry, &tape, task.blank(batch)?)?;
        let (_, after) = dry.random_position();
        Ok(Self { ranks: ranks.clone(), draws: after - before })
    }

    /// Adds up a value over all ranks.
    fn sum(&self, runtime: &Runtime, name: &str, value: &mut Tensor) -> Result<(), Error> {
        runtime.update(self.ranks.all_reduce(name), &mut [value], &[]).map(drop)
    }
}

/// A network with an optimizer, on a runtime.
pub struct Session {
    runtime: Runtime,
    network: Box<dyn Network>,
    optimizer: Optimizer,
    /// Number of batches whose gradients this rank adds up in a step.
    accumulate: usize,
    several: Option<Several>,
}

/// Results of an issued step. The results arrive when the runtime's worker thread has executed the
/// step.
pub struct Step {
    given: StepResults,
    stats: Pending<Stats>,
}

/// Results of an issued step, without statistics.
pub struct StepResults {
    loss: Pending<HostTensor>,
    /// Whether a rank was interrupted before it issued the step; `None` for one rank.
    interrupted: Option<Pending<HostTensor>>,
}

impl StepResults {
    /// Waits for the loss, and for whether a rank was interrupted. Fails if the step failed: the
    /// loss or the other answer may bring the error.
    pub fn wait(self) -> Result<(f32, bool), Error> {
        let loss = number(self.loss)?;
        let interrupted = self.interrupted.map(number).transpose()?;
        Ok((loss, interrupted.is_some_and(|ranks| ranks > 0.0)))
    }
}

/// Results of a step.
pub struct Answer {
    /// Mean loss of all parts of the step.
    pub loss: f32,
    pub stats: Stats,
    /// Whether one of several ranks was interrupted before it issued the step.
    pub is_interrupted: bool,
}

/// The number in a tensor of one element.
fn number(pending: Pending<HostTensor>) -> Result<f32, Error> {
    let host = pending.wait()?;
    Ok(host.as_f32().and_then(|values| values.first().copied()).expect("it is one number"))
}

impl Step {
    /// Waits for the loss, and for the statistics after the step. Fails if the step failed.
    pub fn wait(self) -> Result<Answer, Error> {
        let (loss, is_interrupted) = self.given.wait()?;
        Ok(Answer { loss, stats: self.stats.wait()?, is_interrupted })
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
        let mut optimizer = setup.optimizer.build();
        let several = setup.several.cloned();
        if let Some(Several { ranks, .. }) = &several {
            optimizer = optimizer.distributed(ranks);
            ranks.share_statistics(&runtime);
        }
        Ok(Self { runtime, network, optimizer, accumulate, several })
    }

    /// Runtime of the session.
    pub const fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Issues a step, and requests the statistics after the step.
    pub fn step(&mut self, batch: impl Fn(usize) -> Batch, lr: f32) -> Result<Step, Error> {
        let given = self.give(batch, lr)?;
        Ok(Step { given, stats: self.runtime.stats_later()? })
    }

    /// Issues a step, without requesting statistics. `batch(i)` makes batch `i` of the step. Every
    /// handle is dropped as soon as the last op that reads its tensor is issued.
    pub fn give(&mut self, batch: impl Fn(usize) -> Batch, lr: f32) -> Result<StepResults, Error> {
        let Self { runtime, network, optimizer, accumulate, several } = self;
        optimizer.lr = lr;
        let last = *accumulate - 1;
        let several = several.as_ref();
        let (rank, ranks) =
            several.map_or((0, 1), |several| (several.ranks.rank(), several.ranks.size()));
        let parts = *accumulate * ranks;
        let (_, drawn) = runtime.random_position();
        let draw = |part: usize| {
            if let Some(Several { draws, .. }) = several {
                runtime.set_random_position(drawn + part as u64 * draws);
            }
        };
        let (mut gradients, mut sum) = (Gradients::default(), None::<Tensor>);
        for part in 0..=last {
            let number = part * ranks + rank;
            draw(number);
            let tape = Tape::new(runtime);
            tape.watch(network.module());
            let mut loss = network.loss(runtime, &tape, batch(number))?;
            if parts > 1 {
                loss = (loss / parts as f32)?;
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
        draw(parts);
        let mut loss = sum.expect("at least one batch");
        let mut interrupted = None;
        if let Some(several) = several {
            several.sum(runtime, "loss", &mut loss)?;
            let flag = f32::from(u8::from(interrupt::is_requested()));
            let mut flag = runtime.tensor(&[1], vec![flag])?;
            several.sum(runtime, "interrupted", &mut flag)?;
            interrupted = Some(runtime.get_later(&flag)?);
        }
        let answer = runtime.get_later(&loss)?;
        drop(loss);
        runtime.step()?;
        Ok(StepResults { loss: answer, interrupted })
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
