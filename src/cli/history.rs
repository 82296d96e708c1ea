//! `remat history`: the memory of a recorded run.

use super::distinct::{self, Input};
use super::failure::Failure;
use super::lab_args::HistoryArgs;
use super::output::{self, Output, json_lines};
use super::simulate::read;
use super::terminal::show;
use super::words::{Counted, percent};
use indicatif::HumanCount;
use remat::ByteSize;
use remat::unstable::event::Cause;
use remat::unstable::lab::{History, Tally, Trace, plot};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Largest number of ops in the report.
const MOST_OPS: usize = 5;

/// Reports and draws the memory of a recorded run.
pub fn run(args: &HistoryArgs) -> Result<(), Failure> {
    let outputs = [("--json", &args.json), ("--plot", &args.plot)];
    distinct::check(&outputs, &Input::kept([&args.recording]))?;
    let create = |path: &Option<_>| path.as_deref().map(Output::create).transpose();
    let (json, drawing) = (create(&args.json)?, create(&args.plot)?);
    let to_stdout = [&json, &drawing].iter().any(|o| matches!(o, Some(Output::Stdout)));
    let trace = read(&args.recording)?;
    let history = trace
        .history()
        .map_err(|reason| Failure::new(format!("{}: {reason}", args.recording.display())))?;
    let report = HistoryReport::new(&trace, history);
    let drawn = || plot::memory(&history.timeline).map_err(output::no_drawing);
    output::all([
        show(&report, to_stdout),
        Output::deliver_to(json, || json_lines(std::slice::from_ref(&report))),
        Output::deliver_to(drawing, drawn),
    ])
}

/// Numbers about the memory of a run.
#[derive(Serialize)]
struct HistoryReport {
    trace: String,
    /// Name of the trace again, under the JSON key that versions before 0.2 used.
    recording: String,
    steps: u64,
    ops: u64,
    budget_bytes: u64,
    threshold_bytes: Option<u64>,
    peak_bytes: u64,
    cost: f64,
    recompute_cost: f64,
    recompute_ratio: f64,
    slowdown: f64,
    unit: String,
    evictions: BTreeMap<Cause, Count>,
    regenerations: Count,
    /// Ops whose outputs were regenerated; the most frequent first.
    regenerated_ops: Vec<OfOp>,
}

#[derive(Clone, Copy, Default, Serialize)]
struct Count {
    times: u64,
    bytes: u64,
}

impl From<Tally> for Count {
    fn from(Tally { times, bytes, .. }: Tally) -> Self {
        Self { times, bytes }
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", HumanCount(self.times), ByteSize(self.bytes))
    }
}

#[derive(Serialize)]
struct OfOp {
    op: String,
    #[serde(flatten)]
    count: Count,
}

impl HistoryReport {
    fn new(trace: &Trace, history: &History) -> Self {
        let recompute_ratio = match history.base_cost {
            cost if cost > 0.0 => history.recompute_cost / cost,
            _ => 0.0,
        };
        let of_op =
            |(op, tally): &(Arc<str>, Tally)| OfOp { op: op.to_string(), count: (*tally).into() };
        Self {
            trace: trace.name().to_owned(),
            recording: trace.name().to_owned(),
            steps: history.steps,
            ops: history.ops,
            budget_bytes: history.timeline.budget,
            threshold_bytes: history.timeline.threshold,
            peak_bytes: history.peak_bytes,
            cost: history.base_cost,
            recompute_cost: history.recompute_cost,
            recompute_ratio,
            slowdown: 1.0 + recompute_ratio,
            unit: history.timeline.unit.to_string(),
            evictions: history
                .evictions
                .iter()
                .map(|(&cause, &tally)| (cause, tally.into()))
                .collect(),
            regenerations: history.regenerations.into(),
            regenerated_ops: history.regenerated_ops.iter().map(of_op).collect(),
        }
    }

    /// Text about the evictions that a policy chose. With `chosen` false, returns the text about
    /// all other evictions.
    fn causes(&self, chosen: bool) -> String {
        let of_kind = self.evictions.iter().filter(|(cause, _)| cause.is_chosen() == chosen);
        let all: Vec<String> =
            of_kind.map(|(&cause, count)| format!("{count} {}", reason(cause))).collect();
        if all.is_empty() { "none".to_owned() } else { all.join(", ") }
    }
}

/// Text for the cause of evictions. In a sentence, the text follows the number of evictions.
const fn reason(cause: Cause) -> &'static str {
    match cause {
        Cause::Room => "for lack of memory",
        Cause::Threshold => "to get below the threshold",
        Cause::Wish => "by request",
        Cause::Unheld => "no longer held",
        Cause::Dead => "needed only to recompute others",
        Cause::Failed => "half written by an op that failed",
        _ => "for another reason",
    }
}

impl fmt::Display for HistoryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trace, peak_bytes, budget_bytes, regenerations, .. } = self;
        let (steps, ops) = (Counted(self.steps, "step"), Counted(self.ops, "op"));
        writeln!(f, "{trace}: {steps}, {ops}")?;
        let (peak, budget) = (ByteSize(*peak_bytes), ByteSize(*budget_bytes));
        writeln!(f, "  memory       peak {peak} of a budget of {budget}")?;
        if let Some(threshold) = self.threshold_bytes {
            writeln!(f, "  threshold    {}", ByteSize(threshold))?;
        }
        writeln!(f, "  evictions    {}", self.causes(true))?;
        writeln!(f, "  also freed   {}", self.causes(false))?;
        let share = percent(self.recompute_ratio);
        write!(f, "  regenerated  {regenerations}, which adds {share} to the cost")?;
        if !self.regenerated_ops.is_empty() {
            let most = self.regenerated_ops.iter().take(MOST_OPS);
            let most: Vec<String> = most
                .map(|OfOp { op, count }| format!("{op} {}", HumanCount(count.times)))
                .collect();
            write!(f, "\n  most often   {}", most.join(", "))?;
        }
        Ok(())
    }
}
