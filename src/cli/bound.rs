//! `remat bound`: lower bounds on the recomputation under budgets.

use super::distinct::{self, Input};
use super::failure::Failure;
use super::lab_args::BoundArgs;
use super::output::{self, Output, json_lines};
use super::terminal::{muted, show};
use super::values::shares;
use super::words::{Counted, Seconds, at_least, percent, rounded_down};
use remat::ByteSize;
use remat::unstable::bound::{Bound, Effort, Misfit};
use remat::unstable::lab::{Cluster, Trace, Unbudgeted};
use remat::unstable::program::RecordedProgram;
use serde::Serialize;
use std::fmt::Write as _;
use std::path::Path;
use std::slice;

/// Prints and writes the lower bound of each trace under each budget.
pub fn run(args: &BoundArgs) -> Result<(), Failure> {
    args.source.check()?;
    let outputs = [("--json", &args.json), ("--lp", &args.lp)];
    distinct::check(&outputs, &Input::kept(&args.source.traces))?;
    let budgets = args.budget.as_ref().map_or(0, Vec::len);
    if args.lp.is_some() && (args.source.traces.len(), budgets) != (1, 1) {
        return Err(Failure::usage(
            "--lp writes one problem; give one trace and one --budget, or drop --lp",
        ));
    }
    let create = |path: &Option<_>| path.as_deref().map(Output::create).transpose();
    let (json, lp) = (create(&args.json)?, create(&args.lp)?);
    let to_stdout = [&json, &lp].iter().any(|o| matches!(o, Some(Output::Stdout)));
    let (mut lines, mut problem) = (String::new(), String::new());
    for path in &args.source.traces {
        let text = of_trace(args, path, &mut lines, &mut problem)?;
        show(&text, to_stdout)?;
    }
    output::all([Output::deliver_to(json, || Ok(lines)), Output::deliver_to(lp, || Ok(problem))])
}

/// Makes the report on a trace. Appends a JSON object for each budget to `lines`. With `--lp`, puts
/// the linear program of the last budget into `problem`.
fn of_trace(
    args: &BoundArgs,
    path: &Path,
    lines: &mut String,
    problem: &mut String,
) -> Result<String, Failure> {
    let trace: Trace = args.source.open(path)?;
    let like = args.source.like(&trace)?;
    let Unbudgeted { peak_bytes, full_budget, cost } = muted(|| like.unbudgeted(trace.program()))?;
    let unit = like.unit(trace.unit());
    let unit_name = unit.to_string();
    let mut text = format!(
        "{}: {}, cost {}, unbudgeted peak {}; 100 % is {}, which evicts nothing",
        trace.name(),
        Counted(trace.program().ops() as u64, "op"),
        unit.show(cost),
        ByteSize(peak_bytes),
        ByteSize(full_budget),
    );
    let standard = || shares("10%..100%:10%").expect("a constant that parses");
    let budgets = args.budget.clone().unwrap_or_else(standard);
    let mut budgets: Vec<u64> = budgets.iter().map(|share| share.of(full_budget).max(1)).collect();
    budgets.sort_unstable();
    budgets.dedup();
    let demand = like.demand(trace.program());
    let bounds = demand.bounds(&budgets, Effort::THOROUGH);
    if let (Some(_), [budget]) = (&args.lp, &budgets[..]) {
        let relaxation = demand.relaxation(*budget, Effort::THOROUGH);
        *problem = relaxation.map_err(|misfit| Failure::new(misfit.to_string()))?;
    }
    for (budget, bound) in budgets.into_iter().zip(bounds) {
        let mut found = Found::new(trace.name(), budget, full_budget, bound, &unit_name);
        if let (Some(cluster), Some(least)) = (&like.cluster, found.least_cost) {
            found.bound_times(cluster, trace.program(), cost + least);
        }
        *lines += &json_lines(slice::from_ref(&found))?;
        let _ = write!(
            text,
            "\n  {:>8}  {:>11}  ",
            percent(found.budget_ratio),
            ByteSize(budget).to_string()
        );
        let _ = match (found.least_excess, &found.refusal) {
            (Some(least), _) => write!(text, "at least {} % is recomputed", at_least(least)),
            (None, refusal) => write!(text, "{}", refusal.as_deref().unwrap_or_default()),
        };
        text += &found.times();
    }
    if let Some(cluster) = &like.cluster {
        let network = cluster
            .network_seconds()
            .map(|(ranks, seconds)| format!("{} on {}", Seconds(seconds), Counted(ranks, "rank")));
        let _ = write!(
            text,
            "\nTimes are of the whole trace. The network alone takes {}.",
            network.collect::<Vec<_>>().join(", ")
        );
    }
    text += "\nPercentages are of the cost of the trace. They hold for any choice of evictions, with ops in program order.";
    Ok(text)
}

