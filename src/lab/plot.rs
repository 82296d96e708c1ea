//! Pictures of what the lab found and of training, as SVG text: slowdown over budget, memory over time, loss over steps,
//! blocks over time and address.
//!
//! They are made for print, in black and white, too: lines differ by dash and marker as well as by
//! color, areas by lightness. A picture is 960 px wide; across a page (17 cm) its text is 7 to 8 points.

mod draw;
mod frame;
mod legend;
mod limits;
mod memory;
mod placement;
mod reduce;
mod slowdown;
mod style;
#[cfg(test)]
mod test_xml;
mod ticks;
mod training;

pub(in crate::lab) use ticks::label_of as number;

use super::CostUnit;

/// What one policy did under one budget.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The budget, as a part of the smallest one under which nothing is evicted: 0.4 is 40 %.
    pub budget_ratio: f64,
    /// Cost of the run over its cost without a budget: 1.0 is no recomputation. None: it failed.
    pub slowdown: Option<f64>,
}

/// One policy's points, in any order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    /// The policy's name. Lines with the same label look the same in every panel.
    pub label: String,
    /// Points at the same budget (random seeds) are drawn as their median, with their range: see
    /// [`Spread`](super::Spread).
    pub points: Vec<Point>,
}

/// One trace: a small plot with a line per policy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Panel {
    /// What was run.
    pub title: String,
    /// Bytes of the smallest budget under which nothing is evicted. If all panels have it, the axis shows budgets
    /// in bytes, otherwise in percent.
    pub full_budget: Option<u64>,
    /// One per policy; those with the same label are taken as one.
    pub lines: Vec<Line>,
}

/// The memory of one run, op by op.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    /// What was run, and how.
    pub title: String,
    /// What [`Sample::at`] counts.
    pub unit: CostUnit,
    /// Bytes the run may hold. `u64::MAX` is no limit and is not drawn.
    pub budget: u64,
    /// Budgets that it was given later: from which time on, in order.
    pub budgets: Vec<(f64, u64)>,
    /// Bytes above which the run evicts, where that is below the budget.
    pub threshold: Option<u64>,
    /// The smallest budget under which nothing is evicted, which is drawn as 100 %.
    pub full_budget: Option<u64>,
    /// Why the run ended with the last sample, if it failed there.
    pub failure: Option<String>,
    /// One per op.
    pub samples: Vec<Sample>,
}

/// Memory after one op.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Engine clock: cost of everything run so far.
    pub at: f64,
    /// Bytes in use.
    pub used: u64,
    /// Bytes of evicted storages that the program still holds: what would be in memory as well if nothing
    /// were evicted. Not of those that it has let go, though some may be needed to bring others back.
    pub evicted: u64,
    /// Bytes brought back since the sample before.
    pub regenerated: u64,
}

/// A run of training, step by step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Training {
    /// What was trained, and how.
    pub title: String,
    /// Bytes the run may hold. One far above its peak is not drawn.
    pub budget: Option<u64>,
    /// Most bytes that it holds at once where nothing is evicted, if that is known.
    pub unbudgeted_peak: Option<u64>,
    /// In order.
    pub steps: Vec<TrainingStep>,
    /// Steps after which there was a test, and its loss.
    pub tests: Vec<(usize, f64)>,
}

/// What came of one step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TrainingStep {
    /// Its number, from 1 on.
    pub step: usize,
    /// Where it is not finite, there is no point.
    pub loss: f64,
    /// Most bytes in use up to its end.
    pub peak_bytes: u64,
    /// Bytes in use at its end.
    pub used_bytes: u64,
    /// The cost of what it recomputed over the cost of its work itself.
    pub recomputed: f64,
}

/// Buffers and where they are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Blocks {
    /// What was placed, and by whom.
    pub title: String,
    /// What the instants of time are.
    pub time: String,
    /// Bytes that they take.
    pub size: u64,
    /// Most bytes alive at once.
    pub load: u64,
    /// Bytes that there are, if that is a question.
    pub budget: Option<u64>,
    /// In any order.
    pub blocks: Vec<Block>,
}

/// A buffer and where it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// Its name, which is drawn where there are few of them.
    pub name: String,
    /// What it is to the step; `None` where that is not known.
    pub kind: Option<Kind>,
    /// When it is alive, by the instants.
    pub time: std::ops::Range<u64>,
    /// Its address.
    pub offset: u64,
    /// In bytes.
    pub size: u64,
}

/// What a block is to its step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes of a buffer.
    Class(crate::plan::Class),
    /// What an op needs beside while it runs.
    Workspace,
}

