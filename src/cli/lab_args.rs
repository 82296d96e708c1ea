use super::args::{DeadArg, LearnArg};
use super::named::{policies, policy};
use super::network_args::NetworkArgs;
use super::output::svg;
use super::values::{self, Share, distinct};
use clap::{Args, ValueEnum};
use remat::evict::Exponents;
use remat::unstable::lab::Costs;
use remat::{ByteSize, PolicyKind};
use std::path::PathBuf;

/// Options for traces, their costs and their memory.
#[derive(Args, Debug)]
pub struct TraceArgs {
    /// Recordings of `remat train --record`, or logs of the DTR paper; plain or gzipped; - is stdin
    #[arg(required = true, value_name = "TRACE")]
    pub traces: Vec<PathBuf>,

    /// Where the cost of an op comes from
    #[arg(long, value_name = "WHAT", default_value = "trace", help_heading = "Replay")]
    pub cost: CostArg,

    /// Model of memory [default: bfc for recordings, bytes for the logs of the paper]
    #[arg(long, value_name = "WHAT", help_heading = "Replay")]
    pub arena: Option<ArenaArg>,

    /// Run the last step of each trace N times
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::count, allow_hyphen_values = true, help_heading = "Replay")]
    pub repeat_step: usize,

    #[command(flatten)]
    pub network: NetworkArgs,
}

/// Options for replays.
#[derive(Args, Debug)]
pub struct ReplayArgs {
    #[command(flatten)]
    pub source: TraceArgs,

    /// Evict tensors smaller than this only as a last resort [default: 1/4096 of the budget with
    /// bfc, 1 with bytes]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, help_heading = "Replay")]
    pub min_evict_bytes: Option<ByteSize>,

    /// Score a random sample of 2 * sqrt(n) candidates instead of all n
    #[arg(long, help_heading = "Replay")]
    pub sqrt_sampling: bool,

    /// Exponents of cost, bytes and staleness in policies that have all three [default: 1,1,1]
    #[arg(long, value_name = "A,B,C", value_parser = values::exponents, allow_hyphen_values = true, help_heading = "Replay")]
    pub exponents: Option<Exponents>,

    /// End a run when recomputing costs more than X times the trace itself
    #[arg(long, value_name = "X", default_value = "1.0", value_parser = values::from_zero::<f64>, allow_hyphen_values = true, help_heading = "Replay")]
    pub recompute_limit: f64,
}

/// Replay a recorded step under a budget
///
/// A replay runs the engine of training without computing anything, and takes milliseconds. With
/// the same options and the same budget in bytes, a replay has exactly the evictions of the
/// recorded run; with --policy learned, add --as-run. The default policy is that of the run.
///
/// The budget, threshold and policy of the replay change where they changed in the recorded run. A
/// setting that is given here holds from beginning to end.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  remat simulate run.jsonl
  remat simulate run.jsonl --budget 40% --policy lru --plot memory.svg
  remat simulate run.jsonl.gz --budget 64MiB --json -
  remat simulate run.jsonl --ranks 8,64,1024 --network 100Gbit,5us
  remat train --steps 3 --record - | remat simulate -

Exit codes:
  0    done
  1    a replay or a file failed
  2    invalid arguments")]
pub struct SimulateArgs {
    #[command(flatten)]
    pub replay: ReplayArgs,

    /// Memory limit: 40%, 64MiB, ... [default: 40%, or the smallest that passes; as in the run if
    /// its settings changed, or with --as-run]
    ///
    /// 100% is the smallest budget under which nothing is evicted, nor under any budget tried up to
    /// 2 % above. remat train tries fewer budgets and takes the first without evictions, so its
    /// 100% may be a little less. If the replay fails, the report names a budget that passes.
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub budget: Option<Share>,

    /// Evict before each op until at most this much is in use [default: none; as in the run if its
    /// settings changed, or with --as-run]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub eviction_threshold: Option<Share>,

    /// What to evict first: a name, with parameters or not, or a formula such as
    /// '(own+eq)/(size*stale)' [default: that of the run, or ancestors if the trace has none]
    #[arg(long, value_name = "NAME", value_parser = policy())]
    pub policy: Option<PolicyKind>,

