//! Training, where it may be done.

use crate::common::{Bits, Fill, Net, Outcome};
use burn::nn::loss::{CrossEntropyLoss, CrossEntropyLossConfig};
use burn::optim::{AdamConfig, GradientsParams, ModuleOptimizer};
use burn::tensor::{Device, Int, Tensor, TensorData};
use burn_flex::{Flex, FlexDevice};
use remat_burn::remat::program::KnownSteps;
use remat_burn::{Builder, Guard};
use std::time::Instant;

/// A run that recomputes this many times the work itself is given up.
const RECOMPUTE_LIMIT: f64 = 4.0;

/// Where a model is trained.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum How {
    Plain,
    /// Burn's own server.
    Served,
    /// Percent of what it takes without a limit; `None` is without one.
    Ours(Option<u64>),
    /// The same, with its steps known from a device that computes nothing.
    Rehearsed(u64),
}

/// A device, and what ends a step there.
pub struct Place {
    device: Device,
    served: Option<Device>,
    pub guard: Option<Guard>,
}

impl Place {
    /// Training takes `full` bytes without a limit.
    pub fn new<N: Net>(
        how: How,
        checkpointing: bool,
        served: &Device,
        full: u64,
    ) -> Result<Self, String> {
        let mut place = Self { device: Device::flex(), served: None, guard: None };
        match how {
            How::Plain => {}
            How::Served => {
                place.device = served.clone();
                place.served = Some(served.clone());
            }
            How::Ours(percent) => {
                let budget = percent.map_or(1 << 40, |percent| full * percent / 100);
                place.guard = Some(guard(remat_burn::budget(budget))?);
            }
            How::Rehearsed(percent) => {
                let mut rehearsal = Self { guard: Some(sim()?), ..place };
                rehearsal.train_on(checkpointing);
                let mut training = Training::<N>::new(&rehearsal);
                for _ in 0..3 {
                    training.step()?;
                }
                drop(training);
                let known = rehearsal.guard.as_ref().map(Guard::known_steps);
                let known = known.transpose().map_err(|error| error.to_string())?.flatten();
                let known = known.expect("the default policy looks ahead");
                place = Self { device: Device::flex(), served: None, guard: None };
                let budget = remat_burn::budget(full * percent / 100).known_steps(known);
                place.guard = Some(guard(budget)?);
            }
        }
        place.train_on(checkpointing);
        Ok(place)
    }

    fn train_on(&mut self, checkpointing: bool) {
        let device = self.guard.as_ref().map_or_else(|| self.device.clone(), Guard::device);
        let device = device.autodiff();
        self.device = if checkpointing { device.gradient_checkpointing() } else { device };
    }

    fn end_step(&self) -> Result<(), String> {
        if let Some(served) = &self.served {
            return served.sync().map_err(|error| error.to_string());
        }
        self.guard.as_ref().map_or(Ok(()), Guard::step).map_err(|error| error.to_string())
    }
}

fn guard(builder: Builder) -> Result<Guard, String> {
    let builder = builder.recompute_limit(RECOMPUTE_LIMIT);
    builder.serve::<Flex>(FlexDevice).map_err(|error| error.to_string())
}

fn sim() -> Result<Guard, String> {
    let builder = remat_burn::budget(1_u64 << 60).known_steps(KnownSteps::marked());
    builder.sim::<Flex>(FlexDevice).map_err(|error| error.to_string())
}

/// A model that is trained by Adam, step by step.
pub struct Training<'a, N> {
    place: &'a Place,
    model: Option<N>,
    optim: ModuleOptimizer,
    loss_of: CrossEntropyLoss,
    losses: Vec<u32>,
}

impl<'a, N: Net> Training<'a, N> {
    pub fn new(place: &'a Place) -> Self {
        Self {
            place,
            model: Some(N::new(&place.device).map(&mut Fill(0))),
            optim: AdamConfig::new().init(),
            loss_of: CrossEntropyLossConfig::new().init(&place.device),
            losses: Vec::new(),
        }
    }

    /// The seconds that a step takes.
    pub fn step(&mut self) -> Result<f64, String> {
        let start = Instant::now();
        let (device, step) = (&self.place.device, self.losses.len() as u64);
        let model = self.model.take().ok_or("a step before failed")?;
        let logits = model.logits(step % 4, device);
        let rows = logits.dims()[0];
        let classes: Vec<i32> = (0..rows as i32).map(|i| (i * 7 + step as i32 % 4) % 10).collect();
        let classes = Tensor::<1, Int>::from_data(TensorData::new(classes, [rows]), device);
        let loss = self.loss_of.forward(logits, classes);
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        let model = self.optim.step(1e-3, model, grads);
        let loss = loss.try_into_scalar::<f32>().map_err(|error| error.to_string());
        // The engine's own words come first.
        self.place.end_step()?;
        self.losses.push(loss?.to_bits());
        self.model = Some(model);
        Ok(start.elapsed().as_secs_f64())
    }

    /// What it came to.
    pub fn outcome(self) -> Outcome {
        let mut bits = Bits(0xcbf2_9ce4_8422_2325);
        self.model.iter().for_each(|model| model.visit(&mut bits));
        Outcome { losses: self.losses, params: bits.0 }
    }
}
