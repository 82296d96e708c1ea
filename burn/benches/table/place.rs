//! Devices on which the benchmark trains a model.

use crate::common::{Net, Training};
use burn::tensor::Device;
use burn_flex::{Flex, FlexDevice};
use remat_burn::remat::Stats;
use remat_burn::remat::unstable::program::KnownSteps;
use remat_burn::{Builder, Guard};
use std::time::Instant;

/// A run that recomputes this many times its own work ends with an error.
const RECOMPUTE_LIMIT: f64 = 4.0;

/// Number of rehearsed steps. The first step makes the optimizer's state, and the second and third
/// are equal.
const REHEARSED: usize = 4;

/// Device on which a model is trained.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum How {
    Plain,
    /// Burn's own server.
    Served,
    /// `remat-burn`, under a budget in percent of the memory that the model takes without a limit;
    /// `None` for no limit.
    Ours(Option<u64>),
    /// `remat-burn`, with steps predicted from a rehearsal on a device that computes nothing.
    Rehearsed(u64),
}

/// Facts about a model that its rows need.
pub struct Measured {
    /// A device of Burn's own server.
    pub served: Device,
    /// Bytes that training takes without a limit.
    pub full: u64,
    pub steps: KnownSteps,
}

impl Measured {
    /// Finds the memory and the steps of a model, on a device that computes nothing.
    pub fn of<N: Net>(served: &Device) -> Result<Self, remat_burn::Error> {
        let builder = remat_burn::budget(1_u64 << 40).known_steps(KnownSteps::marked());
        let guard = builder.sim::<Flex>(FlexDevice)?;
        let mut training = Training::<N>::new(&guard.autodiff());
        for _ in 0..REHEARSED {
            training.step().expect("zeros are read");
            guard.step()?;
        }
        let steps = guard.known_steps()?.expect("they are recognized");
        Ok(Self { served: served.clone(), full: guard.stats()?.peak_bytes, steps })
    }
}

/// Device, with the call that ends a step on it.
pub struct Place {
    pub device: Device,
    served: Option<Device>,
    pub guard: Option<Guard>,
}

impl Place {
    pub fn new(how: How, checkpointing: bool, known: &Measured) -> Result<Self, String> {
        let Measured { served, full, steps } = known;
        let share = |percent| remat_burn::budget(full * percent / 100);
        let mut place = match how {
            How::Plain => Self { device: Device::flex(), served: None, guard: None },
            How::Served => {
                Self { device: served.clone(), served: Some(served.clone()), guard: None }
            }
            How::Ours(None) => Self::ours(remat_burn::budget(1_u64 << 40))?,
            How::Ours(Some(percent)) => Self::ours(share(percent))?,
            How::Rehearsed(percent) => Self::ours(share(percent).known_steps(steps.clone()))?,
        };
        let device = place.device.autodiff();
        place.device = if checkpointing { device.gradient_checkpointing() } else { device };
        Ok(place)
    }

    fn ours(builder: Builder) -> Result<Self, String> {
        let guard = builder.recompute_limit(RECOMPUTE_LIMIT).serve::<Flex>(FlexDevice);
        let guard = guard.map_err(|error| error.to_string())?;
        Ok(Self { device: guard.device(), served: None, guard: Some(guard) })
    }

    /// Trains one step on this device, and returns its seconds.
    pub fn step<N: Net>(&self, training: &mut Training<N>) -> Result<f64, String> {
        let start = Instant::now();
        let trained = training.step();
        // An error of the engine is reported before an error of the training.
        self.end_step()?;
        trained?;
        Ok(start.elapsed().as_secs_f64())
    }

    /// Counters of `remat-burn`; `None` for plain Burn.
    pub fn stats(&self) -> Result<Option<Stats>, String> {
        let stats = self.guard.as_ref().map(Guard::stats);
        stats.transpose().map_err(|error| error.to_string())
    }

    fn end_step(&self) -> Result<(), String> {
        if let Some(served) = &self.served {
            return served.sync().map_err(|error| error.to_string());
        }
        self.guard.as_ref().map_or(Ok(()), Guard::step).map_err(|error| error.to_string())
    }
}
