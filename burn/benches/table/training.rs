//! Training, where it may be done.

use crate::common::{Bits, Fill, Net, Outcome};
use burn::nn::loss::{CrossEntropyLoss, CrossEntropyLossConfig};
use burn::optim::{AdamConfig, GradientsParams, ModuleOptimizer};
use burn::tensor::{Device, Int, Tensor, TensorData};
use burn_flex::{Flex, FlexDevice};
use remat_burn::Guard;
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
}

/// A device, and what ends a step there.
pub struct Place {
    device: Device,
    served: Option<Device>,
    pub guard: Option<Guard>,
}

impl Place {
    /// Training takes `full` bytes without a limit.
    pub fn new(how: How, checkpointing: bool, served: &Device, full: u64) -> Result<Self, String> {
        let mut place = Self { device: Device::flex(), served: None, guard: None };
        match how {
            How::Plain => {}
            How::Served => {
                place.device = served.clone();
                place.served = Some(served.clone());
            }
            How::Ours(percent) => {
                let budget = percent.map_or(1 << 40, |percent| full * percent / 100);
                let builder = remat_burn::budget(budget).recompute_limit(RECOMPUTE_LIMIT);
                let guard = builder.serve::<Flex>(FlexDevice).map_err(|error| error.to_string())?;
                place.device = guard.device();
                place.guard = Some(guard);
            }
        }
        let device = place.device.clone().autodiff();
        place.device = if checkpointing { device.gradient_checkpointing() } else { device };
        Ok(place)
    }

    fn end_step(&self) -> Result<(), String> {
        if let Some(served) = &self.served {
            return served.sync().map_err(|error| error.to_string());
        }
        self.guard.as_ref().map_or(Ok(()), Guard::step).map_err(|error| error.to_string())
    }
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
