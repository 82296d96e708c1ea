use super::super::named::{orders, planners};
use super::super::output::svg;
use super::super::values::{self, Share};
use clap::Args;
use std::path::PathBuf;

/// Place all memory of a step ahead of time
///
/// A step that repeats can be planned: in which order its ops run, what is recomputed, and where
/// each of its buffers is. Shows what planners make of it, beside the load: the most bytes that are
/// alive at once, which no placement is below. Proven: nothing is smaller, for the size is the
/// load, or a search has tried all else.
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

Files of buffers are those of MiniMalloc: a line id,lower,upper,size, and such a line for each buffer. It is alive from \
lower on, up to upper, which is the first instant after. Columns come in any order. There may be start and end (the last \
instant) instead of lower and upper, and further columns alignment, gaps (7-9 12-14: no room then), hint and offset (where \
a search begins). What --csv writes is read, too.

Graphs are JSON: {\"format\": \"remat-graph\", \"version\": 1, \"tensors\": [...], \"ops\": [...]}, with names, bytes, \
inputs, outputs, costs and in-place pairs; the documentation of remat::plan::graph has all keys.

Of a packed file come no more than 64 MiB, or 100 times its size.

Exit codes:
  0    done, planners that refuse included
  1    a file failed
  2    invalid arguments, or nothing fits the budget")]
pub struct PlanArgs {
    /// A recording of `remat train --record`, a log of the DTR paper, a graph (JSON), or a file of
    /// buffers (CSV); plain or gzipped; - is stdin
    #[arg(value_name = "FILE")]
    pub input: PathBuf,

    /// Which step of a recording, from 1 on [default: the last]
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true)]
    pub step: Option<usize>,

    /// In a file of buffers, upper is the last instant at which a buffer is alive, as end always is
    #[arg(long)]
    pub closed: bool,

    /// In which order ops run: names, separated by commas [default: program]
    #[arg(long, value_name = "LIST", value_parser = orders())]
    pub order: Option<Names>,

    /// How buffers are placed: names, separated by commas [default: those that are quick or best]
    ///
    /// nnvm:N and two-level:N take other numbers as well.
    #[arg(long, value_name = "LIST", value_parser = planners())]
    pub reuse: Option<Names>,

    /// Recompute within so much: 40%, 64MiB, ...
    ///
    /// 100% is the load of the program's own order. What is recomputed is found by sqrt and
    /// static-dtr ahead of time, and by runs of the policies learned:portfolio and dtr-eq.
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub budget: Option<Share>,

    /// How long each search for an order or a placement may take, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = values::from_zero::<f64>, allow_hyphen_values = true)]
    pub time: f64,

    /// Write a JSON object a line for each row of the table; - is stdout, names in .gz are
    /// compressed
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Write the best placement as id,lower,upper,size,offset; - is stdout, names in .gz are
    /// compressed
    ///
    /// The smallest; with --budget, that which recomputes least of those that fit. Buffers of a
    /// step have numbers for ids, those of a graph their names where nothing is recomputed, and
    /// workspaces of ops come last. With --closed the columns are id,start,end,size,offset.
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
