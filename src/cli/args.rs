//! Options of training.

use super::checkpoint_args::CheckpointArgs;
use super::journal;
use super::model::{ImageModel, Model, usual_data, usual_policy, with_text};
use super::named::{cost_model, policy};
use super::optimizer::OptimizerArgs;
use super::output;
use super::ranks_args::RanksArgs;
use super::sizes::SizeArgs;
use super::source::Source;
use super::values::{self, Budget, Budgets, DeviceName, Share};
use clap::{Args, ValueEnum};
use remat::Dead;
use remat::evict::{Exponents, Learn};
use remat::unstable::memory::SplitRule;
use remat::{Builder, ByteSize, CostModelKind, DType, Plan, PolicyKind, Runtime};
use std::path::PathBuf;

/// Train a network on labelled images, or on a text
///
/// Without arguments, trains ResNet-20 on the bundled handwritten digits, in 40 % of the memory
/// needed without evictions. A rehearsal on a simulated device, which only counts bytes, first finds
/// out how much memory training takes and whether the budget suffices. Progress goes to stderr, the
/// summary to stdout.
///
/// On one device, the same model, data, batch, steps and seed give bit-identical results under
/// every budget and policy, and with any number of threads. With --tf32 the result is
/// different, and just as reproducible.
///
/// Ctrl-C finishes the current step and prints the summary. A second Ctrl-C abandons the step, a
/// third quits at once.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  remat train
  remat train mlp --batch 32 --epochs 10
  remat train resnet32 --batch 32 --steps 100 --budget 60%
  remat train resnet50 --data synthetic:3x64x64 --batch 16 --steps 3 --budget 2GiB --no-test
  remat train mlp --data idx:mnist --lr 0.05 --json result.json
  remat train gpt --steps 1000
  remat train gpt --data text:book.txt --layers 6 --width 192 --heads 6 --context 256
  remat train --optimizer adamw --batch 32 --accumulate 4 --clip 1
  remat train --steps 3 --record run.jsonl.gz
  remat train --save net.safetensors --save-every 50
  remat train --resume net.safetensors --save net.safetensors
  mpirun -n 2 remat train --distributed mpi --budget 60%,40%

Exit codes:
  0    done
  1    a file or the device failed, the loss became NaN or infinite, or --verify found other bits
  2    invalid arguments, or a budget that is too small
  3    done, but a side file such as --log could not be written whole
  130  interrupted by Ctrl-C

RUST_LOG=remat=debug logs evictions and recomputations to stderr.")]
pub struct TrainArgs {
    /// The network
    #[arg(default_value_t = Model::Images(ImageModel::ResNet20), value_enum)]
    pub model: Model,

    #[command(flatten)]
    pub device: DeviceArgs,

    #[command(flatten)]
    pub memory: MemoryArgs,

    #[command(flatten)]
    pub sizes: SizeArgs,

    #[command(flatten)]
    pub learning: LearningArgs,

    #[command(flatten)]
    pub optimizer: OptimizerArgs,

    #[command(flatten)]
    pub checkpoints: CheckpointArgs,

    #[command(flatten)]
    pub output: OutputArgs,

    #[command(flatten)]
    pub ranks: RanksArgs,
}

/// Options for the device that computes.
#[derive(Args, Debug)]
#[command(next_help_heading = "Device")]
pub struct DeviceArgs {
    /// cpu, cuda, or cuda:N for GPU number N; `remat devices` lists them
    #[arg(long, value_name = "DEVICE", default_value_t)]
    pub device: DeviceName,

    /// CPU threads, at most one per core [default: one per core]
    #[arg(long, value_name = "N", value_parser = values::threads, allow_hyphen_values = true)]
    pub threads: Option<usize>,

    /// Compute matrix products and convolutions in TF32 (GPU only)
    ///
    /// TF32 has a mantissa of 10 bits instead of 23, and is several times faster. Needs compute
    /// capability 8.0.
    #[arg(long)]
    pub tf32: bool,
}

/// Options for the limits on memory, and for evictions.
#[derive(Args, Debug)]
#[command(next_help_heading = "Memory")]
pub struct MemoryArgs {
    // The default is `tune::USUAL`; `tune/default_budget.rs` chooses.
    /// Memory limit: 40%, 64MiB, auto, ... [default: 40%, or the smallest that passes]
    ///
    /// A hard limit on parameters, activations, gradients and workspaces together, in training and
    /// in the test. 100% is the smallest budget under which the same training evicts nothing. In K,
    /// M, G, T or KiB, MiB, GiB, TiB, powers of 1024; or KB, MB, GB, TB, powers of 1000. auto is
    /// the memory that is free on the device, less a margin. A budget that is too small is refused
    /// before the first step, and the message names a budget that passes. With --distributed, a
    /// budget for each rank: 100%,40%.
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub budget: Option<Budgets>,

