//! Checkpoints: what a network has learned, in a file that PyTorch can read, and one of PyTorch's that a network can.
//!
//! The format is [safetensors](https://github.com/huggingface/safetensors): names, types and shapes, then the elements. A
//! file is written and read tensor by tensor, each of them brought back within the budget if it was evicted: the host never
//! holds more than one, or on its way to the device 64 MiB of them. A file appears under its name when it is whole: a
//! program that is killed meanwhile leaves what was there before.
//!
//! ```
//! use remat::checkpoint::{Checkpoint, Writer};
//! use remat::nn::mlp;
//! use remat::optim::Optimizer;
//! use remat::prelude::*;
//!
//! let path = std::env::temp_dir().join(format!("remat-doc-{}.safetensors", std::process::id()));
//! let runtime = Runtime::builder().budget("1MiB").seed(1).cpu()?;
//! let mut network = mlp(&runtime, 4, &[8], 2)?;
//! let sgd = Optimizer::sgd(0.1, 0.9, 0.0);
//! Writer::of(&mut network).optimizer(&sgd).with("epoch", 3).save(&runtime, &path)?;
//!
//! // Another run.
//! let runtime = Runtime::builder().budget("1MiB").seed(1).cpu()?;
//! let mut network = mlp(&runtime, 4, &[8], 2)?;
//! let mut sgd = Optimizer::sgd(0.1, 0.9, 0.0);
//! let checkpoint = Checkpoint::open(&path)?;
//! checkpoint.load(&runtime, &mut network)?;
//! checkpoint.load_optimizer(&runtime, &mut network, &mut sgd)?;
//! checkpoint.load_random(&runtime)?;
//! assert_eq!(checkpoint.get("epoch"), Some("3"));
//! # std::fs::remove_file(path).unwrap();
//! # Ok::<(), remat::checkpoint::CheckpointError>(())
//! ```
//!
//! # What is in a file
//!
//! - Parameters and buffers under their names, which are those of PyTorch's state dict of the same architecture.
//! - What the optimizer keeps, as `optimizer/<parameter>/<state>`: `velocity`, or `exp_avg` and `exp_avg_sq`; and `step`,
//!   an `i64`.
//! - `__metadata__`, which is text by name: what [`Writer::with`] gave, and under names that begin with `remat.` the version
//!   of all this, the rule of the optimizer, and where random numbers go on ([`Runtime::random_position`]).
//!
//! [`Runtime::random_position`]: crate::Runtime::random_position

mod error;
mod header;
mod read;
mod write;

pub use error::CheckpointError;
pub use read::Checkpoint;
pub use write::Writer;

use crate::optim::Rule;

/// The version of what is above.
const VERSION: &str = "1";

/// Names of `__metadata__`.
mod keys {
    pub const VERSION: &str = "remat.version";
    pub const RULE: &str = "remat.optimizer";
    pub const SEED: &str = "remat.seed";
    pub const RANDOM: &str = "remat.random";
}

/// What all tensors of an optimizer begin with.
const OPTIMIZER: &str = "optimizer/";

/// The name of what an optimizer keeps for a parameter.
fn state_name(parameter: &str, state: &str) -> String {
    format!("{OPTIMIZER}{parameter}/{state}")
}

/// What tells rules apart whose states do not mean the same.
const fn rule_name(rule: Rule) -> &'static str {
    match rule {
        Rule::Sgd { .. } => "sgd",
        Rule::AdamW { .. } => "adamw",
        Rule::Lion { .. } => "lion",
    }
}
