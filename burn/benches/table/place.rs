//! Where a model may be trained.

use crate::common::{Net, Training};
use burn::tensor::Device;
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
    pub device: Device,
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

    /// The seconds that a step of training on this device takes.
    pub fn step<N: Net>(&self, training: &mut Training<N>) -> Result<f64, String> {
        let start = Instant::now();
        let trained = training.step();
        // The engine's own words come first.
        self.end_step()?;
        trained?;
        Ok(start.elapsed().as_secs_f64())
    }

    fn end_step(&self) -> Result<(), String> {
        if let Some(served) = &self.served {
            return served.sync().map_err(|error| error.to_string());
        }
        self.guard.as_ref().map_or(Ok(()), Guard::step).map_err(|error| error.to_string())
    }
}