    /// Evict before each op until at most this much is in use: 30%, 48MiB, ...
    ///
    /// A soft limit below the budget, in the same units. Without it, tensors are evicted only when
    /// an allocation does not fit.
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub eviction_threshold: Option<Share>,

    /// What to evict first: a name, a name with parameters such as megengine:own-cost, or a formula
    /// such as '(own+eq)/(size*stale)'
    ///
    /// `remat sweep --help` explains parameters and formulas. For treelstm, in which no two steps
    /// are alike, ancestors is the default.
    #[arg(long, value_name = "NAME", default_value = "learned:portfolio", default_value_ifs = usual_policy(), value_parser = policy())]
    pub policy: PolicyKind,

    /// How evictions are predicted before a step runs [default: as --policy says]
    #[arg(long, value_name = "HOW")]
    pub learn: Option<LearnArg>,

    /// File that keeps the forecasts of this run for later runs
    ///
    /// The file has a forecast for each step in each budget. A file from another device, number of
    /// threads, cost model or version of remat is refused.
    #[arg(long, value_name = "FILE")]
    pub learn_cache: Option<PathBuf>,

    /// Whether steps that repeat run by plan
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub plan: PlanArg,

    /// How the cost of recomputing is estimated
    #[arg(long, value_name = "NAME", default_value_t, value_parser = cost_model())]
    pub cost: CostModelKind,

    /// Exponents of cost, bytes and staleness in a --policy that has all three [default: 1,1,1]
    #[arg(long, value_name = "A,B,C", value_parser = values::exponents, allow_hyphen_values = true)]
    pub exponents: Option<Exponents>,

    /// Add the cost of the tensor itself to the score of --policy megengine, like
    /// megengine:own-cost
    #[arg(long)]
    pub own_cost: bool,

    /// With --policy megengine or megengine-article: multiply a score by X for each time the tensor
    /// was recomputed [default: 1.0001]
    #[arg(long, value_name = "X", value_parser = values::factor, allow_hyphen_values = true)]
    pub rerun_factor: Option<f64>,

    /// Evict tensors smaller than this only as a last resort [default: 1/4096 of the budget]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub min_evict_bytes: Option<ByteSize>,

    /// Score a random sample of 2 * sqrt(n) candidates instead of all n
    #[arg(long)]
    pub sqrt_sampling: bool,

    /// Take memory from the device region by region, as it is needed, instead of all of the budget
    /// at once
    #[arg(long)]
    pub allow_growth: bool,

    /// How much of a hole a tensor takes: exact, tensorflow (up to 128 MiB more), or
    /// tensorflow:SIZE
    ///
    /// exact leaves the rest of a hole free, however small. tensorflow leaves the rest free only if
    /// the rest is at least as large as the tensor or as SIZE; otherwise the tensor takes the whole
    /// hole.
    #[arg(long, value_name = "RULE", default_value = "exact", value_parser = values::split_rule)]
    pub split_rule: SplitRule,

    /// What to do with tensors that were recomputed only to recompute others
    #[arg(long, value_name = "WHAT", default_value = "linger")]
    pub dead: DeadArg,

    /// Fail when recomputing costs more than X times the work itself [default: never]
    #[arg(long, value_name = "X", value_parser = values::from_zero::<f64>, allow_hyphen_values = true)]
    pub recompute_limit: Option<f64>,

    /// Check that recomputed values have the bits that were evicted: all values, or a share such as
    /// 0.25
    ///
    /// The run ends with an error if bits differ, which names the op, the step and the first
    /// different element. The summary has the number of compared values, and the host memory for
    /// their hashes. Results do not change.
    #[arg(long, value_name = "SHARE", num_args = 0..=1, require_equals = true, default_missing_value = "1", value_parser = values::part)]
    pub verify: Option<f64>,
}

/// Adds `--verify` to the builder of a real run. Rehearsals do not verify, because a simulated
/// device computes no bits.
pub fn verifying(builder: Builder, share: Option<f64>) -> Builder {
    match share {
        Some(share) => builder.verify_recomputed(share),
        None => builder,
    }
}

/// Options for the data, and for the length of the training.
#[derive(Args, Debug)]
#[command(next_help_heading = "Training")]
pub struct LearningArgs {
    /// Images: digits, synthetic:CxHxW, idx:DIR, images:DIR; a text: moby-dick, text:FILE; trees;
    /// or ring
    ///
    /// digits: the bundled 1,797 handwritten digits of 8x8 pixels. synthetic:3x32x32: random images
    /// of any size, for benchmarks. idx:DIR: a folder with four files in the format of MNIST, plain
    /// or compressed (.gz). images:DIR: a folder with a folder of PNG or JPEG files for each class;
    /// every fifth is for the test, unless there are train and test (or val) folders. moby-dick:
    /// the bundled novel, 1.2 MB. text:FILE: any UTF-8 file; the last tenth is for the test.
    /// [default for text models: moby-dick] trees, for treelstm: nested minima and maxima of
    /// digits, whose value is the class. ring, for unrolled-gan: points of 8 Gaussians.
    #[arg(long, default_value_t = Source::Digits, default_value_ifs = usual_data())]
    pub data: Source,

