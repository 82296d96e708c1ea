//! `remat sweep`: replays at many budgets and with many policies.

use super::distinct::{self, Input};
use super::failure::Failure;
use super::lab_args::SweepArgs;
use super::labels::{BOUND, Given, Labels};
use super::matrix::Matrix;
use super::output::{self, Output, json_lines, table_width};
use super::terminal::{BARS, Shows, muted, say, show, warn};
use super::values::{Share, distinct, shares};
use super::words::{Counted, rounded};
use super::wrap::Stream;
use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use remat::ByteSize;
use remat::unstable::bound::Effort;
use remat::unstable::lab::plot::{self, Line, Panel, Point};
use remat::unstable::lab::{
    Feasibility, Grid, Job, OnRanks, Replay, Row, Trace, Unbudgeted, feasibility, sweep,
};
use std::collections::HashMap;
use std::error::Error;
use std::fmt::Write as _;
use std::path::PathBuf;

/// Highest slowdown on the plot's axis. Points with a higher slowdown are drawn at the edge.
const HIGHEST_SLOWDOWN: f64 = 2.0;

/// Limit on the replays of a trace. A larger number is probably a typing mistake, and the results
/// would not fit into memory.
const MOST_REPLAYS: usize = 1 << 20;

/// Replays all combinations and writes the outputs.
pub fn run(args: &SweepArgs) -> Result<(), Failure> {
    args.replay.check(&args.policy)?;
    if let Some(problem) = args.contradiction() {
        return Err(Failure::usage(problem));
    }
    let SweepArgs { json, csv, plot: drawing, .. } = args;
    let outputs = [("--json", json), ("--csv", csv), ("--plot", drawing)];
    distinct::check(&outputs, &Input::kept(&args.replay.source.traces))?;
    let create = |path: &Option<_>| path.as_deref().map(Output::create).transpose();
    let (json, csv, drawing) = (create(json)?, create(csv)?, create(drawing)?);
    let to_stdout = [&json, &csv, &drawing].iter().any(|o| matches!(o, Some(Output::Stdout)));

    // Read all traces and list all replays first, so that errors are found before the first replay.
    let paths = distinct(args.replay.source.traces.iter());
    let traces: Vec<Trace> =
        paths.iter().map(|path| args.replay.source.open(path)).collect::<Result<_, _>>()?;
    let names = names(&traces, &paths);
    let mut jobs = Vec::new();
    let mut given = Given::default();
    for (trace, name) in traces.iter().zip(&names) {
        jobs.extend(jobs_of(trace, name, args, &mut given)?);
    }
    if jobs.is_empty() {
        return Err(Failure::usage(format!(
            "every budget is below the lowest eviction threshold, {}; lower --eviction-threshold, or raise --budget",
            given.lowest_threshold()
        )));
    }
    if let (false, Some(below)) = (args.quiet, given.without_replay(&jobs)) {
        warn(format_args!("left out budgets below every eviction threshold: {below}"));
    }
    let rows = replay_all(&jobs, args)?;
    let found = args.feasibility.then(|| feasibility(&rows));

    // If an output fails, the other outputs are written all the same.
    let drawn = || plot::slowdown(&panels(&rows, &given), HIGHEST_SLOWDOWN);
    let files = [
        Output::deliver_to(json, || json_lines(&rows)),
        Output::deliver_to(csv, || commas(&rows, args.replay.source.network.ranks.as_deref())),
        Output::deliver_to(drawing, || drawn().map_err(output::no_drawing)),
    ];
    let text = match &found {
        Some(found) => found.iter().map(describe).collect::<Vec<_>>().join("\n"),
        None => {
            let stream = if to_stdout { Stream::Stderr } else { Stream::Stdout };
            Matrix::new(&rows, Labels::of(&rows, &given), table_width(stream)).to_string()
        }
    };
    let is_silent = to_stdout && args.quiet;
    let printed = if is_silent { Ok(()) } else { show(&text, to_stdout) };
    let [json, csv, drawing] = files;
    output::all([json, csv, drawing, printed])
}

/// Names of the traces in the results. If two traces have the same name, the paths are their names.
fn names(traces: &[Trace], paths: &[&PathBuf]) -> Vec<String> {
    let is_alone = |name: &str| traces.iter().filter(|trace| trace.name() == name).count() == 1;
    let name = |(trace, path): (&Trace, &&PathBuf)| match is_alone(trace.name()) {
        true => trace.name().to_owned(),
        false => path.display().to_string(),
    };
    traces.iter().zip(paths).map(name).collect()
}