/// Numbers about the lower bound of a trace under a budget.
#[derive(Serialize)]
struct Found<'a> {
    trace: &'a str,
    budget_ratio: f64,
    budget_bytes: u64,
    full_budget_bytes: u64,
    /// Least cost of recomputing, divided by the cost of the trace; `None` if no run fits the
    /// budget.
    least_excess: Option<f64>,
    /// Least slowdown: `least_excess` plus 1.
    least_slowdown: Option<f64>,
    /// Least cost of recomputing, in `unit`.
    least_cost: Option<f64>,
    unit: &'a str,
    /// Reason why no run fits the budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    refusal: Option<String>,
    /// Least seconds of the whole trace on one rank, with `--ranks`.
    #[serde(skip_serializing_if = "Option::is_none")]
    least_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    on_ranks: Vec<Least>,
}

/// Lower bound on the time of the whole trace on several ranks.
#[derive(Serialize)]
struct Least {
    ranks: u64,
    /// Seconds that the network alone takes.
    network_seconds: f64,
    least_seconds: f64,
}

impl<'a> Found<'a> {
    fn new(
        trace: &'a str,
        budget: u64,
        full_budget: u64,
        bound: Result<Bound, Misfit>,
        unit: &'a str,
    ) -> Self {
        let found = bound.as_ref().ok();
        Self {
            trace,
            budget_ratio: rounded_down(budget as f64 / full_budget as f64 + 5e-7, 6),
            budget_bytes: budget,
            full_budget_bytes: full_budget,
            least_excess: found.map(|bound| rounded_down(bound.excess(), 6)),
            least_slowdown: found.map(|bound| rounded_down(1.0 + bound.excess(), 6)),
            least_cost: found.map(|bound| bound.cost),
            unit,
            refusal: bound.as_ref().err().map(Misfit::to_string),
            least_seconds: None,
            on_ranks: Vec::new(),
        }
    }

    /// Adds lower bounds on times. `cost` is the least cost of the trace, recomputation included.
    fn bound_times(&mut self, cluster: &Cluster, program: &RecordedProgram, cost: f64) {
        let (alone, least) = cluster.least_seconds(program, cost);
        self.least_seconds = Some(rounded_down(alone, 9));
        let network = cluster.network_seconds().zip(least);
        let least = network.map(|((ranks, network_seconds), least)| Least {
            ranks,
            network_seconds,
            least_seconds: rounded_down(least, 9),
        });
        self.on_ranks = least.collect();
    }

    /// Text of the lower bounds on times; empty without such bounds.
    fn times(&self) -> String {
        let Some(alone) = self.least_seconds else { return String::new() };
        let on = |least: &Least| {
            format!(", {} on {}", Seconds(least.least_seconds), Counted(least.ranks, "rank"))
        };
        let on_ranks: String = self.on_ranks.iter().map(on).collect();
        format!("; at least {} on 1 rank{on_ranks}", Seconds(alone))
    }
}
