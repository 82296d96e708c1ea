//! `remat simulate`: a replay of each trace.

use super::args::exponents_are_lost;
use super::distinct::{self, Input};
use super::failure::Failure;
use super::lab_args::{ArenaArg, ReplayArgs, SimulateArgs, TraceArgs};
use super::network_args;
use super::output::{self, Output, is_standard, json_lines};
use super::terminal::{Shows, muted, show};
use super::values::Share;
use super::waiting::Waiting;
use super::words::{Counted, at_least, percent};
use indicatif::HumanCount;
use remat::tune::USUAL;
use remat::unstable::lab::plot::Timeline;
use remat::unstable::lab::smallest;
use remat::unstable::lab::{
    Costs, Job, MemoryKind, Outcome, Replay, Row, Status, Trace, Unbudgeted, plot,
};
use remat::unstable::program::Setting;
use remat::{ByteSize, RecomputeLimit};
use serde::Serialize;
use std::io::{BufReader, stdin};
use std::path::Path;
use std::slice;

/// Replays each trace once, with a report.
pub fn run(args: &SimulateArgs) -> Result<(), Failure> {
    args.replay.check(args.policy.as_slice())?;
    let traces = &args.replay.source.traces;
    let outputs = [("--json", &args.json), ("--plot", &args.plot)];
    distinct::check(&outputs, &Input::kept(traces))?;
    if args.plot.is_some() && traces.len() > 1 {
        return Err(Failure::usage("--plot draws one trace; give one trace, or drop --plot"));
    }
    let create = |path: &Option<_>| path.as_deref().map(Output::create).transpose();
    let (json, drawing) = (create(&args.json)?, create(&args.plot)?);
    let to_stdout = [&json, &drawing].iter().any(|o| matches!(o, Some(Output::Stdout)));
    let mut lines = String::new();
    let mut drawn = None;
    let mut failed = 0;
    for path in traces {
        let trace = args.replay.source.open(path)?;
        let trial = Trial::new(args, &trace)?;
        let (report, timeline) = trial.run(drawing.is_some())?;
        drawn = timeline.map(|timeline| plot::memory(&timeline));
        failed += u64::from(report.failure.is_some());
        lines += &json_lines(slice::from_ref(&report))?;
        show(&report, to_stdout)?;
    }
    let plotted = drawn
        .map_or(Ok(()), |drawn| Output::deliver_to(drawing, || drawn.map_err(output::no_drawing)));
    output::all([Output::deliver_to(json, || Ok(lines)), plotted])?;
    match (failed, traces.len() as u64) {
        (0, _) => Ok(()),
        (_, 1) => Err(Failure::new("the replay failed")),
        (_, all) => Err(Failure::new(format!("{failed} of {} failed", Counted(all, "replay")))),
    }
}

/// A trace and how to replay it. The budget is given, taken from the run, or still to be found.
struct Trial<'a> {
    args: &'a SimulateArgs,
    trace: &'a Trace,
    unbudgeted: Unbudgeted,
    /// Replay with all options except the budget. A setting for which no option is given changes as
    /// in the run.
    like: Replay,
    /// Replay with the budgets of the run: with `--as-run`, or if the run changed its settings.
    /// `None` in all other cases, and with `--budget`.
    by_run: Option<Replay>,
    waiting: Waiting,
}

