use super::lab_args::{SimulateArgs, SweepArgs};
use super::model::Model;
use super::named::{cost_model, policy};
use super::source::Source;
use super::target::DeviceName;
use super::values::{self, Budget, Share};
use clap::{Args, ColorChoice, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use remat::engine::Dead;
use remat::policy::Exponents;
use remat::{Builder, ByteSize, CostModelKind, PolicyKind, Runtime};
use std::path::PathBuf;

/// Train neural networks under a hard memory budget, with the same bits out.
///
/// When memory runs short, tensors that can be recomputed are evicted, and recomputed when they are
/// needed again.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Start with: remat train",
    after_long_help = "\
Examples:
  remat train                          ResNet-20 on handwritten digits, in 40 % of the memory
  remat train --help                   All there is to choose
  remat devices                        What there is to train on
  remat train --record run.jsonl       Record a run ..
  remat simulate run.jsonl             .. and replay it under another budget or policy
  remat sweep run.jsonl                .. or under all of them

RUST_LOG=remat=debug shows what the engine does, on stderr."
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,

    #[command(flatten)]
    pub terminal: TerminalArgs,
}

/// How things look.
#[derive(Args, Debug)]
#[command(next_help_heading = "Terminal")]
pub struct TerminalArgs {
    /// Use color
    ///
    /// auto: on a terminal, unless NO_COLOR is set.
    #[arg(long, value_name = "WHEN", default_value_t = ColorChoice::Auto, value_enum, global = true)]
    pub color: ColorChoice,

    /// Hide progress bars and progress lines
    #[arg(long, global = true)]
    pub no_progress: bool,
}

/// What can be done.
#[derive(Debug, Subcommand)]
pub enum Command {
    Train(Box<TrainArgs>),
    Devices(DevicesArgs),
    Simulate(SimulateArgs),
    Sweep(SweepArgs),
    Completions(CompletionsArgs),
}

/// Train a network on labelled images
///
/// Without arguments: ResNet-20 on the handwritten digits that come with the program, in 40 % of the
/// memory that it would take. Before the first step, training is rehearsed on a device that only counts
/// bytes: that finds out how much it would take, and whether the budget suffices. Progress goes to stderr,
/// a summary to stdout.
///
/// For the same model, data, batch, steps and seed the result is the same to the last bit on a device,
/// whatever the budget, the policy and the number of threads. TF32 gives another result, the same each
/// time.
///
/// Ctrl-C finishes the step at hand and ends with a summary; a second Ctrl-C gives that step up, a third
/// quits at once.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  remat train
  remat train mlp --epochs 2
  remat train resnet32 --batch 32 --steps 100 --budget 60%
  remat train resnet50 --data synthetic:3x64x64 --batch 16 --steps 3 --budget 2GiB --no-test
  remat train mlp --data idx:mnist --lr 0.05 --json result.json
  remat train --steps 3 --record run.jsonl.gz

Exit codes:
  0    done
  1    a file or the device failed, or the loss became NaN or infinite
  2    the arguments make no sense, or the budget is too small
  130  ended by Ctrl-C

RUST_LOG=remat=debug shows what the engine does, on stderr.")]
pub struct TrainArgs {
    /// The network
    #[arg(default_value_t = Model::ResNet20, value_enum)]
    pub model: Model,

    #[command(flatten)]
    pub device: DeviceArgs,

    #[command(flatten)]
    pub memory: MemoryArgs,

    #[command(flatten)]
    pub learning: LearningArgs,

    #[command(flatten)]
    pub output: OutputArgs,
}

/// What computes.
#[derive(Args, Debug)]
#[command(next_help_heading = "Device")]
pub struct DeviceArgs {
    /// cpu, cuda, or cuda:N for GPU number N; `remat devices` lists them
    #[arg(long, value_name = "DEVICE", default_value_t)]
    pub device: DeviceName,

    /// CPU threads to compute on [default: one per core]
    #[arg(long, value_name = "N", value_parser = values::threads, allow_hyphen_values = true)]
    pub threads: Option<usize>,

    /// On a GPU, compute matrix products and convolutions in TF32
    ///
    /// 10 bits of mantissa instead of 23: several times faster, from compute capability 8.0 on.
    #[arg(long)]
    pub tf32: bool,
}

