use super::super::named::{orders, planners};
use super::super::output::svg;
use super::super::values::{self, Share};
use clap::Args;
use std::path::PathBuf;

/// Place all memory of a step ahead of time
///
/// A plan of a step has the order of the ops, the ops that are recomputed, and an address for each
/// buffer. The table shows the size of each planner's placement, and the load: the most bytes alive
/// at once, which is a lower bound. A proven placement has the smallest possible size: the load, or
/// the result of an exhaustive search.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  remat plan run.jsonl
  remat plan run.jsonl --order all --reuse all --json -
  remat plan run.jsonl --budget 40% --plot blocks.svg
  remat plan buffers.csv --csv placed.csv --plot blocks.svg
  remat plan run.jsonl --graph step.json
  remat plan step.json --order all
  remat train --steps 3 --record - | remat plan -

Files of buffers have the format of MiniMalloc: first the line id,lower,upper,size, then a line for each \
buffer. A buffer is alive from lower on, until just before upper. Columns may be in any order. start and end \
(the last instant) may replace lower and upper. Optional columns are alignment, gaps (7-9 12-14: the buffer \
takes no bytes then), hint and offset (where a search begins). Files that --csv wrote can be read, too.

Graphs are JSON: {\"format\": \"remat-graph\", \"version\": 1, \"tensors\": [...], \"ops\": [...]}, with names, bytes, \
inputs, outputs, costs and in-place pairs; the documentation of remat::unstable::plan::graph has all keys.

A packed file may unpack to 64 MiB, or to 100 times its size if that is more.

Exit codes:
  0    done, even if some planners refuse
  1    a file failed
  2    invalid arguments, or nothing fits the budget")]
pub struct PlanArgs {
    /// A recording of `remat train --record`, a log of the DTR paper, a graph (JSON), or a file of
    /// buffers (CSV); plain or gzipped; - is stdin
    #[arg(value_name = "FILE")]
    pub input: PathBuf,

    /// Step of a recording, counted from 1 [default: the last step]
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true)]
    pub step: Option<usize>,

    /// Read the column upper of a file of buffers as the last instant of a life, as end is read
    #[arg(long)]
    pub closed: bool,

    /// Orders of the ops: names, separated by commas [default: program]
    #[arg(long, value_name = "LIST", value_parser = orders())]
    pub order: Option<Names>,

    /// Planners of addresses: names, separated by commas [default: the quick ones and the best]
    ///
    /// nnvm:N and two-level:N also take numbers that are not listed.
    #[arg(long, value_name = "LIST", value_parser = planners())]
    pub reuse: Option<Names>,

    /// Recompute to fit into this budget: 40%, 64MiB, ...
    ///
    /// 100% is the load in program order. Each schedule of recomputation is by sqrt, static-dtr, or
    /// a simulated run with the policy learned:portfolio or dtr-eq.
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub budget: Option<Share>,

    /// Time limit in seconds for each search for an order or a placement
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = values::from_zero::<f64>, allow_hyphen_values = true)]
    pub time: f64,

    /// Write each row of the table as a line with a JSON object; - is stdout, names in .gz are
    /// compressed
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Write the best placement as id,lower,upper,size,offset; - is stdout, names in .gz are
    /// compressed
    ///
    /// The best placement is the smallest. With --budget, it is the placement within the budget
    /// that recomputes least. Ids are numbers, or the names in a graph if nothing is recomputed.
    /// Workspaces of ops are in the last lines. With --closed the columns are
    /// id,start,end,size,offset.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,

    /// Write the step as a graph, which can be changed by hand and planned again; - is stdout,
    /// names in .gz are compressed
    #[arg(long, value_name = "FILE")]
    pub graph: Option<PathBuf>,

    /// Draw the best placement over time and address as SVG; - is stdout
    #[arg(long, value_name = "FILE", value_parser = svg)]
    pub plot: Option<PathBuf>,
}

/// Names separated by commas. The alias is needed because clap takes a plain `Vec` for an option
/// that may be repeated.
pub type Names = Vec<String>;