/// Why there is no picture.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlotError {
    /// Not one point or sample with a finite position.
    #[error("there is nothing to plot: no {0}")]
    Nothing(&'static str),
    /// The y axis cannot end there.
    #[error("the highest slowdown to draw must be a number above 1, not {0}")]
    Limit(f64),
}

/// Slowdown over budget: a panel per trace, a line per policy, one legend.
///
/// All panels have the same axes. `limit` is the highest slowdown that is drawn in its place (2.0 suits
/// most); what is above sits at the upper edge, under an arrow head. Where a policy failed, its marker is
/// in the strip "fails" above the plot, in a row of its own. Where only some of several runs failed, a
/// line goes from the best of the others up to the strip, and the median of all is drawn, where a failure counts as the worst. Of markers
/// that would overlap on one line, only some are drawn. Lines that are the same in every panel are drawn
/// once, with all their names in the legend.
///
/// Points whose budget is negative or not finite are left out; a slowdown that is negative or not finite
/// counts as a failure.
///
/// # Errors
///
/// [`PlotError::Nothing`] if no point is left, [`PlotError::Limit`] if `limit` is not above 1 and finite.
///
/// ```
/// use remat::lab::plot::{Line, Panel, Point, slowdown};
/// let points = [(1.0, Some(1.0)), (0.5, Some(1.2)), (0.2, None)]
///     .map(|(budget_ratio, slowdown)| Point { budget_ratio, slowdown })
///     .to_vec();
/// let lines = vec![Line { label: "h_DTR".into(), points }];
/// let panel = Panel { title: "U-Net".into(), lines, full_budget: None };
/// let svg = slowdown(&[panel], 2.0).unwrap();
/// assert!(svg.starts_with("<svg"));
/// ```
pub fn slowdown(panels: &[Panel], limit: f64) -> Result<String, PlotError> {
    slowdown::plot(panels, limit)
}

/// Memory over time: bytes in use, on top of them what is evicted and still held by the program, the
/// budget, and what is brought back. Where the run failed, a cross and the reason are.
///
/// Any number of samples makes a picture below 300 KB: each pixel column keeps its extremes.
/// The last sample's values hold until the end of the picture. Samples whose time is not finite are left
/// out. A budget or threshold far above everything is named but does not stretch the axis.
///
/// # Errors
///
/// [`PlotError::Nothing`] if no sample is left.
///
/// ```
/// use remat::lab::plot::{Sample, Timeline, memory};
/// let samples = (0..100u64)
///     .map(|i| Sample { at: i as f64 * 1e6, used: (i % 10) << 20, evicted: 0, regenerated: 0 })
///     .collect();
/// let budget = 12 << 20;
/// let title = "one step".to_owned();
/// let timeline = Timeline { title, budget, samples, ..Timeline::default() };
/// assert!(memory(&timeline).unwrap().contains("budget"));
/// ```
pub fn memory(timeline: &Timeline) -> Result<String, PlotError> {
    memory::plot(timeline)
}

/// Loss, memory and recomputation over the steps of a run, below each other.
///
/// # Errors
///
/// [`PlotError::Nothing`] if there is no step, or no loss is finite.
///
/// ```
/// use remat::lab::plot::{Training, TrainingStep, training};
/// let step = |step| TrainingStep { step, loss: 1.0 / step as f64, ..TrainingStep::default() };
/// let run = Training { steps: (1..=100).map(step).collect(), ..Training::default() };
/// assert!(training(&run).unwrap().contains("loss"));
/// ```
pub fn training(training: &Training) -> Result<String, PlotError> {
    training::plot(training)
}

/// Blocks over time and address: what is where when, the bytes that are taken, and the load.
///
/// Blocks beside or above each other differ in shade; what they are to their step, in color and lightness. Any number of them
/// makes a picture of a few MB at most: what is thinner than a pixel is drawn as the pixels that it is in.
///
/// # Errors
///
/// [`PlotError::Nothing`] if no block has any bytes.
///
/// ```
/// use remat::lab::plot::{Block, Blocks, placement};
/// let block = |i: u64| Block {
///     name: format!("b{i}"),
///     kind: None,
///     time: i..i + 2,
///     offset: i % 2 * 100,
///     size: 100,
/// };
/// let blocks = Blocks { size: 200, load: 200, blocks: (0..9).map(block).collect(), ..Blocks::default() };
/// assert!(placement(&blocks).unwrap().contains("b8"));
/// ```
pub fn placement(blocks: &Blocks) -> Result<String, PlotError> {
    placement::plot(blocks)
}
