//! Pictures of training and of results of the lab, as SVG text. A picture shows slowdown over
//! budget, memory over time, loss over steps, or blocks over time and address.
//!
//! The pictures can be printed in black and white: lines differ by dash and marker as well as by
//! color, and areas differ by lightness. A picture is 960 px wide. In a picture printed 17 cm wide,
//! text has 7 to 8 points.

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

/// Result of a policy under a budget.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Budget as a share of the smallest budget under which nothing is evicted: 0.4 is 40 %.
    pub budget_ratio: f64,
    /// Cost of the run, divided by its cost without a budget: 1.0 is no recomputation. `None` if
    /// the run failed.
    pub slowdown: Option<f64>,
}

/// Points of a policy, in any order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    /// Name of the policy. Lines with the same label look the same in every panel.
    pub label: String,
    /// Points. Several points at the same budget, from different seeds, are drawn as their median
    /// and their range: see [`Spread`](super::Spread).
    pub points: Vec<Point>,
}

/// Plot of a trace, with one line per policy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Panel {
    /// Name of the program.
    pub title: String,
    /// Bytes of the smallest budget under which nothing is evicted. The axis shows budgets in bytes
    /// if all panels have a full budget, and in percent if not.
    pub full_budget: Option<u64>,
    /// One line per policy. Lines with the same label are merged.
    pub lines: Vec<Line>,
}

/// Memory of a run, op by op.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    /// Name of the program, and the settings of the run.
    pub title: String,
    /// Unit of [`Sample::at`].
    pub unit: CostUnit,
    /// Budget in bytes at the beginning. `u64::MAX` means no budget, and is not drawn.
    pub budget: u64,
    /// Later budgets, in order: the time of the change, and the bytes.
    pub budgets: Vec<(f64, u64)>,
    /// Eviction threshold in bytes, if it is below the budget.
    pub threshold: Option<u64>,
    /// Smallest budget in bytes under which nothing is evicted. The picture shows this budget as
    /// 100 %.
    pub full_budget: Option<u64>,
    /// Reason of the failure, if the run failed at the last sample.
    pub failure: Option<String>,
    /// Samples, in any order.
    pub samples: Vec<Sample>,
}

/// Memory at an instant of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Time of the engine's clock: cost of all runs so far, reruns included.
    pub at: f64,
    /// Bytes in use.
    pub used: u64,
    /// Bytes of evicted storages that the program still holds. Without evictions, the evicted bytes
    /// would also be in memory. Storages that the program has deleted do not count, although some
    /// of them may be needed to regenerate other storages.
    pub evicted: u64,
    /// Bytes regenerated since the sample before.
    pub regenerated: u64,
}

/// A run of training, step by step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Training {
    /// Name of the network, and the settings of the run.
    pub title: String,
    /// Budget in bytes. A budget far above the peak is not drawn.
    pub budget: Option<u64>,
    /// Peak of the bytes in use when nothing is evicted, if known.
    pub unbudgeted_peak: Option<u64>,
    /// Steps, in order.
    pub steps: Vec<TrainingStep>,
    /// Tests of the network: the number of the step before the test, and the loss in the test.
    pub tests: Vec<(usize, f64)>,
}

/// Measurements of one training step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TrainingStep {
    /// Number of the step, from 1.
    pub step: usize,
    /// Loss. Only finite losses are drawn.
    pub loss: f64,
    /// Peak of the bytes in use, from the beginning of the run to the end of the step.
    pub peak_bytes: u64,
    /// Bytes in use at the end of the step.
    pub used_bytes: u64,
    /// Cost of recomputation in this step, divided by the cost of its work.
    pub recomputed: f64,
}

/// Buffers with addresses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Blocks {
    /// Name of the step, and of the planner.
    pub title: String,
    /// Title of the time axis.
    pub time: String,
    /// Size of the placement in bytes.
    pub size: u64,
    /// Load: most bytes alive at the same time.
    pub load: u64,
    /// Budget in bytes; `None` without a budget.
    pub budget: Option<u64>,
    /// Blocks, in any order.
    pub blocks: Vec<Block>,
}

