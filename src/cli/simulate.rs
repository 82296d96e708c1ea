//! `remat simulate`

use super::failure::Failure;
use super::lab_args::{ArenaArg, ReplayArgs, SimulateArgs};
use super::output::{Output, check_distinct};
use super::terminal::{muted, print_result, say};
use super::words::Counted;
use indicatif::HumanCount;
use remat::lab::{Costs, Job, Outcome, Replay, Row, Status, Trace, plot};
use remat::{ByteSize, Placement, Settings};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::Path;

/// Replays each trace once and reports on it.
pub fn run(args: &SimulateArgs) -> Result<(), Failure> {
    args.replay.check(&[args.policy])?;
    check_distinct(&[("--json", &args.json), ("--plot", &args.plot)], &args.replay.traces)?;
    if args.plot.is_some() && args.replay.traces.len() > 1 {
        return Err(Failure::usage("--plot draws one trace; give one, or drop it"));
    }
    let create = |path: &Option<_>| path.as_deref().map(Output::create).transpose();
    let (json, drawing) = (create(&args.json)?, create(&args.plot)?);
    let mut lines = String::new();
    let mut drawn = None;
    for path in &args.replay.traces {
        let trace = args.replay.open(path)?;
        let mut replay = args.replay.like(&trace, args.seed)?;
        let unbudgeted = muted(|| replay.unbudgeted(trace.program()))?;
        let full = unbudgeted.full_budget;
        replay.policy = args.replay.policy(args.policy);
        replay.settings.work = Some(unbudgeted.cost);
        replay.settings.dead = args.dead.into();
        replay.settings.budget = args.budget.of(full).max(1);
        replay.settings.eviction_threshold = args.eviction_threshold.map(|share| share.of(full));
        replay.settings.min_evict_bytes =
            args.replay.min_evict_bytes(&replay.settings, replay.settings.budget);
        let outcome = muted(|| match drawing {
            Some(_) => {
                let title = format!("{}, {}", trace.name(), replay.policy);
                let (outcome, timeline) =
                    replay.run_with_timeline(trace.program(), unbudgeted, &title)?;
                drawn = Some(plot::memory(&timeline));
                Ok(outcome)
            }
            None => replay.run(trace.program()),
        })
        .map_err(Failure::from)?;
        let unit = replay.unit(trace.program()).to_string();
        let job = Job { trace: trace.name(), program: trace.program(), unbudgeted, replay };
        let report = Report {
            row: job.row(&outcome),
            cost: unbudgeted.cost,
            unit,
            evicted_bytes: outcome.stats.evicted_bytes,
            fragmentation: outcome.stats.fragmentation,
            failure: failure(&trace, &outcome),
        };
        match json {
            Some(_) => {
                let object = serde_json::to_string(&report);
                let object = object.map_err(|e| Failure::new(format!("no JSON form: {e}")))?;
                let _ = writeln!(lines, "{object}");
            }
            None if matches!(drawing, Some(Output::Stdout)) => say(&report),
            None => print_result(&report.to_string())?,
        }
    }
    if let Some(json) = json {
        json.deliver(&lines)?;
    }
    if let (Some(drawing), Some(drawn)) = (drawing, drawn) {
        drawing.deliver(&drawn.map_err(|e| Failure::new(format!("--plot: {e}")))?)?;
    }
    Ok(())
}

/// What went wrong, and where in the trace.
fn failure(trace: &Trace, outcome: &Outcome) -> Option<String> {
    match &outcome.status {
        Status::Done => None,
        Status::Failed { at, error } => Some(format!(
            "instruction {} of {}: {}",
            HumanCount(*at as u64 + 1),
            HumanCount(trace.program().instructions().len() as u64),
            error.to_string().trim_end()
        )),
    }
}

impl ReplayArgs {
    /// Options that contradict each other.
    pub fn check(&self, policies: &[remat::PolicyKind]) -> Result<(), Failure> {
        super::args::exponents_are_lost(policies, self.exponents)
            .map_or(Ok(()), |contradiction| Err(Failure::usage(contradiction)))
    }