    /// Tokenizer for the text: a tokenizer.json of the transformers library [default: a token per
    /// byte]
    #[arg(long, value_name = "FILE")]
    pub tokenizer: Option<PathBuf>,

    /// Resize the images of images:DIR to this height and width [default: size of the first image]
    #[arg(long, value_name = "HxW", value_parser = values::image_size, allow_hyphen_values = true)]
    pub image_size: Option<[usize; 2]>,

    /// Move each image at random by up to N pixels each way
    #[arg(long, value_name = "N", default_value = "0", value_parser = values::pixels, allow_hyphen_values = true)]
    pub random_crop: usize,

    /// Mirror each image left to right at random, with probability 1/2
    #[arg(long)]
    pub random_flip: bool,

    /// How activations are stored: bf16 takes half the memory
    ///
    /// Parameters, their gradients and all arithmetic are always in f32. bf16 has 8 bits of mantissa
    /// instead of 24, so results differ from those of f32.
    #[arg(long, value_name = "TYPE", default_value = "f32", value_enum)]
    pub precision: Precision,

    /// Examples per step, or per part of one with --accumulate [default for text models: 16]
    #[arg(long, value_name = "N", default_value = "128", default_value_ifs = with_text("16"), value_parser = values::count, allow_hyphen_values = true)]
    pub batch: usize,

    /// Passes over the data [default: 20, or 2 over a text]
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true)]
    pub epochs: Option<usize>,

    /// Number of steps, instead of --epochs
    #[arg(long, value_name = "N", conflicts_with = "epochs", value_parser = values::count, allow_hyphen_values = true)]
    pub steps: Option<usize>,

    /// Skip the test after training
    #[arg(long)]
    pub no_test: bool,

    /// Test after every N steps as well
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true)]
    pub eval_every: Option<usize>,

    /// Seed of the initial weights, the order of examples, dropout, sampling and --policy random
    #[arg(long, value_name = "N", default_value = "0", value_parser = values::seed, allow_hyphen_values = true)]
    pub seed: u64,
}

/// Options for the output.
#[derive(Args, Debug)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// Write the result as a JSON object; with -, to stdout, and the summary to stderr
    ///
    /// params_sha256 is the hash of all parameters and buffers (running statistics), in the order
    /// of the network. Counters cover training only; peak_bytes covers the test as well.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Write a line about each step: loss, learning rate, time, memory, recomputation, tests
    ///
    /// The end of the name is .csv for CSV, or .jsonl for JSON lines. Each line is written when its
    /// step ends. With --resume, the lines about earlier steps stay.
    #[arg(long, value_name = "FILE.csv|jsonl", value_parser = journal::log)]
    pub log: Option<PathBuf>,

    /// Draw loss, memory and recomputation over the steps; with -, to stdout
    #[arg(long, value_name = "FILE.svg", value_parser = output::svg)]
    pub plot: Option<PathBuf>,

    /// Record training as a trace of JSON lines; with -, to stdout, and the summary to stderr
    ///
    /// Compressed if the name ends in .gz. Replay it with `remat simulate` or `remat sweep`.
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,

    /// Record the first N steps only
    #[arg(long, value_name = "N", requires = "record", value_parser = values::count, allow_hyphen_values = true)]
    pub record_steps: Option<usize>,

    /// Print errors only; --json - and --record - still write to stdout
    #[arg(long, short)]
    pub quiet: bool,
}

/// Storage type of activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Precision {
    F32,
    Bf16,
}

impl From<Precision> for DType {
    fn from(precision: Precision) -> Self {
        match precision {
            Precision::F32 => Self::F32,
            Precision::Bf16 => Self::BF16,
        }
    }
}

/// Name of a [`Dead`] on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DeadArg {
    /// Keep them while there is room, and evict them before anything else
    Linger,
    /// Keep them until the policy evicts them
    Keep,
    /// Evict them at once
    Drop,
}

impl From<DeadArg> for Dead {
    fn from(dead: DeadArg) -> Self {
        match dead {
            DeadArg::Linger => Self::Linger,
            DeadArg::Keep => Self::Keep,
            DeadArg::Drop => Self::Drop,
        }
    }
}