/// Where the limits are and what is evicted.
#[derive(Args, Debug)]
#[command(next_help_heading = "Memory")]
pub struct MemoryArgs {
    /// Most memory to use: 40%, 64MiB, auto, ... [default: 40%, or the least that passes]
    ///
    /// A hard limit for parameters, activations, gradients and workspaces together, the test included.
    /// A percentage is of the smallest budget under which the same training evicts nothing. auto is what
    /// the device has free now, less a margin. A budget that is too small is refused before the first
    /// step, with one that passes.
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub budget: Option<Budget>,

    /// Evict before each op until no more than this is used: 30%, 48MiB, ...
    ///
    /// A softer line below the budget; a percentage is of the same size. Without it, tensors are evicted
    /// only when an allocation does not fit.
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub eviction_threshold: Option<Share>,

    /// What to evict first
    #[arg(long, value_name = "NAME", default_value_t, value_parser = policy())]
    pub policy: PolicyKind,

    /// How the cost of recomputing is estimated
    #[arg(long, value_name = "NAME", default_value_t, value_parser = cost_model())]
    pub cost: CostModelKind,

    /// Weights of cost, bytes and staleness in a --policy that has all three [default: 1,1,1]
    #[arg(long, value_name = "A,B,C", value_parser = values::exponents, allow_hyphen_values = true)]
    pub exponents: Option<Exponents>,

    /// With --policy megengine: count a tensor's own cost as well
    #[arg(long)]
    pub own_cost: bool,

    /// Evict smaller tensors only when nothing else is left [default: 1/4096 of the budget]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub min_evict_bytes: Option<ByteSize>,

    /// Score a sample of 2 * sqrt(n) candidates instead of all
    #[arg(long)]
    pub sqrt_sampling: bool,

    /// What to do with tensors that were recomputed only to recompute others
    #[arg(long, value_name = "WHAT", default_value = "drop")]
    pub dead: DeadArg,

    /// Give up when recomputing costs more than X times the work itself [default: never]
    #[arg(long, value_name = "X", value_parser = values::from_zero::<f64>, allow_hyphen_values = true)]
    pub recompute_limit: Option<f64>,
}

/// What is learned from, and how.
#[derive(Args, Debug)]
#[command(next_help_heading = "Training")]
pub struct LearningArgs {
    /// digits, synthetic:CxHxW or idx:DIR
    ///
    /// digits: 1,797 handwritten ones of 8x8 pixels, which come with the program. synthetic:3x32x32:
    /// made-up images of any size, for measuring. idx:DIR: a folder with the four files of MNIST or a
    /// set like it, plain or with .gz.
    #[arg(long, default_value_t = Source::Digits)]
    pub data: Source,

    /// Images per step
    #[arg(long, value_name = "N", default_value = "128", value_parser = values::count, allow_hyphen_values = true)]
    pub batch: usize,

    /// Passes over the images [default: 20]
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true)]
    pub epochs: Option<usize>,

    /// Steps, instead of epochs
    #[arg(long, value_name = "N", conflicts_with = "epochs", value_parser = values::count, allow_hyphen_values = true)]
    pub steps: Option<usize>,

    /// Peak learning rate: a warm-up over a tenth of the run, then a cosine down to 0
    #[arg(long, default_value = "0.1", value_parser = values::above_zero, allow_hyphen_values = true)]
    pub lr: f32,

    /// Momentum of SGD
    #[arg(long, value_name = "X", default_value = "0.9", value_parser = values::below_one, allow_hyphen_values = true)]
    pub momentum: f32,

    /// Weight decay (L2 penalty)
    #[arg(long, value_name = "X", default_value = "0.0005", value_parser = values::from_zero::<f32>, allow_hyphen_values = true)]
    pub weight_decay: f32,

    /// Skip the test after training
    #[arg(long)]
    pub no_test: bool,

    /// Seed of the initial weights, the order of images, sampling and --policy random
    #[arg(long, value_name = "N", default_value = "0", value_parser = values::seed, allow_hyphen_values = true)]
    pub seed: u64,
}