impl<'a> Trial<'a> {
    fn new(args: &'a SimulateArgs, trace: &'a Trace) -> Result<Self, Failure> {
        let waiting = Waiting::new(Shows::now(false));
        waiting.at(format!("{}: looking for 100 %", trace.name()));
        let mut like = args.replay.like(trace, args.seed)?;
        like.settings.dead = args.dead.into();
        // The policy is the given policy, or the recorded policy, or the default.
        let run = trace.settings();
        let recorded = run.policy.as_deref().and_then(|name| name.parse().ok());
        like.policy = args.replay.policy(args.policy.or(recorded).unwrap_or_default());
        let changes = !run.changes.is_empty();
        // `--exponents`, like `--policy`, sets the policy of the whole replay.
        let by_run = changes && args.policy.is_none() && args.replay.exponents.is_none();
        if by_run {
            let all = run.policies().map_err(|error| {
                Failure::usage(format!("{}: {error} (with --policy NAME)", trace.name()))
            })?;
            like.policy = all[0];
        } else if args.as_run && args.policy.is_some_and(|policy| !policy.looks_ahead()) {
            return Err(Failure::usage(
                "--as-run needs --policy learned; add --policy learned, or drop --as-run",
            ));
        }
        // With this window, the evictor knows as many later commands as in the run. Without this
        // window, the evictor knows the whole trace.
        if args.as_run || by_run {
            like.window = trace.window();
        }
        let unbudgeted = muted(|| like.unbudgeted(trace.program()))?;
        like.as_run = (args.as_run || by_run).then(|| trace.known().clone());
        like.work = Some(unbudgeted.cost);
        like.settings.eviction_threshold = match args.eviction_threshold {
            Some(share) => Some(share.of(unbudgeted.full_budget)),
            None => run.eviction_threshold.filter(|_| changes || args.as_run),
        };
        // Settings change as in the run, except settings that an option sets.
        like.changes.clone_from(&run.changes);
        like.changes.retain(|change| match change.setting {
            Setting::EvictionThreshold(_) => args.eviction_threshold.is_none(),
            Setting::Policy(_) => by_run,
            _ => true,
        });
        let budget = run.budget.filter(|_| (changes || args.as_run) && args.budget.is_none());
        let by_run = budget.map(|budget| Replay { budget, ..like.clone() });
        like.changes.retain(|change| !matches!(change.setting, Setting::Budget(_)));
        Ok(Self { args, trace, unbudgeted, like, by_run, waiting })
    }

    fn within(&self, budget: Share) -> Replay {
        let budget = budget.of(self.unbudgeted.full_budget).max(1);
        Replay { budget, ..self.like.clone() }
    }

    fn passes(&self, percent: u32) -> Result<bool, Failure> {
        let replay = self.within(Share::Percent(percent.into()));
        if replay.settings.eviction_threshold > Some(replay.budget) {
            return Ok(false);
        }
        self.waiting.at(format!("{}: replaying within {percent} %", self.trace.name()));
        let outcome = muted(|| replay.run(self.trace.program()))?;
        Ok(matches!(outcome.status, Status::Done))
    }

    /// Smallest percentage of the full budget found, from `low` on, in which the replay passes.
    fn passing(&self, low: u32) -> Result<Option<u32>, Failure> {
        smallest(low, 100, |percent| self.passes(percent))
    }

    /// Budget of the replay: `--budget`, or the usual percentage, or the smallest percentage that
    /// passes. The budget is 100 % if no percentage passes, or if the eviction threshold is not
    /// below the usual budget.
    fn budget(&self) -> Result<Share, Failure> {
        if let Some(budget) = self.args.budget {
            return Ok(budget);
        }
        let usual = self.within(Share::Percent(USUAL.into()));
        let percent = match () {
            () if usual.settings.eviction_threshold >= Some(usual.budget) => None,
            () if self.passes(USUAL)? => Some(USUAL),
            () => self.passing(USUAL + 1)?,
        };
        Ok(Share::Percent(percent.unwrap_or(100).into()))
    }