/// Whether steps run by plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PlanArg {
    /// Never
    Off,
    /// Plan a step once it has repeated: addresses and evictions are settled once. Not with
    /// --record
    Auto,
}

impl From<PlanArg> for Plan {
    fn from(plan: PlanArg) -> Self {
        match plan {
            PlanArg::Off => Self::Off,
            PlanArg::Auto => Self::Auto,
        }
    }
}

/// Effort of the policies that learn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LearnArg {
    /// Learn nothing: --policy ancestors
    Off,
    /// Know what a step will use next: --policy learned
    Ahead,
    /// The best of about 70 strategies, simulated before the first step: --policy learned:portfolio
    Portfolio,
    /// The best strategy found by a search of 2000 simulated runs: --policy learned:search
    Search,
}

impl From<LearnArg> for PolicyKind {
    fn from(learn: LearnArg) -> Self {
        match learn {
            LearnArg::Off => Self::Ancestors,
            LearnArg::Ahead => Self::Learned(Learn::Ahead),
            LearnArg::Portfolio => Self::Learned(Learn::Portfolio),
            LearnArg::Search => Self::Learned(Learn::Search { runs: Learn::RUNS }),
        }
    }
}

impl DeviceArgs {
    /// Message about options that contradict each other, if there are any.
    pub const fn contradiction(&self) -> Option<&'static str> {
        match self.device {
            DeviceName::Cpu if self.tf32 => {
                Some("--tf32 needs --device cuda; add that, or drop --tf32")
            }
            DeviceName::Cuda(_) if self.threads.is_some() => {
                Some("--threads needs --device cpu; choose that, or drop --threads")
            }
            _ => None,
        }
    }
}

impl MemoryArgs {
    /// Message about options that contradict each other, if there are any.
    pub fn contradiction(&self) -> Option<&'static str> {
        if self.own_cost && !matches!(self.policy, PolicyKind::MegEngine { .. }) {
            return Some("--own-cost needs --policy megengine; add that, or drop --own-cost");
        }
        let reruns =
            |policy: PolicyKind| policy.with_rerun_factor(2.0) != policy.with_rerun_factor(3.0);
        if self.rerun_factor.is_some() && !reruns(self.policy) {
            return Some(
                "--rerun-factor needs --policy megengine or megengine-article; choose one, or drop --rerun-factor",
            );
        }
        if self.learn.is_some() && !matches!(self.policy, PolicyKind::Learned(_)) {
            return Some("--learn needs --policy learned; choose that, or drop --learn");
        }
        if self.learn_cache.is_some() && !self.policy().searches() {
            return Some(
                "--learn-cache needs --learn portfolio or search; choose one, or drop --learn-cache",
            );
        }
        exponents_are_lost(&[self.policy], self.exponents)
    }

    /// The policy, with the options that modify it.
    pub fn policy(&self) -> PolicyKind {
        let policy = match self.policy {
            PolicyKind::Learned(_) if let Some(learn) = self.learn => learn.into(),
            PolicyKind::MegEngine { exponents, own_cost, rerun_factor } => PolicyKind::MegEngine {
                exponents,
                own_cost: own_cost || self.own_cost,
                rerun_factor,
            },
            other => other,
        };
        let policy = self.rerun_factor.map_or(policy, |factor| policy.with_rerun_factor(factor));
        self.exponents.map_or(policy, |exponents| policy.with_exponents(exponents))
    }

    /// Budget of this rank.
    pub fn budget(&self) -> Option<Budget> {
        self.budget.as_ref().map(Budgets::first)
    }

    /// Builder of a runtime with these options, but without budget and threshold.
    pub fn builder(&self) -> Builder {
        let mut builder = Runtime::builder()
            .policy(self.policy())
            .cost_model(self.cost)
            .sqrt_sampling(self.sqrt_sampling)
            .split_rule(self.split_rule)
            .allow_growth(self.allow_growth)
            .dead(self.dead.into());
        if let Some(ByteSize(bytes)) = self.min_evict_bytes {
            builder = builder.min_evict_bytes(bytes);
        }
        if let Some(limit) = self.recompute_limit {
            builder = builder.recompute_limit(limit);
        }
        builder
    }
}

/// Message if `--exponents` is given, but none of the policies has exponents.
pub fn exponents_are_lost(
    policies: &[PolicyKind],
    exponents: Option<Exponents>,
) -> Option<&'static str> {
    let takes = |policy: &PolicyKind| {
        let (a, b) = (Exponents { cost: 3.0, ..Exponents::default() }, Exponents::default());
        policy.with_exponents(a) != policy.with_exponents(b)
    };
    (exponents.is_some() && !policies.iter().any(takes)).then_some(
        "--exponents needs a policy with cost, bytes and staleness, such as dtr or megengine; choose one, or drop --exponents",
    )
}
