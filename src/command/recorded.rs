//! Ops and values of a recording: sizes and costs, without kernels or elements.

use super::{Apply, Command, Program, Reruns};
use crate::cost::{CostModel, Run};
use crate::layout::Layout;
use crate::op::{OpError, Operation, Outputs};
use std::sync::Arc;

/// A command of a recording.
pub type RecordedCommand = Command<RecordedOp, RecordedValue>;

/// The commands of a recording, without the recording's memory events.
pub type RecordedProgram = Program<RecordedOp, RecordedValue>;

/// An op that ran. Costs are in the unit of the recording's cost model.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct RecordedOp {
    /// Name of the op.
    pub name: Arc<str>,
    /// Text from which the op can be reconstructed; see [`Operation::attributes`].
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub attributes: Option<Arc<str>>,
    /// Cost of the first run. 0 for views in recordings of this crate.
    pub cost: f64,
    /// Estimated floating-point operations of a run; `None` if not recorded.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub flops: Option<f64>,
    /// Workspace of a run in bytes.
    #[cfg_attr(feature = "serde", serde(default))]
    pub workspace: u64,
    /// Whether the op may run again.
    pub rematerializable: bool,
    /// Costs of the runs after the first, if any differs from `cost`. The file of a recording has
    /// the costs of later runs in its [`Entry::Regenerate`](crate::program::Entry::Regenerate)s.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub reruns: Option<Box<Reruns>>,
}

/// A host value without its elements.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct RecordedValue {
    /// Layout of the value.
    pub layout: Layout,
    /// Cost of the first upload. `None` for a value that existed before the recording began, and
    /// that therefore cannot be recomputed.
    pub cost: Option<f64>,
    /// Costs of later uploads, as in [`RecordedOp::reruns`].
    #[cfg_attr(feature = "serde", serde(skip))]
    pub reruns: Option<Box<Reruns>>,
}

impl RecordedProgram {
    /// Number of ops and uploads in the commands from position `begin` on, each counted once.
    #[must_use]
    pub(crate) fn ops_from(&self, begin: usize) -> u64 {
        let ops = |command: &RecordedCommand| match command {
            Command::Put { .. } => 1,
            command => command.calls().len() as u64,
        };
        self.commands()[begin..].iter().map(ops).sum()
    }
}

/// The cost model of recordings, in which the cost of a run is the recorded cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecordedCosts;

impl CostModel for RecordedCosts {
    fn name(&self) -> &str {
        "recorded"
    }

    fn cost(&mut self, run: Run<'_>) -> f64 {
        run.seconds.unwrap_or(0.0)
    }
}

/// Name of the pseudo-op that only advances the clock.
const ELAPSE: &str = "elapse";

impl RecordedOp {
    /// Makes a rematerializable op of the given name and cost.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, cost: f64) -> Self {
        let name = name.into();
        Self {
            name,
            attributes: None,
            cost,
            flops: None,
            workspace: 0,
            rematerializable: true,
            reruns: None,
        }
    }

    /// Makes a pseudo-op that only advances the clock, for a recorded command without inputs and
    /// outputs.
    #[must_use]
    pub fn elapse(cost: f64) -> Self {
        Self { rematerializable: false, ..Self::new(ELAPSE, cost) }
    }

    /// Cost of the op's next run. Each call of this method counts as one run. A clone of the op
    /// counts its runs from 0.
    #[cfg(feature = "lab")]
    pub(crate) fn next_cost(&self) -> f64 {
        self.reruns.as_ref().map_or(self.cost, |reruns| reruns.next(self.cost))
    }
}

impl RecordedValue {
    /// Makes a value of `bytes` bytes, with the cost of its upload.
    #[must_use]
    pub fn new(bytes: u64, cost: f64) -> Self {
        Self { layout: Layout::raw(bytes as usize), cost: Some(cost), reruns: None }
    }

    /// Makes a value of `bytes` bytes that existed before the recording began.
    #[must_use]
    pub fn constant(bytes: u64) -> Self {
        Self::there(Layout::raw(bytes as usize))
    }

    /// Makes a value with the layout `layout` that existed before the recording began.
    pub(crate) const fn there(layout: Layout) -> Self {
        Self { layout, cost: None, reruns: None }
    }

    /// Cost of the value's next upload. Each call of this method counts as one upload.
    #[cfg(feature = "lab")]
    pub(crate) fn next_cost(&self) -> f64 {
        let first = self.cost.unwrap_or(0.0);
        self.reruns.as_ref().map_or(first, |reruns| reruns.next(first))
    }
}

impl Apply<RecordedOp> {
    /// Whether the op only advances the clock.
    #[must_use]
    pub fn elapses(&self) -> bool {
        self.inputs.is_empty() && self.outputs.is_empty() && &*self.op.name == ELAPSE
    }
}

impl RecordedCommand {
    /// Recorded cost of the command.
    #[must_use]
    pub fn cost(&self) -> f64 {
        match self {
            Self::Put { host, .. } => host.cost.unwrap_or(0.0),
            _ => self.calls().iter().map(|call| call.op.cost).sum(),
        }
    }
}

impl RecordedProgram {
    /// All ops in order, except the pseudo-ops that only advance the clock.
    pub fn calls(&self) -> impl Iterator<Item = &Apply<RecordedOp>> {
        self.commands().iter().flat_map(Command::calls).filter(|call| !call.elapses())
    }

    /// Number of runs, counted like [`Stats::ops`](crate::Stats::ops): uploads are included, views
    /// are not. O(commands).
    #[must_use]
    pub fn ops(&self) -> usize {
        let runs = |call: &&Apply<RecordedOp>| {
            !call.elapses() && !matches!(call.outputs, Outputs::Views(_))
        };
        let ops = |command: &RecordedCommand| match command {
            Command::Put { .. } => 1,
            command => command.calls().iter().filter(runs).count(),
        };
        self.commands().iter().map(ops).sum()
    }

    /// Cost of running all commands once, without evictions. The first call takes O(commands).
    #[must_use]
    pub fn base_cost(&self) -> f64 {
        let sum = || self.commands().iter().fold(0.0, |sum, command| sum + command.cost());
        *self.cost.get_or_init(sum)
    }

    /// Whether the flops of all ops are recorded.
    #[must_use]
    pub fn has_flops(&self) -> bool {
        self.calls().all(|call| call.op.flops.is_some())
    }
}

impl Operation for RecordedOp {
    fn name(&self) -> &str {
        &self.name
    }

    /// Always fails, because the outputs of a recorded op are stored and cannot be inferred.
    fn infer(&self, _inputs: &[Layout]) -> Result<Outputs, OpError> {
        Err(OpError::new(&*self.name, "a recording tells what its ops make"))
    }

    fn flops(&self, _inputs: &[Layout], _outputs: &[Layout]) -> f64 {
        self.flops.unwrap_or(0.0)
    }

    fn rematerializable(&self) -> bool {
        self.rematerializable
    }
}