/// A buffer with an address.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// Name of the buffer. Names are drawn only if there are few blocks.
    pub name: String,
    /// Role of the buffer in the step; `None` if unknown.
    pub kind: Option<Kind>,
    /// Range of instants at which the buffer is alive.
    pub time: std::ops::Range<u64>,
    /// Address in bytes.
    pub offset: u64,
    /// Size in bytes.
    pub size: u64,
}

/// Role of a block in the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes of a buffer, by the class of the buffer.
    Class(remat_plan::Class),
    /// Scratch memory of a running op.
    Workspace,
}

/// Reason why no picture is drawn.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlotError {
    /// No point, sample or block can be drawn.
    #[error("nothing to plot: no {0}")]
    Nothing(&'static str),
    /// The requested limit of the y axis is not a finite number above 1.
    #[error("the highest slowdown to draw must be a number above 1, not {0}")]
    Limit(f64),
}

/// Draws slowdown over budget, with one panel per trace, one line per policy, and a common legend.
///
/// All panels have the same axes. `limit` is the highest slowdown that is drawn at its true height;
/// 2.0 suits most traces. Higher slowdowns are drawn at the upper edge of the plot, under an arrow
/// head.
///
/// A failed run is drawn as a marker in the strip "fails" above the plot, which has one row per
/// policy. If some of several runs at a budget failed and some passed, a line goes from the best
/// run up to the strip. The plot shows the median of all runs. A failed run counts as slower than
/// any passing run.
///
/// If markers would overlap on a line, only some of them are drawn. Several lines that are equal in
/// every panel are drawn once, with all their names in the legend.
///
/// Points whose budget is negative or not finite are left out. A slowdown that is negative or not
/// finite counts as a failure.
///
/// # Errors
///
/// [`PlotError::Nothing`] if no point is left, [`PlotError::Limit`] if `limit` is not above 1 and finite.
///
/// ```
/// use remat::unstable::lab::plot::{Line, Panel, Point, slowdown};
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

/// Draws memory over time: the bytes in use, and above them the evicted bytes that the program
/// still holds. The picture also shows the budget and the regenerated bytes. A failure is marked by
/// a cross and its reason.
///
/// The picture is smaller than 300 KB for any number of samples, because only the extremes in each
/// pixel column are drawn. The values of the last sample are drawn up to the right end of the
/// picture. Samples whose time is not finite are left out. A budget or threshold far above all data
/// is named, but does not stretch the axis.
///
/// # Errors
///
/// [`PlotError::Nothing`] if no sample is left.
///
/// ```
/// use remat::unstable::lab::plot::{Sample, Timeline, memory};
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

/// Draws loss, memory and recomputation over the steps of a run, in three plots.
///
/// # Errors
///
/// [`PlotError::Nothing`] if there is no step, or no loss is finite.
///
/// ```
/// use remat::unstable::lab::plot::{Training, TrainingStep, training};
/// let step = |step| TrainingStep { step, loss: 1.0 / step as f64, ..TrainingStep::default() };
/// let run = Training { steps: (1..=100).map(step).collect(), ..Training::default() };
/// assert!(training(&run).unwrap().contains("loss"));
/// ```
pub fn training(training: &Training) -> Result<String, PlotError> {
    training::plot(training)
}

/// Draws blocks over time and address, with the size and the load of the placement.
///
/// Neighbouring blocks differ in shade; roles differ in color and lightness. The picture has at
/// most a few MB for any number of blocks, because blocks thinner than a pixel are drawn as whole
/// pixels.
///
/// # Errors
///
/// [`PlotError::Nothing`] if all blocks have 0 bytes.
///
/// ```
/// use remat::unstable::lab::plot::{Block, Blocks, placement};
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