    /// Runs the replay. Returns the report and, if `draws` is set, the memory over time.
    fn run(self, draws: bool) -> Result<(ReplayReport, Option<Timeline>), Failure> {
        let replay = match self.by_run.clone() {
            Some(replay) => replay,
            None => self.within(self.budget()?),
        };
        let (trace, program) = (self.trace, self.trace.program());
        let (outcome, timeline) = muted(|| match draws {
            true => {
                let title = format!("{}, {}", trace.name(), replay.policy);
                let (outcome, timeline) =
                    replay.run_with_timeline(trace, self.unbudgeted, &title)?;
                Ok((outcome, Some(timeline)))
            }
            false => replay.run(program).map(|outcome| (outcome, None)),
        })
        .map_err(Failure::from)?;
        let unit = replay.unit(trace.unit()).to_string();
        // The lower bound shows whether the budget is too small for every policy, or only for this
        // policy.
        let least = replay.demand(program).bound(replay.largest_budget());
        let (least_slowdown, refusal) = match least {
            Ok(bound) => (Some(1.0 + bound.excess()), None),
            Err(misfit) => (None, Some(misfit.to_string())),
        };
        let unbudgeted = self.unbudgeted;
        let job = Job { trace: trace.name(), program, unbudgeted, replay, least_slowdown };
        let changes = job.replay.changes.len() as u64;
        let row = job.row(&outcome);
        let failure = failure(trace, &outcome);
        // If the replay failed, search for a larger budget that passes.
        let passing = match failure {
            Some(_) => {
                let more = row.budget_bytes.saturating_add(1) as f64;
                self.passing((100.0 * more / row.full_budget_bytes as f64).ceil() as u32)?
            }
            None => None,
        };
        let report = ReplayReport {
            row,
            cost: self.unbudgeted.cost,
            unit,
            changes,
            evicted_bytes: outcome.stats.evicted_bytes,
            fragmentation: outcome.stats.fragmentation,
            failure,
            refusal,
            passing_budget_ratio: passing.map(|percent| f64::from(percent) / 100.0),
        };
        Ok((report, timeline))
    }
}

/// Text of the error that ended the replay, with the instruction of the trace at which it happened;
/// `None` if the replay passed.
fn failure(trace: &Trace, outcome: &Outcome) -> Option<String> {
    match &outcome.status {
        Status::Done => None,
        Status::Failed { at, error } => Some(format!(
            "instruction {} of {}: {}",
            HumanCount(*at as u64 + 1),
            HumanCount(trace.program().commands().len() as u64),
            error.to_string().trim_end()
        )),
    }
}

impl TraceArgs {
    /// Fails if options contradict each other.
    pub fn check(&self) -> Result<(), Failure> {
        if self.traces.iter().filter(|path| is_standard(path)).count() > 1 {
            return Err(Failure::usage("- is stdin, which can be read only once"));
        }
        Ok(())
    }

    /// Reads a trace, and repeats its last step as often as `--repeat-step` requests.
    pub fn open(&self, path: &Path) -> Result<Trace, Failure> {
        let trace = read(path)?.repeat_step(self.repeat_step);
        trace.map_err(|e| Failure::usage(format!("{}: --repeat-step: {e}", path.display())))
    }

    /// A replay with the options for costs and memory. The caller sets all other options.
    pub fn like(&self, trace: &Trace) -> Result<Replay, Failure> {
        let costs = Costs::from(self.cost);
        if costs == Costs::Flops && !trace.program().has_flops() {
            return Err(Failure::usage(format!(
                "{} does not record the flops of its ops; use --cost trace or bytes",
                trace.name()
            )));
        }
        let mut replay = Replay::new(remat::PolicyKind::None, 1);
        let default = if trace.is_recording() { ArenaArg::Bfc } else { ArenaArg::Bytes };
        if self.arena.unwrap_or(default) == ArenaArg::Bfc {
            replay.memory = MemoryKind::Arena;
            replay.settings.min_evict_bytes = None;
        }
        replay.costs = costs;
        replay.cluster = self.network.cluster(trace, &replay)?;
        Ok(replay)
    }
}

impl ReplayArgs {
    /// Fails if options contradict each other.
    pub fn check(&self, policies: &[remat::PolicyKind]) -> Result<(), Failure> {
        self.source.check()?;
        exponents_are_lost(policies, self.exponents)
            .map_or(Ok(()), |contradiction| Err(Failure::usage(contradiction)))
    }