/// What is said and written.
#[derive(Args, Debug)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// Write the result as a JSON object; - is stdout, and the summary goes to stderr then
    ///
    /// Its params_sha256 is over all parameters and all buffers (running statistics), in the order of
    /// the network, as they lie in memory. Counters are those of training; peak_bytes is that of the
    /// whole run.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Record training as a trace of JSON lines; - is stdout, and the summary goes to stderr then
    ///
    /// Packed by gzip if the name ends in .gz. `remat simulate` and `remat sweep` replay it.
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,

    /// Record the first N steps only
    #[arg(long, value_name = "N", requires = "record", value_parser = values::count, allow_hyphen_values = true)]
    pub record_steps: Option<usize>,

    /// Print nothing but errors, and what --json - asks for
    #[arg(long, short)]
    pub quiet: bool,
}

/// List what there is to train on
///
/// The processor, and the NVIDIA GPUs with the libraries that are used on them. A name in the first column
/// is what `remat train --device` takes.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  remat devices
  remat devices --json -")]
pub struct DevicesArgs {
    /// Write the list as one JSON object instead; - is stdout
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Print completions for a shell
///
/// Write them to where your shell looks for them.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  remat completions bash > ~/.local/share/bash-completion/completions/remat
  remat completions zsh > ~/.zfunc/_remat
  remat completions fish > ~/.config/fish/completions/remat.fish")]
pub struct CompletionsArgs {
    /// Which shell
    pub shell: Shell,
}

/// [`Dead`] by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DeadArg {
    /// Keep them until the policy picks them
    Keep,
    /// Drop them at once: usually better when memory is tight
    Drop,
}

impl From<DeadArg> for Dead {
    fn from(dead: DeadArg) -> Self {
        match dead {
            DeadArg::Keep => Self::Keep,
            DeadArg::Drop => Self::Drop,
        }
    }
}

impl Command {
    /// Whether nothing but errors is to be said.
    pub fn is_quiet(&self) -> bool {
        matches!(self, Self::Train(args) if args.output.quiet)
    }
}

impl DeviceArgs {
    /// Options that contradict each other, in words.
    pub const fn contradiction(&self) -> Option<&'static str> {
        match self.device {
            DeviceName::Cpu if self.tf32 => {
                Some("--tf32 is of --device cuda; add that, or drop it")
            }
            DeviceName::Cuda(_) if self.threads.is_some() => {
                Some("--threads is of --device cpu; choose that, or drop it")
            }
            _ => None,
        }
    }
}

impl MemoryArgs {
    /// Options that contradict each other, in words.
    pub fn contradiction(&self) -> Option<&'static str> {
        if self.own_cost && !matches!(self.policy, PolicyKind::MegEngine { .. }) {
            return Some("--own-cost belongs to --policy megengine; add that, or drop it");
        }
        exponents_are_lost(&[self.policy], self.exponents)
    }

    /// The policy with its options.
    pub fn policy(&self) -> PolicyKind {
        let policy = match self.policy {
            PolicyKind::MegEngine { exponents, .. } => {
                PolicyKind::MegEngine { exponents, own_cost: self.own_cost }
            }
            other => other,
        };
        self.exponents.map_or(policy, |exponents| policy.with_exponents(exponents))
    }

    /// A runtime that obeys.
    pub fn builder(&self, budget: u64, threshold: Option<u64>) -> Builder {
        let mut builder = Runtime::builder()
            .budget(budget)
            .policy(self.policy())
            .cost_model(self.cost)
            .sqrt_sampling(self.sqrt_sampling)
            .dead(self.dead.into());
        if let Some(threshold) = threshold {
            builder = builder.eviction_threshold(threshold);
        }
        if let Some(ByteSize(bytes)) = self.min_evict_bytes {
            builder = builder.min_evict_bytes(bytes);
        }
        if let Some(limit) = self.recompute_limit {
            builder = builder.recompute_limit(limit);
        }
        builder
    }
}

/// Says so if none of the policies has exponents.
pub fn exponents_are_lost(
    policies: &[PolicyKind],
    exponents: Option<Exponents>,
) -> Option<&'static str> {
    let takes = |policy: &PolicyKind| {
        let (a, b) = (Exponents { cost: 3.0, ..Exponents::default() }, Exponents::default());
        policy.with_exponents(a) != policy.with_exponents(b)
    };
    (exponents.is_some() && !policies.iter().any(takes)).then_some(
        "--exponents are of policies with cost, bytes and staleness, such as dtr or megengine; choose one, or drop them",
    )
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
