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
//! # Files that others wrote
//!
//! [`Checkpoint::open`] takes safetensors of any library, one file or several with their index. [`Checkpoint::known`] tells
//! GPT-2 of the transformers library and the ResNets and DenseNets of torchvision by their tensors, with sizes and classes;
//! [`Checkpoint::named`] gives tensors the names that a network here has, and leaves out what it has no use for, such as
//! masks; [`Checkpoint::convert`] takes floats of 16 and 64 bits as well. What does not fit is in one error, all of it.
//!
//! | there | here | |
//! |---|---|---|
//! | transformers `GPT2Model`, `GPT2LMHeadModel` | [`gpt`](crate::nn::gpt) | weights lie as there: `[inputs, outputs]`, queries, keys and values beside each other |
//! | torchvision `resnet18`, `resnet50` | [`resnet`](crate::nn::resnet) of [`ResNet::R18`], [`ResNet::R50`] | for images of 64 pixels and more |
//! | torchvision `densenet121`, `161`, `169`, `201` | [`densenet`](crate::nn::densenet) | for images of 64 pixels and more |
//! | torchvision `vit_b_16` and others | [`vit`](crate::nn::vit) | names are the same |
//! | torchvision `resnet34`, `resnet101`, ResNeXt, .. | | refused by name |
//!
//! [`ResNet::R18`]: crate::nn::ResNet::R18
//! [`ResNet::R50`]: crate::nn::ResNet::R50
//! [`Runtime::random_position`]: crate::Runtime::random_position

mod convert;
mod error;
mod header;
mod known;
mod names;
mod open;
mod read;
mod write;

pub use error::{CheckpointError, Difference};
pub use known::Known;
pub use names::{Names, Pattern, Rename};
pub use read::{Checkpoint, Conversion, Fit};
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
