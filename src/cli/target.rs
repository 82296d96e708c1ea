//! The device to train on, opened once, before any work.

use super::args::DeviceArgs;
use super::failure::Failure;
use super::gpu::Gpu;
use super::machine::{Machine, cores};
use super::terminal::warn;
use super::values::DeviceName;
use super::words::Counted;
use remat::device::sim::Sim;
use remat::tune::StandIn;
use remat::{Builder, Error, Runtime};
use serde::Serialize;
use std::fmt;
use std::sync::Arc;

/// A device that is ready.
pub enum Target {
    Cpu { threads: usize },
    Gpu(Gpu),
}

/// The description of a device.
#[derive(Debug, Serialize)]
pub struct About {
    device: String,
    /// Of the cpu alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    threads: Option<usize>,
    /// Of GPUs alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    tf32: Option<bool>,
}

impl fmt::Display for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.device)?;
        match self.threads {
            Some(1) => f.write_str(", 1 thread"),
            Some(threads) => write!(f, ", {threads} threads"),
            None if self.tf32 == Some(true) => f.write_str(", TF32"),
            None => Ok(()),
        }
    }
}

impl Target {
    /// Opens the chosen device. More threads than cores would only wait for each other: that they are fewer is said.
    pub fn open(args: &DeviceArgs, quiet: bool) -> Result<Self, Failure> {
        match args.device {
            DeviceName::Cpu => {
                let (cores, wanted) = (cores(), args.threads);
                if let Some(wanted) = wanted.filter(|wanted| *wanted > cores && !quiet) {
                    let cores = Counted(cores as u64, "core");
                    warn(format_args!(
                        "--threads {wanted}: there are {cores} for this program; a thread for each is all that helps"
                    ));
                }
                Ok(Self::Cpu { threads: wanted.map_or(cores, |wanted| wanted.min(cores)) })
            }
            DeviceName::Cuda(number) => Gpu::open(number, args.tf32).map(Self::Gpu),
        }
    }

    /// What rehearsals know of it.
    pub fn stand_in(&self) -> StandIn {
        let sim = match self {
            Self::Cpu { .. } => Arc::new(Sim::cpu),
            Self::Gpu(gpu) => gpu.sim(),
        };
        let free_bytes = self.available_bytes().ok();
        StandIn { name: self.about().to_string(), sim, free_bytes }
    }

    /// What is free now, less a margin.
    pub fn available_bytes(&self) -> Result<u64, Failure> {
        match self {
            Self::Cpu { .. } => Machine::look().available_bytes().ok_or_else(|| {
                Failure::new(
                    "this system does not say how much memory is free; give --budget a size",
                )
            }),
            Self::Gpu(gpu) => gpu.available_bytes(),
        }
    }

    /// Its description.
    pub fn about(&self) -> About {
        match self {
            Self::Cpu { threads } => {
                About { device: "cpu".to_owned(), threads: Some(*threads), tf32: None }
            }
            Self::Gpu(gpu) => {
                About { device: gpu.to_string(), threads: None, tf32: Some(gpu.tf32()) }
            }
        }
    }

    /// The runtime on it.
    pub fn start(self, builder: Builder) -> Result<Runtime, Error> {
        match self {
            Self::Cpu { threads } => builder.threads(threads).cpu(),
            Self::Gpu(gpu) => gpu.start(builder),
        }
    }
}
