//! Ops and values as a recording knows them: by their sizes and costs.

use super::{Apply, Command, Program, Reruns};
use crate::cost::{CostModel, Run};
use crate::layout::Layout;
use crate::op::{OpError, Operation, Outputs};
use std::sync::Arc;

/// A command of a recording.
pub type RecordedCommand = Command<RecordedOp, RecordedValue>;

/// A recording, but for its figures of memory.
pub type RecordedProgram = Program<RecordedOp, RecordedValue>;

/// An op that ran. Costs are in the unit of the recording.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct RecordedOp {
    /// Its name.
    pub name: Arc<str>,
    /// All that is needed to make it again, in its own words; see [`Operation::attributes`].
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub attributes: Option<Arc<str>>,
    /// What the first run cost. 0 for views in recordings of this crate.
    pub cost: f64,
    /// Floating-point operations of the run, estimated; `None` where that was not recorded.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub flops: Option<f64>,
    /// Scratch bytes that it used.
    #[cfg_attr(feature = "serde", serde(default))]
    pub workspace: u64,
    /// Whether it may run again.
    pub rematerializable: bool,
    /// What it cost to run it again, where that differs. A recording has it in its [`Entry::Regenerate`](crate::program::Entry::Regenerate)s.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub reruns: Option<Box<Reruns>>,
}

/// A value from the host, without its elements.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct RecordedValue {
    /// What it looks like.
    pub layout: Layout,
    /// What the first upload cost. `None`: it was there before the recording began, and nothing can bring it back.
    pub cost: Option<f64>,
    /// As in [`RecordedOp::reruns`].
    #[cfg_attr(feature = "serde", serde(skip))]
    pub reruns: Option<Box<Reruns>>,
}

impl RecordedProgram {
    /// Ops from a command on, uploads among them, if nothing is recomputed.
    #[must_use]
    pub(crate) fn ops_from(&self, begin: usize) -> u64 {
        let ops = |command: &RecordedCommand| match command {
            Command::Put { .. } => 1,
            command => command.calls().len() as u64,
        };
        self.commands()[begin..].iter().map(ops).sum()
    }
}

/// The cost model of recordings: a run costs what was recorded of it.
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

/// What an op is called that only lets time pass.
const ELAPSE: &str = "elapse";

impl RecordedOp {
    /// An op of this name and cost, which may run again.
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

    /// Time that passes: for a command that reads and makes nothing.
    #[must_use]
    pub fn elapse(cost: f64) -> Self {
        Self { rematerializable: false, ..Self::new(ELAPSE, cost) }
    }

    /// What the next run of this copy costs; it counts as made.
    #[cfg(feature = "lab")]
    pub(crate) fn next_cost(&self) -> f64 {
        self.reruns.as_ref().map_or(self.cost, |reruns| reruns.next(self.cost))
    }
}

impl RecordedValue {
    /// A value of so many bytes, and the cost of its upload.
    #[must_use]
    pub fn new(bytes: u64, cost: f64) -> Self {
        Self { layout: Layout::raw(bytes as usize), cost: Some(cost), reruns: None }
    }

    /// A value of so many bytes that was there before.
    #[must_use]
    pub fn constant(bytes: u64) -> Self {
        Self::there(Layout::raw(bytes as usize))
    }

    /// A value that looks like this, and was there before.
    pub(crate) const fn there(layout: Layout) -> Self {
        Self { layout, cost: None, reruns: None }
    }

    /// What the next upload of this copy costs; it counts as made.
    #[cfg(feature = "lab")]
    pub(crate) fn next_cost(&self) -> f64 {
        let first = self.cost.unwrap_or(0.0);
        self.reruns.as_ref().map_or(first, |reruns| reruns.next(first))
    }
}

impl Apply<RecordedOp> {
    /// Whether it only lets time pass.
    #[must_use]
    pub fn elapses(&self) -> bool {
        self.inputs.is_empty() && self.outputs.is_empty() && &*self.op.name == ELAPSE
    }
}

impl RecordedCommand {
    /// What it costs.
    #[must_use]
    pub fn cost(&self) -> f64 {
        match self {
            Self::Put { host, .. } => host.cost.unwrap_or(0.0),
            _ => self.calls().iter().map(|call| call.op.cost).sum(),
        }
    }
}

impl RecordedProgram {
    /// All ops, in order; time that passes is none.
    pub fn calls(&self) -> impl Iterator<Item = &Apply<RecordedOp>> {
        self.commands().iter().flat_map(Command::calls).filter(|call| !call.elapses())
    }

    /// Ops that run, uploads included and views not, as [`Stats::ops`](crate::Stats::ops) counts them. O(commands).
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

    /// Cost of everything once: the run that nothing is evicted in. O(commands) the first time.
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

    /// Outputs are given where an op is issued, not inferred.
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
