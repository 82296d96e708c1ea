//! `remat plan`: plans the addresses of a step's buffers before the step runs.

mod args;
mod best;
mod budget;
mod case;
mod input;
mod row;

pub use args::PlanArgs;

use self::best::Best;
use self::case::Case;
use self::input::Input;
use self::row::Row;
use super::distinct;
use super::failure::Failure;
use super::output::{self, Output, json_lines};
use super::terminal::{Shows, show};
use super::waiting::Waiting;
use super::words::Counted;
use remat::ByteSize;
use remat::unstable::lab::plot;
use remat::unstable::plan::graph::Graph;
use remat::unstable::plan::order::{self, OrderError, Reach};
use remat::unstable::plan::{self, Capture, Instance, Limits, Lives, Order, Planner};
use std::fmt::Write as _;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Planners that run only if `--reuse` names them, for comparisons. Where one of these planners is
/// best, a planner that runs by default is hardly worse.
const LEFT_OUT: [&str; 9] = [
    "gaps-life",
    "gaps-birth",
    "nnvm",
    "max-block",
    "binary-block",
    "two-level:1",
    "two-level:3",
    "interval-move",
    // The planner `portfolio` already includes `exact`, as its last part.
    "exact",
];

/// Plans, and writes the outputs.
pub fn run(args: &PlanArgs) -> Result<(), Failure> {
    let PlanArgs { json, csv, graph, plot: drawing, .. } = args;
    let outputs = [("--json", json), ("--csv", csv), ("--graph", graph), ("--plot", drawing)];
    distinct::check(&outputs, &distinct::Input::kept([&args.input]))?;
    let create = |path: &Option<_>| path.as_deref().map(Output::create).transpose();
    let (json, csv, drawing) = (create(json)?, create(csv)?, create(drawing)?);
    let graph = create(graph)?;
    let to_stdout =
        [&json, &csv, &graph, &drawing].iter().any(|o| matches!(o, Some(Output::Stdout)));
    let input = Input::read(args)?;
    let name = input.name().to_owned();
    let task = Planning { args, name: &name, waiting: Waiting::new(Shows::now(false)) };
    let mut written = None;
    let done = match input {
        Input::Buffers { instance, .. } => task.buffers(instance),
        Input::Step { capture, which, ids, .. } => {
            written = graph.is_some().then(|| graph_of(&capture, ids.as_deref())).transpose()?;
            task.step(&capture, &which, ids.as_deref())?
        }
    };
    drop(task);
    let rows = Output::deliver_to(json, || json_lines(&done.rows));
    let printed = show(&done.text, to_stdout);
    let best = |option| {
        let nothing = || format!("no planner found a placement, so {option} has no output");
        done.best.as_ref().ok_or_else(|| Failure::new(nothing()))
    };
    let lives = if args.closed { Lives::Closed } else { Lives::HalfOpen };
    let drawn = || plot::placement(&best("--plot")?.blocks(&name)).map_err(output::no_drawing);
    output::all([
        printed,
        rows,
        Output::deliver_to(csv, || best("--csv")?.csv(lives)),
        written.map_or(Ok(()), |text| Output::deliver_to(graph, || Ok(text))),
        Output::deliver_to(drawing, drawn),
    ])
}

/// Text of a step as a JSON graph. `ids` has the names of the step's buffers, if the input named
/// them.
fn graph_of(capture: &Capture, ids: Option<&[String]>) -> Result<String, Failure> {
    let mut text = Vec::new();
    let graph = match ids {
        Some(ids) => Graph::of_capture_with(capture, |buffer| ids[buffer].clone()),
        None => Graph::of_capture(capture),
    };
    let failed = |error: &dyn std::fmt::Display| Failure::new(format!("--graph: {error}"));
    graph.write(&mut text).map_err(|e| failed(&e))?;
    String::from_utf8(text).map_err(|e| failed(&e))
}

/// Results of the cases planned so far.
#[derive(Default)]
struct PlannedCases {
    text: String,
    rows: Vec<Row>,
    best: Option<Best>,
}

/// Options and progress of the command.
struct Planning<'a> {
    args: &'a PlanArgs,
    name: &'a str,
    waiting: Waiting,
}

