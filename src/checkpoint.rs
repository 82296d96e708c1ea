//! Checkpoints of networks, in files that PyTorch can read. Files that PyTorch wrote can be loaded
//! into networks of this crate.
//!
//! The format is [safetensors](https://github.com/huggingface/safetensors): names, types and
//! shapes, then the elements. A file is written and read tensor by tensor. Evicted tensors are
//! restored within the budget. On the host, there is never more than one tensor, or 64 MiB of
//! tensors that are being uploaded. A file gets its final name only when it is complete. If the
//! program is killed during the write, the old file stays unchanged.
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
//! // A later run.
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
//! # Contents of a file
//!
//! - Parameters and buffers, under the names of PyTorch's state dict of the same architecture.
//! - State of the optimizer, as `optimizer/<parameter>/<state>`. States are `velocity`, or
//!   `exp_avg` and `exp_avg_sq`, and `step`, an `i64`.
//! - `__metadata__`, texts by name. Texts given to [`Writer::with`] keep their names. Names that
//!   begin with `remat.` are reserved for the version of the format, the rule of the optimizer, and
//!   the position of random numbers ([`Runtime::random_position`]).
//!
//! # Files of other libraries
//!
//! [`Checkpoint::open`] reads safetensors of any library: one file, or several files with their
//! index. [`Checkpoint::known`] recognizes GPT-2 of the transformers library, and ResNets and
//! DenseNets of torchvision. Architecture, sizes and number of classes are derived from the
//! tensors. [`Checkpoint::named`] renames tensors to the names of this crate's network, and leaves
//! out unused tensors, such as masks. [`Checkpoint::convert`] also accepts floats of 16 and 64
//! bits. One error lists all tensors whose names, types or shapes differ from the network's.
//!
//! | there | here | |
//! |---|---|---|
//! | transformers `GPT2Model`, `GPT2LMHeadModel` | [`gpt`](crate::nn::gpt) | weights have the same layout: `[inputs, outputs]`, queries, keys and values side by side |
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

/// Version of the file format that the module documentation describes.
const VERSION: &str = "1";

/// Names in `__metadata__`.
mod keys {
    pub const VERSION: &str = "remat.version";
    pub const RULE: &str = "remat.optimizer";
    pub const SEED: &str = "remat.seed";
    pub const RANDOM: &str = "remat.random";
}

/// Prefix of the names of all tensors of an optimizer.
const OPTIMIZER: &str = "optimizer/";

/// Name of a tensor that an optimizer keeps for a parameter.
fn state_name(parameter: &str, state: &str) -> String {
    format!("{OPTIMIZER}{parameter}/{state}")
}

/// Name of an optimizer's rule. The states of rules with different names are not interchangeable.
const fn rule_name(rule: Rule) -> &'static str {
    match rule {
        Rule::Sgd { .. } => "sgd",
        Rule::AdamW { .. } => "adamw",
        Rule::Lion { .. } => "lion",
    }
}