    /// What to do with tensors that were recomputed only to recompute others
    #[arg(long, value_name = "WHAT", default_value = "linger")]
    pub dead: DeadArg,

    /// Use only the predictions that the run had, instead of the whole trace, under the budget and
    /// threshold of the run
    ///
    /// Steps are recognized when they repeat, as in training, so the replay has the evictions of
    /// the recorded run. If settings changed in the run and no policy is given, this option is
    /// always on.
    #[arg(long)]
    pub as_run: bool,

    /// Seed of sampling and of --policy random
    #[arg(long, value_name = "N", default_value = "0", value_parser = values::seed, allow_hyphen_values = true)]
    pub seed: u64,

    /// Write the figures as JSON, one object a line for each trace; - is stdout
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Plot memory over time as SVG, for a single trace; - is stdout
    #[arg(long, value_name = "FILE", value_parser = svg)]
    pub plot: Option<PathBuf>,
}

/// Show the least recomputation of any run under a budget
///
/// The bound is for runs with the ops in the order of the trace, for any choice of evictions, and
/// with recomputation by the same ops. A run may recompute more, but never less. A budget is
/// refused only if some op provably needs more memory at once; the report names the op.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  remat bound run.jsonl
  remat bound run.jsonl --budget 30%,64MiB
  remat bound run.jsonl --budget 10%..100%:5% --json -
  remat bound run.jsonl --ranks 8,64 --network 100Gbit,5us
  remat train --steps 3 --record - | remat bound -

Exit codes:
  0    done, even if no run fits some budget
  1    a file failed
  2    invalid arguments")]
pub struct BoundArgs {
    #[command(flatten)]
    pub source: TraceArgs,

    /// Memory limits: percentages, sizes and ranges [default: 10%..100%:10%]
    ///
    /// 100% is the smallest budget under which nothing is evicted. A range is FROM..TO:STEP.
    #[arg(long, value_name = "LIST", value_parser = values::shares, allow_hyphen_values = true)]
    pub budget: Option<Shares>,

    /// Write each budget as a line with a JSON object; - is stdout, names in .gz are compressed
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Write the linear program of the bound in the LP format, for one trace and budget; - is
    /// stdout
    #[arg(long, value_name = "FILE")]
    pub lp: Option<PathBuf>,
}

/// Show what memory held during a recorded run
///
/// Shows memory in use, evictions and their causes, and recomputation in the run itself: nothing is
/// replayed. remat simulate shows the same under another budget or policy.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  remat history run.jsonl
  remat history run.jsonl --plot memory.svg
  remat train --steps 3 --record - | remat history - --json -

Exit codes:
  0    done
  1    a file failed, or does not record what was in memory
  2    invalid arguments")]
pub struct HistoryArgs {
    /// A recording of `remat train --record`; plain or gzipped; - is stdin
    #[arg(value_name = "RECORDING")]
    pub recording: PathBuf,

    /// Write the figures as JSON; - is stdout
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Plot memory over time as SVG; - is stdout
    #[arg(long, value_name = "FILE", value_parser = svg)]
    pub plot: Option<PathBuf>,
}

/// Replay traces with every policy at every budget
///
/// Replays all combinations of the given lists, on all cores, and prints a table. By default: all
/// policies, at 10 % to 100 % of the smallest budget under which nothing is evicted. Settings do
/// not change during a replay, even if they changed in the recorded run.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  remat sweep run.jsonl
  remat sweep run.jsonl --policy dtr,dtr-eq,lru --budget 10%..100%:5% --plot curves.svg
  remat sweep run.jsonl --policy 'dtr,own/(size*stale^2)' --csv rows.csv
  remat sweep run.jsonl --policy learned,dtr --learn ahead,search
  remat sweep run.jsonl --policy dtr-eq --feasibility
  remat sweep run.jsonl --ranks 8 --network 100Gbit,5us --csv rows.csv

A formula is a policy: the tensor with the lowest value is evicted first. The numerator is 1, or a sum of \
own (the cost of the tensor) and one of exact, eq, sources or ancestors (the cost of evicted tensors around \
the tensor). ancestors adds the cost of the sources, held ones with less weight, and of the four nearest \
dependents. The denominator is a product of size or (size+free), and stale. Each part may be left out, or \
have an exponent such as ^2.

