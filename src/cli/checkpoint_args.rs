//! Options of checkpoints.

use super::failure::Failure;
use super::output::{self, is_stdout};
use super::values;
use clap::Args;
use remat::checkpoint::{Pattern, Rename};
use std::path::PathBuf;

/// Options for writing and resuming checkpoints.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Checkpoints")]
pub struct CheckpointArgs {
    /// Write a checkpoint at the end, and on Ctrl-C
    ///
    /// The file has the format safetensors: parameters and buffers under the names of PyTorch's
    /// state dicts, the optimizer's state, and everything else that a resumed run needs. An existing
    /// file is replaced only by a complete new file.
    #[arg(long, value_name = "FILE", value_parser = file)]
    pub save: Option<PathBuf>,

    /// Write a checkpoint after every N steps as well
    #[arg(long, value_name = "N", requires = "save", value_parser = values::count, allow_hyphen_values = true)]
    pub save_every: Option<usize>,

    /// Go on from a checkpoint, with the same bits as a run that was never interrupted
    ///
    /// The network, the data and the training options are those of the checkpoint; they may be
    /// repeated, but not changed. Budget, policy, device and outputs may change. A run with
    /// --schedule constant may get more --steps. A file of another library (GPT-2 of transformers,
    /// ResNet and DenseNet of torchvision) has only weights, and the run begins with the first
    /// step.
    #[arg(long, value_name = "FILE", value_parser = file)]
    pub resume: Option<PathBuf>,

    #[command(flatten)]
    pub names: NamesArgs,
}

/// Parses a file name. Stdout is refused, because a checkpoint is no text.
fn file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if text.is_empty() || is_stdout(&path) { Err("name a file".to_owned()) } else { Ok(path) }
}

impl CheckpointArgs {
    /// Fails before the training if the file of `--save` cannot be written.
    pub fn check(&self) -> Result<(), Failure> {
        self.save.as_deref().map_or(Ok(()), output::can_be_written)
    }
}

/// Options for the names of tensors in files of other libraries.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Files of other libraries")]
pub struct NamesArgs {
    /// Rename tensors of the file, such as 'transformer.*=*'; each * stands for any text
    ///
    /// Rules are applied one after the other. GPT-2 of the transformers library, and ResNets and
    /// DenseNets of torchvision, need no rules.
    #[arg(long, value_name = "FROM=TO")]
    pub rename: Vec<Rename>,

    /// Leave out tensors of the file, such as '*.mask'
    #[arg(long, value_name = "NAME")]
    pub skip: Vec<Pattern>,
}

/// Options for facts that a file of another library does not contain.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Files of other libraries")]
pub struct ForeignArgs {
    #[command(flatten)]
    pub names: NamesArgs,

    /// Number of attention heads of a GPT-2 [default: as in config.json in its folder, or one for
    /// each 64 features]
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true)]
    pub heads: Option<usize>,

    /// Tokenizer for texts: a tokenizer.json [default: as in training, or a token per byte]
    #[arg(long, value_name = "FILE")]
    pub tokenizer: Option<PathBuf>,
}
