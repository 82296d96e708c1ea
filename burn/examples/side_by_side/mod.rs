//! Trains a model with plain Burn and then under a budget, and compares the results.

#![allow(dead_code)] // Each example uses a part of this module.

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::{Device, Tensor};
use burn_flex::Flex;
use remat_burn::remat::trace::JsonLines;
use remat_burn::remat::{ByteSize, Stats};
use remat_burn::{Builder, Guard};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Instant;

pub type Failure = Box<dyn std::error::Error>;

#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Memory for all tensors, such as 8MiB, or a share of what it takes without a budget, such as 40%
    #[arg(long, default_value = "50%", value_name = "SIZE")]
    pub budget: Budget,
    /// Combine with Burn's gradient checkpointing
    #[arg(long)]
    pub checkpointing: bool,
    /// Record the run under the budget for remat's lab, in a file such as run.jsonl or run.jsonl.gz
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug)]
pub enum Budget {
    Bytes(u64),
    Percent(u64),
}

impl FromStr for Budget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(percent) = text.strip_suffix('%') else {
            let ByteSize(bytes) =
                text.parse().map_err(|error: <ByteSize as FromStr>::Err| error.to_string())?;
            return Ok(Self::Bytes(bytes));
        };
        match percent.trim().parse() {
            Ok(percent @ 1..=100) => Ok(Self::Percent(percent)),
            _ => Err("a share is a whole number from 1% to 100%".to_owned()),
        }
    }
}

impl Options {
    /// Starts the device under the budget. If the budget is a share, `without` first trains without
    /// a limit, to find the full memory.
    pub fn serve(
        &self,
        without: impl FnOnce(&Guard) -> Result<(), Failure>,
    ) -> Result<Guard, Failure> {
        let bytes = match self.budget {
            Budget::Bytes(bytes) => bytes,
            Budget::Percent(percent) => {
                let guard = unlimited()?;
                without(&guard)?;
                let Stats { peak_bytes: full, .. } = guard.stats()?;
                let budget = full * percent / 100;
                println!("budget         {}, {percent} % of {}", ByteSize(budget), ByteSize(full));
                budget
            }
        };
        let mut builder: Builder = remat_burn::budget(bytes);
        if let Some(path) = &self.record {
            builder = builder.record(JsonLines::create(path)?);
        }
        Ok(builder.serve::<Flex>(Default::default())?)
    }

    /// Device for training.
    pub fn autodiff(&self, device: Device) -> Device {
        let device = device.autodiff();
        if self.checkpointing { device.gradient_checkpointing() } else { device }
    }
}

/// Device with a budget that is never reached.
fn unlimited() -> Result<Guard, Failure> {
    Ok(remat_burn::budget("1TiB").serve::<Flex>(Default::default())?)
}

/// Model and data to train on.
pub trait Task {
    type Model: Module;
    /// Number of steps.
    fn steps(&self) -> usize;
    /// Whether training draws random numbers. Random numbers under a budget differ from those of
    /// plain Burn.
    fn is_random(&self) -> bool;
    /// Makes the model.
    fn model(&self, device: &Device) -> Self::Model;
    /// Loss of a step.
    fn loss(&self, model: &Self::Model, step: usize, device: &Device) -> Tensor<1>;
    /// Result of the training, in a line.
    fn learned(&self, model: Self::Model, device: &Device) -> Result<String, Failure>;
}

/// Trains by plain Burn and under a budget, and compares the parameters.
pub fn run(task: &impl Task, options: &Options) -> Result<(), Failure> {
    let flex = options.autodiff(Device::flex());
    let steps = task.steps();
    println!("model          {} parameters, {steps} steps", task.model(&flex).num_params());
    let plain = train(task, steps, &flex, || Ok(()))?;
    println!("plain Burn     {}", plain.losses());

    // Two steps show the memory needed without a budget.
    let guard = options.serve(|guard| {
        let device = options.autodiff(guard.device());
        train(task, 2, &device, || Ok(guard.step()?)).map(|_| ())
    })?;
    let device = options.autodiff(guard.device());
    let ours = train(task, steps, &device, || Ok(guard.step()?))?;
    println!("under a budget {}", ours.losses());
    guard.finish_recording()?;
    println!("{}", guard.summary()?);

    let (other, whose) = if task.is_random() {
        let guard = unlimited()?;
        let device = options.autodiff(guard.device());
        (train(task, steps, &device, || Ok(guard.step()?))?, "without a limit")
    } else {
        (plain, "by plain Burn")
    };
    if ours.parameters != other.parameters {
        return Err(format!("the parameters are not the same bits as {whose}").into());
    }
    println!("parameters     the same bits as {whose}");
    println!("learned        {}", task.learned(ours.model, &device)?);
    Ok(())
}

struct Trained<M> {
    model: M,
    /// Bytes of all parameters.
    parameters: Vec<u8>,
    first: f32,
    last: f32,
    seconds: f64,
}

impl<M> Trained<M> {
    fn losses(&self) -> String {
        format!("loss {:.4}, then {:.4}, in {:.1} s", self.first, self.last, self.seconds)
    }
}

/// Trains as usual with Burn, and calls `end` at the end of each step.
fn train<T: Task>(
    task: &T,
    steps: usize,
    device: &Device,
    end: impl Fn() -> Result<(), Failure>,
) -> Result<Trained<T::Model>, Failure> {
    let start = Instant::now();
    // All training runs begin with the same parameters. Clones of a single model would share the
    // running means of batch norm.
    let flex = Device::flex();
    flex.seed(1);
    let model = task.model(&flex.with_autodiff_context_from(device));
    let _drawn = bytes_of(&model);
    let mut model = model.fork(device);
    let mut adam = AdamConfig::new().init();
    let (mut first, mut last) = (0.0, 0.0);
    for step in 0..steps {
        let loss = task.loss(&model, step, device);
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = adam.step(3e-3, model, gradients);
        end()?;
        last = loss.try_into_scalar()?;
        if step == 0 {
            first = last;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    Ok(Trained { parameters: bytes_of(&model), model, first, last, seconds })
}

/// Bytes of all parameters of a model.
pub fn bytes_of(model: &impl Module) -> Vec<u8> {
    let mut bytes = Bytes(Vec::new());
    model.visit(&mut bytes);
    bytes.0
}

struct Bytes(Vec<u8>);

impl ModuleVisitor for Bytes {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.0.extend_from_slice(param.val().into_data().as_bytes());
    }
}
