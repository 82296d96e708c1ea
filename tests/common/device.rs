//! Devices that run the built-in ops, so that one test body serves all of them.

#[cfg(feature = "cuda")]
use remat::device::{DeviceError, cuda::Options};
#[cfg(feature = "cuda")]
use remat::ops::Op;
#[cfg(feature = "cuda")]
use remat::unstable::device::cuda::{Context, Cuda};
use remat::{Builder, Runtime};
#[cfg(feature = "cuda")]
use std::sync::OnceLock;

/// Device of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Cpu,
    #[cfg(feature = "cuda")]
    Cuda,
}

/// All devices of the machine. Prints which ones are missing.
pub fn targets() -> Vec<Target> {
    let mut targets = vec![Target::Cpu];
    targets.extend(gpu());
    targets
}

/// The open GPU that all tests share, or the reason why there is none. Opening a real GPU may take
/// a second, most of it for cuDNN.
#[cfg(feature = "cuda")]
fn context() -> &'static Result<Context, DeviceError> {
    static SHARED: OnceLock<Result<Context, DeviceError>> = OnceLock::new();
    SHARED.get_or_init(|| Context::open(Options::default()))
}

/// The GPU, if this machine has one. Prints the reason otherwise.
#[cfg(feature = "cuda")]
pub fn gpu() -> Option<Target> {
    match context() {
        Ok(_) => Some(Target::Cuda),
        Err(reason) => {
            println!("skipped on cuda: {reason}");
            None
        }
    }
}

/// Returns `None`, and prints the reason: this build has no GPU support.
#[cfg(not(feature = "cuda"))]
pub fn gpu() -> Option<Target> {
    println!("skipped on cuda: built without the feature `cuda`");
    None
}

impl Target {
    /// Whether the target is a pretend GPU. A pretend GPU takes minutes for work that a real GPU
    /// does in seconds, so tests on a pretend GPU run fewer samples.
    pub fn is_pretend(self) -> bool {
        match self {
            Self::Cpu => false,
            #[cfg(feature = "cuda")]
            Self::Cuda => {
                let gpu = context().as_ref().unwrap();
                gpu.description().unwrap().name.starts_with("Pretend GPU")
            }
        }
    }

    /// Starts a runtime on the device.
    pub fn start(self, builder: Builder) -> Runtime {
        let runtime = match self {
            Self::Cpu => builder.cpu(),
            #[cfg(feature = "cuda")]
            Self::Cuda => {
                let gpu = context().as_ref().unwrap();
                builder.device(move |bytes| Cuda::<Op>::of(gpu, bytes))
            }
        };
        runtime.unwrap()
    }
}