Parameters follow the name of a policy after colons: megengine:own-cost:cost=A:bytes=B:staleness=C:rerun=R. \
megengine-article has the same parameters without own-cost, and cost-offset, staleness-offset, cost-scale \
and memory-unit. ancestors, dtr, dtr-eq and dtr-local have exponents, such as dtr:staleness=0.5.")]
pub struct SweepArgs {
    #[command(flatten)]
    pub replay: ReplayArgs,

    /// What to evict first: names and formulas, separated by commas
    #[arg(long, value_name = "LIST", default_value = "all", value_parser = policies())]
    pub policy: Policies,

    /// Effort to learn before a replay by --policy learned, separated by commas [default: as
    /// --policy says]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub learn: Vec<LearnArg>,

    /// Memory limits: percentages, sizes and ranges [default: 10%..100%:10%, with --feasibility
    /// 10%..100%:0.1%]
    ///
    /// 100% is the smallest budget under which nothing is evicted. A range is FROM..TO:STEP.
    #[arg(long, value_name = "LIST", value_parser = values::shares, allow_hyphen_values = true)]
    pub budget: Option<Shares>,

    /// Evict before each op until at most this much is in use: a list like --budget
    #[arg(long, value_name = "LIST", value_parser = values::shares, allow_hyphen_values = true)]
    pub eviction_threshold: Option<Shares>,

    /// What to do with tensors that were recomputed only to recompute others: linger, keep, drop
    #[arg(long, value_name = "LIST", default_value = "linger", value_delimiter = ',')]
    pub dead: Vec<DeadArg>,

    /// Replay with seeds 0 to N-1 of sampling and --policy random; table and plot show median and
    /// range
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::count, allow_hyphen_values = true)]
    pub seeds: usize,

    /// Find budgets that do worse than smaller ones
    ///
    /// Holes: budgets that fail although a smaller one passes. Inversions: budgets that recompute
    /// more than the next smaller one that passes.
    #[arg(long)]
    pub feasibility: bool,

    /// Number of replays to run in parallel [default: one per core]
    #[arg(long, value_name = "N", value_parser = values::threads, allow_hyphen_values = true)]
    pub jobs: Option<usize>,

    /// Write each replay as a line with a JSON object; - is stdout, names in .gz are compressed
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Write the replays as CSV; - is stdout, names in .gz are compressed
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,

    /// Plot slowdown against budget as SVG; - is stdout
    #[arg(long, value_name = "FILE", value_parser = svg)]
    pub plot: Option<PathBuf>,

    /// Print results and errors only
    #[arg(short, long)]
    pub quiet: bool,
}

impl SweepArgs {
    /// Message about options that contradict each other, if there are any.
    pub fn contradiction(&self) -> Option<&'static str> {
        let learns = self.policy.iter().any(|policy| matches!(policy, PolicyKind::Learned(_)));
        (!self.learn.is_empty() && !learns)
            .then_some("--learn needs learned among --policy; add that, or drop --learn")
    }

    /// Policies with their options, without repetitions.
    pub fn policies(&self) -> Vec<PolicyKind> {
        let learned = |policy| match policy {
            PolicyKind::Learned(_) if !self.learn.is_empty() => {
                self.learn.iter().map(|&learn| learn.into()).collect()
            }
            other => vec![other],
        };
        let policies = self.policy.iter().copied().flat_map(learned);
        distinct(policies.map(|policy| self.replay.policy(policy)))
    }
}

/// Policies separated by commas. The alias is needed because clap takes a plain `Vec` for an option
/// that may be repeated.
pub type Policies = Vec<PolicyKind>;
pub type Shares = Vec<Share>;

/// Source of the costs.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum CostArg {
    /// The cost recorded in the trace
    Trace,
    /// Recorded arithmetic, and bytes read and written
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

/// Model of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ArenaArg {
    /// A count of bytes, as in the paper
    Bytes,
    /// A best-fit arena, with fragmentation, compaction and workspaces
    Bfc,
}