impl Planning<'_> {
    fn limits(&self) -> Limits {
        // If the number of seconds is too large for a `Duration`, the time is not limited.
        Duration::try_from_secs_f64(self.args.time).map_or(Limits::none(), Limits::within)
    }

    fn buffers(&self, instance: Instance) -> PlannedCases {
        let count = Counted(instance.ids().len() as u64, "buffer");
        let mut done =
            PlannedCases { text: format!("{}: {count}", self.name), ..PlannedCases::default() };
        self.plan(Case::of_buffers(instance), &mut done);
        done
    }

    /// Plans the step in each order, within the budget if a budget is given.
    fn step(
        &self,
        capture: &Capture,
        which: &str,
        ids: Option<&[String]>,
    ) -> Result<PlannedCases, Failure> {
        let own = capture.program();
        let load = own.load();
        let total: u64 = capture.buffers().iter().map(|buffer| buffer.bytes).sum();
        let text = format!(
            "{}, {which}: {}, {}, {} in all; load {} in program order",
            self.name,
            Counted(capture.ops().len() as u64, "op"),
            Counted(capture.buffers().len() as u64, "buffer"),
            ByteSize(total),
            ByteSize(load),
        );
        let mut done = PlannedCases { text, ..PlannedCases::default() };
        let names = self.args.order.clone().unwrap_or_else(|| vec!["program".to_owned()]);
        let mut orders = Vec::new();
        for name in names {
            self.waiting.at(format!("{}: looking for the order {name}", self.name));
            match self.order(capture, &name) {
                Ok(order) => orders.push((name, order)),
                Err(e) => self.refuse(&Case::refused(&name, load), &e.to_string(), &mut done),
            }
        }
        match self.args.budget {
            None => {
                for (name, order) in &orders {
                    match Case::of_order(name, order, load, ids) {
                        Ok(case) => self.plan(case, &mut done),
                        Err(e) => {
                            self.refuse(&Case::refused(name, load), &e.to_string(), &mut done)
                        }
                    }
                }
            }
            Some(share) => self.within(share, &orders, load, &mut done)?,
        }
        Ok(done)
    }

    fn order<'a>(&self, capture: &'a Capture, name: &str) -> Result<Order<'a>, OrderError> {
        let scheduler = order::named(name).expect("the arguments have been checked");
        scheduler.order(capture, Reach::Offline, &self.limits())
    }

    /// Plans a case with each of the planners.
    fn plan(&self, case: Case, done: &mut PlannedCases) {
        let case = Rc::new(case);
        let _ = write!(done.text, "\n{}", case.heading());
        let mut rows = Vec::new();
        for planner in self.planners() {
            let name = planner.name();
            self.waiting.at(format!("{}: planning by {name}", self.name));
            let start = Instant::now();
            let planned = planner.plan(case.lifetimes(), &self.limits());
            let seconds = start.elapsed().as_secs_f64();
            rows.push(Row::new(self.name, &case, &name, seconds, &planned));
            if let Ok(planned) = planned {
                Best::see(&mut done.best, &case, &name, planned.placement);
            }
        }
        let width = rows.iter().map(Row::name_width).max().unwrap_or(0);
        for row in &rows {
            let _ = write!(done.text, "\n  {}", row.line(width));
        }
        done.rows.append(&mut rows);
    }

    /// Adds a row for a case that planners cannot handle, with the reason.
    fn refuse(&self, case: &Case, why: &str, done: &mut PlannedCases) {
        // The text shows only the first line of the reason. The JSON output has all lines of the
        // reason.
        let _ = write!(done.text, "\n{}: {}", case.title(), why.lines().next().unwrap_or_default());
        done.rows.push(Row::refused(self.name, case, why));
    }

    fn planners(&self) -> Vec<Box<dyn Planner>> {
        let Some(names) = &self.args.reuse else {
            let mut planners = plan::all();
            planners.retain(|planner| {
                let name = planner.name();
                let family = name.split(':').next().unwrap_or_default();
                !LEFT_OUT.contains(&&*name) && !LEFT_OUT.contains(&family)
            });
            return planners;
        };
        let named = |name: &String| plan::named(name).expect("the arguments have been checked");
        names.iter().map(named).collect()
    }
}
