//! The target: the device to train on, which is opened once, before any work.

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

/// A device, ready for use.
pub enum Target {
    Cpu {
        threads: usize,
        /// Number of ranks on this machine.
        ranks: usize,
    },
    Gpu(Gpu),
}

/// Description of a device.
#[derive(Debug, Serialize)]
pub struct About {
    device: String,
    /// Number of threads, for the CPU only.
    #[serde(skip_serializing_if = "Option::is_none")]
    threads: Option<usize>,
    /// Whether TF32 is on, for GPUs only.
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
    /// Opens the chosen device, whose memory and cores `ranks` ranks share. The number of threads is
    /// limited to the number of cores, with a warning, because more threads would only wait.
    pub fn open(args: &DeviceArgs, ranks: usize, quiet: bool) -> Result<Self, Failure> {
        match args.device {
            DeviceName::Cpu => {
                let (cores, wanted) = (cores(), args.threads);
                if let Some(wanted) = wanted.filter(|wanted| *wanted > cores && !quiet) {
                    let cores = Counted(cores as u64, "core");
                    warn(format_args!(
                        "--threads {wanted}: this program has {cores}; one thread per core is used"
                    ));
                }
                let share = (cores / ranks).max(1);
                Ok(Self::Cpu { threads: wanted.map_or(share, |wanted| wanted.min(cores)), ranks })
            }
            DeviceName::Cuda(number) => Gpu::open(number, args.tf32).map(Self::Gpu),
        }
    }

    /// Stand-in for the device in rehearsals: its name, its simulator, and its free memory.
    pub fn stand_in(&self) -> StandIn {
        let sim = match self {
            Self::Cpu { .. } => Arc::new(Sim::cpu),
            Self::Gpu(gpu) => gpu.sim(),
        };
        let free_bytes = self.available_bytes().ok();
        StandIn { name: self.about().to_string(), sim, free_bytes }
    }

    /// Free memory in bytes, less a margin.
    pub fn available_bytes(&self) -> Result<u64, Failure> {
        match self {
            Self::Cpu { ranks, .. } => {
                let free = Machine::look().available_bytes().ok_or_else(|| {
                    Failure::new(
                        "this system does not say how much memory is free; give --budget a size",
                    )
                });
                free.map(|bytes| bytes / *ranks as u64)
            }
            Self::Gpu(gpu) => gpu.available_bytes(),
        }
    }

    /// Description of the device.
    pub fn about(&self) -> About {
        match self {
            Self::Cpu { threads, .. } => {
                About { device: "cpu".to_owned(), threads: Some(*threads), tf32: None }
            }
            Self::Gpu(gpu) => {
                About { device: gpu.to_string(), threads: None, tf32: Some(gpu.tf32()) }
            }
        }
    }

    /// Starts a runtime on the device.
    pub fn start(self, builder: Builder) -> Result<Runtime, Error> {
        match self {
            Self::Cpu { threads, .. } => builder.threads(threads).cpu(),
            Self::Gpu(gpu) => gpu.start(builder),
        }
    }
}