/// All replays of a trace.
fn jobs_of<'a>(
    trace: &'a Trace,
    name: &'a str,
    args: &SweepArgs,
    given: &mut Given,
) -> Result<Vec<Job<'a>>, Failure> {
    let like = args.replay.like(trace, 0)?;
    let unbudgeted = muted(|| like.unbudgeted(trace.program()))?;
    let Unbudgeted { peak_bytes, full_budget, cost } = unbudgeted;
    if !args.quiet {
        say(format_args!(
            "{name}: {}, cost {}, unbudgeted peak {}; 100 % is {}, which evicts nothing",
            Counted(trace.program().ops() as u64, "op"),
            like.unit(trace.unit()).show(cost),
            ByteSize(peak_bytes),
            ByteSize(full_budget),
        ));
    }
    let standard = if args.feasibility { "10%..100%:0.1%" } else { "10%..100%:10%" };
    let standard = || shares(standard).expect("a constant that parses");
    let budgets = args.budget.clone().unwrap_or_else(standard);
    // Convert sizes in percent to bytes. `given` keeps each size as the user wrote it, for the
    // labels.
    let in_bytes = |shares: &[Share], given: &mut HashMap<(String, u64), Share>| -> Vec<u64> {
        let mut bytes: Vec<u64> = Vec::with_capacity(shares.len());
        for share in shares {
            let of_full = share.of(full_budget).max(1);
            given.entry((name.to_owned(), of_full)).or_insert(*share);
            bytes.push(of_full);
        }
        bytes.sort_unstable();
        bytes.dedup();
        bytes
    };
    // Refuse too many replays before their list is made.
    let thresholds = args.eviction_threshold.as_deref();
    let dead = distinct(args.dead.iter().map(|&dead| dead.into()));
    let policies = args.policies();
    let thresholds_given = thresholds.map_or(1, <[Share]>::len);
    let counts = [policies.len(), budgets.len(), thresholds_given, dead.len(), args.seeds];
    let replays = counts.iter().fold(1, |all: usize, &of| all.saturating_mul(of));
    if replays > MOST_REPLAYS {
        let [replays, most] = [replays, MOST_REPLAYS].map(|n| HumanCount(n as u64));
        return Err(Failure::usage(format!(
            "{name} would have {replays} replays, but at most {most} are allowed; give fewer policies, budgets, \
             thresholds or --seeds"
        )));
    }
    let grid = Grid {
        policies,
        budgets: in_bytes(&budgets, &mut given.budgets),
        thresholds: thresholds.map_or(vec![None], |shares| {
            in_bytes(shares, &mut given.thresholds).into_iter().map(Some).collect()
        }),
        dead,
        seeds: (0..args.seeds as u64).collect(),
    };
    let replays = grid.replays(&Replay { work: Some(cost), ..like.clone() });
    let least = least_slowdowns(&like, trace, &grid.budgets);
    let job = |replay: Replay| {
        let least_slowdown = least[&replay.budget];
        Job { trace: name, program: trace.program(), unbudgeted, replay, least_slowdown }
    };
    Ok(replays.into_iter().map(job).collect())
}

/// Lower bound on the slowdown of any run for each budget; `None` if no run fits the budget.
fn least_slowdowns(like: &Replay, trace: &Trace, budgets: &[u64]) -> HashMap<u64, Option<f64>> {
    let bounds = like.demand(trace.program()).bounds(budgets, Effort::default());
    let least = bounds.into_iter().map(|bound| bound.ok().map(|bound| 1.0 + bound.excess()));
    budgets.iter().copied().zip(least).collect()
}

