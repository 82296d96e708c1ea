//! The devices that run the built-in ops: one test body for all of them.

#[cfg(feature = "cuda")]
use remat::device::cuda::{Context, Cuda, Options};
#[cfg(feature = "cuda")]
use remat::ops::Op;
use remat::{Builder, Runtime};

/// A device that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Cpu,
    #[cfg(feature = "cuda")]
    Cuda,
}

/// All that are there. Says which are not.
pub fn targets() -> Vec<Target> {
    let mut targets = vec![Target::Cpu];
    targets.extend(gpu());
    targets
}

/// The GPU, if there is one. Says so if there is none.
#[cfg(feature = "cuda")]
pub fn gpu() -> Option<Target> {
    match Context::open(Options::default()) {
        Ok(_) => Some(Target::Cuda),
        Err(reason) => {
            println!("skipped on cuda: {reason}");
            None
        }
    }
}

/// The GPU, if there is one. Says so if there is none.
#[cfg(not(feature = "cuda"))]
pub fn gpu() -> Option<Target> {
    println!("skipped on cuda: built without the feature `cuda`");
    None
}

impl Target {
    /// A runtime there.
    pub fn start(self, builder: Builder) -> Runtime {
        let runtime = match self {
            Self::Cpu => builder.cpu(),
            #[cfg(feature = "cuda")]
            Self::Cuda => {
                let gpu = Context::open(Options::default()).unwrap();
                builder.device(move |bytes| Cuda::<Op>::of(&gpu, bytes))
            }
        };
        runtime.unwrap()
    }
}