    /// Reads a trace, and repeats its last step as `--repeat-step` says.
    pub fn open(&self, path: &Path) -> Result<Trace, Failure> {
        let trace = Trace::open(path).map_err(|e| Failure::new(e.to_string()))?;
        let trace = trace.repeat_step(self.repeat_step);
        trace.map_err(|e| Failure::usage(format!("{}: --repeat-step: {e}", path.display())))
    }

    /// A replay with these options; its budget and policy are still to be set.
    pub fn like(&self, trace: &Trace, seed: u64) -> Result<Replay, Failure> {
        let costs = Costs::from(self.cost);
        if costs == Costs::Flops && !trace.program().has_flops() {
            return Err(Failure::usage(format!(
                "{} does not record the flops of its ops; use --cost trace or bytes",
                trace.name()
            )));
        }
        let mut replay = Replay::new(remat::PolicyKind::None, 1);
        let settings = &mut replay.settings;
        let default = if trace.is_recording() { ArenaArg::Bfc } else { ArenaArg::Bytes };
        if self.arena.unwrap_or(default) == ArenaArg::Bfc {
            settings.placement = Placement::Arena;
            settings.granularity = Settings::new(1).granularity;
        }
        settings.sqrt_sampling = self.sqrt_sampling;
        settings.recompute_limit = Some(self.recompute_limit);
        settings.seed = seed;
        replay.costs = costs;
        Ok(replay)
    }

    /// Tensors smaller than this are evicted last, under this budget.
    pub fn min_evict_bytes(&self, like: &Settings, budget: u64) -> u64 {
        match (self.min_evict_bytes, like.placement) {
            (Some(ByteSize(bytes)), _) => bytes,
            (None, Placement::Arena) => Settings::new(budget).min_evict_bytes,
            (None, Placement::Counted) => like.min_evict_bytes,
        }
    }

    /// The policy with its exponents.
    pub fn policy(&self, policy: remat::PolicyKind) -> remat::PolicyKind {
        self.exponents.map_or(policy, |exponents| policy.with_exponents(exponents))
    }
}

/// One replay in figures.
#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    row: Row,
    /// Of the trace, once.
    cost: f64,
    unit: String,
    evicted_bytes: u64,
    fragmentation: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Row { trace, policy, budget_bytes, budget_ratio, .. } = &self.row;
        match self.row.slowdown {
            Some(slowdown) => writeln!(f, "{trace} by {policy}: slowdown {slowdown:.4}")?,
            None => writeln!(f, "{trace} by {policy}: fails")?,
        }
        if let Some(failure) = &self.failure {
            writeln!(f, "  {failure}")?;
        }
        writeln!(
            f,
            "  memory      peak {} of a budget of {}, {}",
            ByteSize(self.row.peak_bytes),
            ByteSize(*budget_bytes),
            percent(*budget_ratio),
        )?;
        writeln!(
            f,
            "  100 %       {}, the smallest budget found that evicts nothing; unbudgeted peak {}",
            ByteSize(self.row.full_budget_bytes),
            ByteSize(self.row.unbudgeted_peak_bytes),
        )?;
        if let Some(threshold) = self.row.threshold_bytes {
            writeln!(f, "  threshold   {}", ByteSize(threshold))?;
        }
        writeln!(
            f,
            "  evictions   {}, {} in all; {} computed",
            HumanCount(self.row.evictions),
            ByteSize(self.evicted_bytes),
            Counted(self.row.score_evaluations, "score"),
        )?;
        writeln!(
            f,
            "  recomputed  {} run again, on top of {}; chains of up to {}",
            Counted(self.row.recomputed_ops, "op"),
            HumanCount(self.row.ops),
            Counted(self.row.max_regeneration_depth as u64, "op"),
        )?;
        if self.row.compactions > 0 {
            writeln!(
                f,
                "  compacted   {}, {} moved",
                Counted(self.row.compactions, "time"),
                ByteSize(self.row.moved_bytes)
            )?;
        }
        write!(
            f,
            "  took        {:.1} ms, {:.1} ms of it choosing what to evict",
            1e3 * self.row.seconds,
            1e3 * self.row.search_seconds
        )
    }
}

/// A share with no more digits than it needs: `40 %`, `12.8 %`.
pub fn percent(ratio: f64) -> String {
    format!("{} %", (ratio * 1e3).round() / 10.0)
}
