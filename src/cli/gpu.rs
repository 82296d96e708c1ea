//! NVIDIA GPUs. In a program built without the feature `cuda`, `no_gpu.rs` replaces this module.

use super::failure::Failure;
use super::machine::{Device, Gpus};
use super::values::DeviceName;
use remat::device::cuda::{self, Description, Options};
use remat::ops::Op;
use remat::tune::SimOf;
use remat::unstable::device::cuda::{Context, Cuda};
use remat::{Builder, Error, Runtime};
use std::fmt;
use std::sync::Arc;

/// Lowest compute capability of a GPU that has TF32.
const TF32: (u32, u32) = (8, 0);

/// An open GPU.
pub struct Gpu {
    context: Context,
    about: Description,
    tf32: bool,
}

impl Gpu {
    /// Opens GPU number `number`.
    pub fn open(number: usize, tf32: bool) -> Result<Self, Failure> {
        let context = Context::open(Options::default().ordinal(number).tf32(tf32))?;
        let gpu = Self { about: context.description()?, context, tf32 };
        let (major, minor) = gpu.about.compute_capability;
        if tf32 && (major, minor) < TF32 {
            return Err(Failure::usage(format!(
                "{gpu} has compute capability {major}.{minor}, but TF32 needs {}.{}; drop --tf32",
                TF32.0, TF32.1
            )));
        }
        Ok(gpu)
    }

    /// Simulator of the GPU's memory: see [`Context::sim`].
    pub fn sim(&self) -> SimOf {
        let context = self.context.clone();
        Arc::new(move |bytes| context.sim(bytes))
    }

    /// Free memory in bytes, less a margin: see [`Context::available_bytes`].
    pub fn available_bytes(&self) -> Result<u64, Failure> {
        Ok(self.context.available_bytes()?)
    }

    /// Whether TF32 is on.
    pub const fn tf32(&self) -> bool {
        self.tf32
    }

    /// Starts a runtime on the GPU.
    pub fn start(self, builder: Builder) -> Result<Runtime, Error> {
        builder.device(move |bytes| Cuda::<Op>::of(&self.context, bytes))
    }
}

impl fmt::Display for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", DeviceName::Cuda(self.about.ordinal), self.about.name)
    }
}

/// All GPUs, or the reason why no GPU is available.
pub fn found() -> Result<Gpus, String> {
    let version = |(major, minor): (u32, u32)| format!("{major}.{minor}");
    let devices = cuda::devices().map_err(|reason| reason.to_string())?;
    let driver_cuda = devices.first().map(|device| version(device.driver)).unwrap_or_default();
    let row = |device: Description| Device {
        device: DeviceName::Cuda(device.ordinal).to_string(),
        name: device.name,
        memory_bytes: Some(device.memory_bytes),
        free_bytes: device.free_bytes,
        threads: None,
        compute_capability: Some(version(device.compute_capability)),
    };
    let rows = devices.into_iter().map(row).collect();
    let libraries = cuda::libraries().into_iter().map(|library| (library.name, library.version));
    Ok(Gpus { rows, driver_cuda, libraries: libraries.collect() })
}
