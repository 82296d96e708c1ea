//! The command line: a command and its options. `cli.rs` runs each command.

use super::args::{DeviceArgs, TrainArgs};
use super::checkpoint_args::ForeignArgs;
use super::lab_args::{BoundArgs, HistoryArgs, SimulateArgs, SweepArgs};
use super::plan::PlanArgs;
use super::source::Source;
use super::values::{self, Budget};
use clap::{Args, ColorChoice, Parser, Subcommand};
use clap_complete::Shell;
use std::path::PathBuf;

/// Train neural networks under a hard memory budget, with bit-identical results
///
/// When memory runs short, tensors are evicted, and recomputed when they are needed again.
/// A budget is a hard limit in bytes; it never changes a result.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Start with: remat train",
    after_long_help = "\
Examples:
  remat train                          Train ResNet-20 on handwritten digits, in 40 % of the memory
  remat train --help                   List all options of a command
  remat train --save net.safetensors   Keep what was learned ..
  remat evaluate net.safetensors       .. and test it again
  remat generate gpt.safetensors       Write a text with a network that was trained on a text
  remat devices                        List the CPU and the GPUs
  remat train --record run.jsonl       Record a run ..
  remat simulate run.jsonl             .. replay it under another budget or policy
  remat sweep run.jsonl                .. or under many budgets and policies
  remat plan run.jsonl                 .. or place all of a step's memory ahead of time
  remat history run.jsonl              See what was evicted and recomputed in the run itself

RUST_LOG=remat=debug logs evictions and recomputations to stderr."
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,

    #[command(flatten)]
    pub terminal: TerminalArgs,
}

/// Options for color and progress.
#[derive(Args, Debug)]
#[command(next_help_heading = "Terminal")]
pub struct TerminalArgs {
    /// When to use color
    ///
    /// auto: on a terminal, unless NO_COLOR is set.
    #[arg(long, value_name = "WHEN", default_value_t = ColorChoice::Auto, value_enum, global = true)]
    pub color: ColorChoice,

    /// Hide progress bars and progress lines
    #[arg(long, global = true)]
    pub no_progress: bool,
}

/// Commands of the program.
#[derive(Debug, Subcommand)]
pub enum Command {
    Train(Box<TrainArgs>),
    Evaluate(EvaluateArgs),
    Generate(GenerateArgs),
    Devices(DevicesArgs),
    Simulate(SimulateArgs),
    Sweep(SweepArgs),
    Bound(BoundArgs),
    Plan(PlanArgs),
    History(HistoryArgs),
    Completions(CompletionsArgs),
}

/// Test a network that was trained before
///
/// Takes a checkpoint of `remat train --save`. The data are those of the training, unless --data
/// names others. Also takes safetensors of another library (one file, the index of several files,
/// or their folder): GPT-2 of transformers, and resnet18, resnet50 and densenet121 of torchvision.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  remat evaluate net.safetensors
  remat evaluate net.safetensors --data images:photos --json -
  remat evaluate net.safetensors --budget 50%
  remat evaluate resnet50.safetensors --data images:photos --image-size 224x224 --batch 8
  remat evaluate gpt2/ --tokenizer gpt2/tokenizer.json --data text:book.txt --batch 1")]
pub struct EvaluateArgs {
    /// Checkpoint of `remat train --save`, or of another library
    pub checkpoint: PathBuf,

    /// Data to test on, as for `remat train` [default: the data of the training]
    #[arg(long)]
    pub data: Option<Source>,

    /// Resize the images of images:DIR to this height and width [default: as in training, or size
    /// of the first image]
    #[arg(long, value_name = "HxW", value_parser = values::image_size, allow_hyphen_values = true)]
    pub image_size: Option<[usize; 2]>,

    /// Examples per batch [default: as in training; for other libraries 128 images or 16 texts]
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true)]
    pub batch: Option<usize>,

    /// Memory limit: 50%, 64MiB, auto, ... [default: 100%, under which nothing is recomputed]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub budget: Option<Budget>,

    /// Check that recomputed values have the bits that were evicted: all values, or a share such as
    /// 0.25
    #[arg(long, value_name = "SHARE", num_args = 0..=1, require_equals = true, default_missing_value = "1", value_parser = values::part)]
    pub verify: Option<f64>,

    #[command(flatten)]
    pub device: DeviceArgs,

    #[command(flatten)]
    pub foreign: ForeignArgs,

    /// Write the result as a JSON object; with -, to stdout
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub json: Option<PathBuf>,

    /// Print errors only; --json - still writes to stdout
    #[arg(long, short, help_heading = "Output")]
    pub quiet: bool,
}

/// Write a text with a network that was trained on a text
///
/// Takes a checkpoint of `remat train gpt --save`, or a GPT-2 of the transformers library
/// (safetensors, the index of several, or their folder), and continues a prompt by bytes, or by the
/// tokens of --tokenizer. On one device, the same checkpoint, prompt, options and seed give the
/// same text.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  remat generate gpt.safetensors
  remat generate gpt.safetensors \"Call me \" --length 500 --temperature 0.6
  remat generate gpt.safetensors --top-k 10 --seed 7
  remat generate gpt2/ --tokenizer gpt2/tokenizer.json \"Call me \" --length 50")]
pub struct GenerateArgs {
    /// Checkpoint of `remat train --save`, or of the transformers library
    pub checkpoint: PathBuf,

    /// Beginning of the text
    #[arg(default_value = "\n", hide_default_value = true, value_parser = prompt)]
    pub prompt: String,

    /// Number of tokens to write; without --tokenizer, a token is a byte
    #[arg(long, value_name = "N", default_value = "1000", value_parser = values::count, allow_hyphen_values = true)]
    pub length: usize,

    /// Below 1, likely tokens are chosen more often; at 0, always the likeliest token
    #[arg(long, value_name = "X", default_value = "0.8", value_parser = values::from_zero::<f32>, allow_hyphen_values = true)]
    pub temperature: f32,

    /// Choose from the N likeliest tokens only [default: from all]
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true)]
    pub top_k: Option<usize>,

    /// Seed of the choices
    #[arg(long, value_name = "N", default_value = "0", value_parser = values::seed, allow_hyphen_values = true)]
    pub seed: u64,

    #[command(flatten)]
    pub device: DeviceArgs,

    #[command(flatten)]
    pub foreign: ForeignArgs,
}

/// Parses a text that is not empty.
fn prompt(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("give at least one byte".to_owned()) } else { Ok(text.to_owned()) }
}

/// List the devices to train on
///
/// Lists the processor, the NVIDIA GPUs and the libraries for GPUs. The first column has the names
/// that `remat train --device` takes.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  remat devices
  remat devices --json -")]
pub struct DevicesArgs {
    /// Write the list as a JSON object instead; - is stdout
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Print a completion script for a shell
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  remat completions bash > ~/.local/share/bash-completion/completions/remat
  remat completions zsh > ~/.zfunc/_remat
  remat completions fish > ~/.config/fish/completions/remat.fish")]
pub struct CompletionsArgs {
    /// The shell
    pub shell: Shell,
}

impl Command {
    /// Whether only errors are printed.
    pub fn is_quiet(&self) -> bool {
        match self {
            Self::Train(args) => args.output.quiet,
            Self::Evaluate(args) => args.quiet,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_definitions_hold_together() {
        Cli::command().debug_assert();
    }
}