    /// A replay with these options. The caller sets budget and policy.
    pub fn like(&self, trace: &Trace, seed: u64) -> Result<Replay, Failure> {
        let mut replay = self.source.like(trace)?;
        if let Some(ByteSize(bytes)) = self.min_evict_bytes {
            replay.settings.min_evict_bytes = Some(bytes);
        }
        replay.settings.recompute_limit = Some(RecomputeLimit::Multiple(self.recompute_limit));
        replay.sqrt_sampling = self.sqrt_sampling;
        replay.seed = seed;
        Ok(replay)
    }

    /// The policy, with the exponents of `--exponents` if given.
    pub fn policy(&self, policy: remat::PolicyKind) -> remat::PolicyKind {
        self.exponents.map_or(policy, |exponents| policy.with_exponents(exponents))
    }
}

/// Reads a trace from a file, or from stdin.
pub fn read(path: &Path) -> Result<Trace, Failure> {
    let trace = match is_standard(path) {
        true => Trace::read(BufReader::new(stdin()), "stdin"),
        false => Trace::open(path),
    };
    trace.map_err(|e| Failure::new(e.to_string()))
}

/// Numbers about a replay.
#[derive(Serialize)]
struct ReplayReport {
    #[serde(flatten)]
    row: Row,
    /// Cost of the trace without recomputing.
    cost: f64,
    unit: String,
    /// Number of changes of settings in the replay, which are those of the run.
    #[serde(skip_serializing_if = "is_none")]
    changes: u64,
    evicted_bytes: u64,
    fragmentation: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
    /// Reason why no policy can pass in the budget, if the lower bound proves it.
    #[serde(skip_serializing_if = "Option::is_none")]
    refusal: Option<String>,
    /// Larger budget that passes, as a ratio to the full budget, if the replay failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    passing_budget_ratio: Option<f64>,
}

impl std::fmt::Display for ReplayReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Row { trace, policy, budget_bytes, budget_ratio, .. } = &self.row;
        match self.row.slowdown {
            Some(slowdown) => writeln!(
                f,
                "{trace} by {policy}: slowdown {slowdown:.4}, recomputing {:.1} %",
                100.0 * (slowdown - 1.0)
            )?,
            None => writeln!(f, "{trace} by {policy}: fails")?,
        }
        match (self.row.least_slowdown, &self.refusal) {
            (Some(least), _) => writeln!(
                f,
                "  bound       any run in program order recomputes at least {} %",
                at_least(least - 1.0),
            )?,
            (None, refusal) => {
                refusal.iter().try_for_each(|refusal| writeln!(f, "  {refusal}"))?;
            }
        }
        if let Some(failure) = &self.failure {
            writeln!(f, "  {failure}")?;
            match self.passing_budget_ratio {
                Some(ratio) => writeln!(f, "  --budget {:.0}% passes", 100.0 * ratio)?,
                None => writeln!(f, "  no budget up to 100 % passes")?,
            }
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
            "  100 %       {} evicts nothing; unbudgeted peak {}",
            ByteSize(self.row.full_budget_bytes),
            ByteSize(self.row.unbudgeted_peak_bytes),
        )?;
        if let Some(threshold) = self.row.threshold_bytes {
            writeln!(f, "  threshold   {}", ByteSize(threshold))?;
        }
        if self.changes > 0 {
            writeln!(f, "  settings    {}, as in the run", Counted(self.changes, "change"))?;
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
        )?;
        self.row.step.iter().try_for_each(|step| f.write_str(&network_args::lines(step)))
    }
}

/// Whether a count is 0, as a function for serde.
#[allow(clippy::trivially_copy_pass_by_ref)]
const fn is_none(count: &u64) -> bool {
    *count == 0
}