/// Runs all replays, with a progress bar on a terminal.
fn replay_all(jobs: &[Job<'_>], args: &SweepArgs) -> Result<Vec<Row>, Failure> {
    let bar = (Shows::now(args.quiet) == Shows::Bars).then(|| {
        let style = "{pos:>6}/{len} {wide_bar} {msg} {eta:>4}";
        let style = ProgressStyle::with_template(style).expect("the template is a constant");
        let bar = ProgressBar::new(jobs.len() as u64).with_style(style.progress_chars("━╸─"));
        BARS.add(bar)
    });
    let done = |row: &Row| {
        if let Some(bar) = &bar {
            bar.set_message(format!("{} by {}", row.trace, row.policy));
            bar.inc(1);
        }
    };
    let rows = muted(|| sweep(jobs, args.jobs.unwrap_or(0), done));
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    Ok(rows?)
}

fn commas(rows: &[Row], ranks: Option<&[u64]>) -> Result<String, Failure> {
    let broken = |error: &dyn std::fmt::Display| {
        Failure::new(format!("the rows cannot be written as CSV: {error}"))
    };
    let mut writer = csv::Writer::from_writer(Vec::new());
    // A line of CSV has no nested values. The times of a step are columns of their own.
    let flat = |row: &Row| Row { step: None, ..row.clone() };
    rows.iter().try_for_each(|row| writer.serialize(flat(row))).map_err(|e| broken(&e))?;
    let bytes = writer.into_inner().map_err(|e| broken(&e))?;
    let text = String::from_utf8(bytes).map_err(|e| broken(&e))?;
    match ranks {
        Some(ranks) => with_times(&text, rows, ranks).map_err(|e| broken(&e)),
        None => Ok(text),
    }
}

/// Adds the columns with the times of a step to the lines of all rows. A row that failed has empty
/// cells.
fn with_times(text: &str, rows: &[Row], ranks: &[u64]) -> Result<String, Box<dyn Error>> {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(text.as_bytes());
    let mut writer = csv::Writer::from_writer(Vec::new());
    let columns =
        |n: &u64| ["step_seconds", "waiting_seconds", "efficiency"].map(|of| format!("{of}_{n}"));
    let mut steps = rows.iter().map(|row| row.step.as_ref());
    for (line, record) in reader.records().enumerate() {
        let mut record = record?;
        if line == 0 {
            record.push_field("step_seconds");
            ranks.iter().flat_map(columns).for_each(|name| record.push_field(&name));
        } else if let Some(step) = steps.next().flatten() {
            record.push_field(&rounded(step.seconds, 9).to_string());
            for on in &step.on_ranks {
                let OnRanks { seconds, waiting_seconds, efficiency, .. } = *on;
                let times = [(seconds, 9), (waiting_seconds, 9), (efficiency, 6)];
                times
                    .iter()
                    .for_each(|&(x, digits)| record.push_field(&rounded(x, digits).to_string()));
            }
        } else {
            (0..1 + 3 * ranks.len()).for_each(|_| record.push_field(""));
        }
        writer.write_record(&record)?;
    }
    Ok(String::from_utf8(writer.into_inner()?)?)
}

/// Panels of the plot: one for each trace. A panel has a line for each combination of policy,
/// threshold and `--dead`. The axis is in bytes if all budgets were given in bytes.
fn panels(rows: &[Row], given: &Given) -> Vec<Panel> {
    let mut panels: Vec<Panel> = Vec::new();
    let labels = Labels::of(rows, given);
    let in_bytes = given.budgets.values().all(|share| matches!(share, Share::Bytes(_)));
    for row in rows {
        let panel = find_or_add(
            &mut panels,
            |p| p.title == row.trace,
            || Panel {
                title: row.trace.clone(),
                full_budget: in_bytes.then_some(row.full_budget_bytes),
                lines: Vec::new(),
            },
        );
        let label = labels.label(row);
        let line = find_or_add(
            &mut panel.lines,
            |l| l.label == label,
            || Line { label: label.clone(), points: Vec::new() },
        );
        line.points.push(Point { budget_ratio: row.budget_ratio, slowdown: row.slowdown });
    }
    // The lower bound is drawn last, above the other lines. Where the line of a policy meets the
    // bound, no policy can be better.
    for panel in &mut panels {
        let of_panel = rows.iter().filter(|row| row.trace == panel.title);
        let points = distinct(of_panel.filter_map(|row| {
            let slowdown = row.least_slowdown?;
            Some(Point { budget_ratio: row.budget_ratio, slowdown: Some(slowdown) })
        }));
        if !points.is_empty() {
            panel.lines.push(Line { label: BOUND.to_owned(), points });
        }
    }
    panels
}

fn find_or_add<T>(list: &mut Vec<T>, is: impl Fn(&T) -> bool, new: impl FnOnce() -> T) -> &mut T {
    let at = list.iter().position(is).unwrap_or_else(|| {
        list.push(new());
        list.len() - 1
    });
    &mut list[at]
}

/// Text about the holes and inversions of a policy on a trace.
fn describe(found: &Feasibility) -> String {
    let Feasibility { trace, policy, dead, budgets, holes, inversions, .. } = found;
    let mut text = format!("{trace} by {policy}, dead {dead}");
    if let Some(threshold) = found.threshold_bytes {
        let _ = write!(text, ", from {}", ByteSize(threshold));
    }
    if found.seed > 0 {
        let _ = write!(text, ", seed {}", found.seed);
    }
    let _ = write!(text, ", {}: ", Counted(*budgets as u64, "budget"));
    let Some(smallest) = found.smallest_ratio else { return text + "none passes" };
    let _ = write!(text, "passes from {:.1} %", 100.0 * smallest);
    let percent = |ratio: f64| format!("{:.1}", 100.0 * ratio);
    let list = |items: Vec<String>| {
        let more = if items.len() > 12 { ", ..." } else { "" };
        format!("{}{more} %", items.into_iter().take(12).collect::<Vec<_>>().join(", "))
    };
    if holes.is_empty() {
        text += "; no holes";
    } else {
        let ranges = holes.iter().map(|&[from, to]| match from == to {
            true => percent(from),
            false => format!("{} to {}", percent(from), percent(to)),
        });
        let _ = write!(text, "; holes: {}", list(ranges.collect()));
    }
    if inversions.is_empty() {
        text += "; more budget never recomputes more";
    } else {
        let (count, worst) = (inversions.len(), found.worst_inversion);
        let places = list(inversions.iter().map(|&ratio| percent(ratio)).collect());
        let count = Counted(count as u64, "inversion");
        let _ = write!(text, "; {count}, the worst by {worst:.4}: {places}");
    }
    text
}
