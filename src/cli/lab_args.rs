use super::args::DeadArg;
use super::named::{policies, policy};
use super::output::svg;
use super::values::{self, Share};
use clap::{Args, ValueEnum};
use remat::lab::Costs;
use remat::policy::Exponents;
use remat::{ByteSize, PolicyKind};
use std::path::PathBuf;

/// What is replayed, and on what.
#[derive(Args, Debug)]
pub struct ReplayArgs {
    /// Recordings of `remat train --record`, or logs of the DTR paper; may be packed by gzip
    #[arg(required = true, value_name = "TRACE")]
    pub traces: Vec<PathBuf>,

    /// What a cost is taken from
    #[arg(long, value_name = "WHAT", default_value = "trace", help_heading = "Replay")]
    pub cost: CostArg,

    /// What memory is [default: bfc for recordings, bytes for the paper's logs]
    #[arg(long, value_name = "WHAT", help_heading = "Replay")]
    pub arena: Option<ArenaArg>,

    /// Evict smaller tensors only when nothing else is left [default: 1/4096 of the budget with bfc, 1
    /// with bytes]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, help_heading = "Replay")]
    pub min_evict_bytes: Option<ByteSize>,

    /// Score a sample of 2 * sqrt(n) candidates instead of all
    #[arg(long, help_heading = "Replay")]
    pub sqrt_sampling: bool,

    /// How much cost, bytes and staleness count in policies that have all three
    #[arg(long, value_name = "A,B,C", value_parser = values::exponents, allow_hyphen_values = true, help_heading = "Replay")]
    pub exponents: Option<Exponents>,

    /// End a run when recomputing costs more than X times the trace itself
    #[arg(long, value_name = "X", default_value = "1.0", value_parser = values::from_zero::<f64>, allow_hyphen_values = true, help_heading = "Replay")]
    pub recompute_limit: f64,

    /// Do the last step of each trace N times
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::count, allow_hyphen_values = true, help_heading = "Replay")]
    pub repeat_step: usize,
}

/// Replay a recorded step under a budget
///
/// The same engine evicts and regenerates as in training, but nothing is computed: a replay takes
/// milliseconds. Under a deterministic cost model a recording replays with the evictions of the run that
/// made it, given the budget in bytes and the options of that run.
#[derive(Args, Debug)]
pub struct SimulateArgs {
    #[command(flatten)]
    pub replay: ReplayArgs,

    /// Most memory to use; 100% is the smallest budget under which nothing is evicted
    #[arg(long, value_name = "SIZE", default_value = "40%", allow_hyphen_values = true)]
    pub budget: Share,

    /// Evict before each op until no more than this is used
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub eviction_threshold: Option<Share>,

    /// What to evict first: a name or a formula such as '(own+eq)/(size*stale)'
    #[arg(long, value_name = "NAME", default_value_t, value_parser = policy())]
    pub policy: PolicyKind,

    /// What becomes of tensors recomputed only as a step on the way
    #[arg(long, value_name = "WHAT", default_value = "drop")]
    pub dead: DeadArg,

    /// Of sampling and of --policy random
    #[arg(long, value_name = "N", default_value = "0", value_parser = values::seed, allow_hyphen_values = true)]
    pub seed: u64,

    /// Write the figures as one JSON object per trace and line; - is stdout
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Draw memory over time, of the one trace, as SVG; - is stdout
    #[arg(long, value_name = "FILE", value_parser = svg)]
    pub plot: Option<PathBuf>,
}

/// Replay traces with every policy at every budget
///
/// All combinations of what is given, on all cores. Without options: all policies at 10 % to 100 % of the
/// smallest budget under which nothing is evicted, as a table.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Example:\n  remat sweep run.jsonl --policy dtr,dtr-eq,lru --budget 10%..100%:5% --plot curves.svg")]
pub struct SweepArgs {
    #[command(flatten)]
    pub replay: ReplayArgs,

    /// What to evict first: names and formulas with commas between them
    #[arg(long, value_name = "LIST", default_value = "all", value_parser = policies())]
    pub policy: Policies,

    /// Sizes, percentages of the smallest budget that evicts nothing, and ranges of them [default:
    /// 10%..100%:10%, with --feasibility 10%..100%:0.1%]
    #[arg(long, value_name = "LIST", value_parser = values::shares, allow_hyphen_values = true)]
    pub budget: Option<Shares>,

    /// Evict before each op until no more than this is used: a list like --budget
    #[arg(long, value_name = "LIST", value_parser = values::shares, allow_hyphen_values = true)]
    pub eviction_threshold: Option<Shares>,

    /// What becomes of tensors recomputed only as a step on the way
    #[arg(long, value_name = "LIST", default_value = "drop", value_delimiter = ',')]
    pub dead: Vec<DeadArg>,

    /// Seeds of sampling and of --policy random: 0 to N-1; table and plot show their median and range
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::count, allow_hyphen_values = true)]
    pub seeds: usize,

    /// Look for budgets that do worse than smaller ones
    ///
    /// Holes: budgets that fail although a smaller one passes. Inversions: budgets that recompute more
    /// than the next smaller one that passes.
    #[arg(long)]
    pub feasibility: bool,

    /// Replays at a time [default: one per core]
    #[arg(long, value_name = "N", value_parser = values::threads, allow_hyphen_values = true)]
    pub jobs: Option<usize>,

    /// Write one JSON object a line for each replay; - is stdout, and a name in .gz is compressed
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Write a table with commas; - is stdout, and a name in .gz is compressed
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,

    /// Draw slowdown against budget as SVG; - is stdout
    #[arg(long, value_name = "FILE", value_parser = svg)]
    pub plot: Option<PathBuf>,

    /// No progress bar
    #[arg(short, long)]
    pub quiet: bool,
}

/// clap takes a plain `Vec` for an option that may be repeated.
pub type Policies = Vec<PolicyKind>;
pub type Shares = Vec<Share>;

/// What a cost is taken from.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum CostArg {
    /// What the trace recorded
    Trace,
    /// The arithmetic that the trace recorded, and bytes read and written
    Flops,
    /// Bytes read and written
    Bytes,
}

impl From<CostArg> for Costs {
    fn from(cost: CostArg) -> Self {
        match cost {
            CostArg::Trace => Self::Trace,
            CostArg::Flops => Self::Flops,
            CostArg::Bytes => Self::Bytes,
        }
    }
}

/// What memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ArenaArg {
    /// A number of bytes, as in the paper
    Bytes,
    /// A best-fit arena: holes, free neighbours, compaction and workspaces count
    Bfc,
}
