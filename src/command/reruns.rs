//! Recorded costs of each run of an op or upload.

use super::{Command, RecordedProgram, TensorId};
use crate::sync::atomic::{AtomicUsize, Ordering};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Costs of the later runs of an op or upload. A recording stores the costs of later runs only if
/// one of them differs from the cost of the first run, as measured costs do.
#[derive(Debug)]
pub struct Reruns {
    /// Costs of the runs after the first, in order. The list is never empty.
    costs: Arc<[f64]>,
    /// Number of runs so far, the first included.
    runs: AtomicUsize,
}

impl Reruns {
    /// Makes reruns from the costs of the runs after the first. `None` if the list is empty.
    #[must_use]
    pub fn new(costs: impl Into<Arc<[f64]>>) -> Option<Self> {
        let costs: Arc<[f64]> = costs.into();
        (!costs.is_empty()).then(|| Self { costs, runs: AtomicUsize::new(0) })
    }

    /// Costs of the runs after the first, in order.
    #[must_use]
    pub fn costs(&self) -> &[f64] {
        &self.costs
    }

    /// Lowest cost of a run after the first.
    pub(crate) fn least(&self) -> f64 {
        self.costs.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// Cost of the next run, given the cost `first` of the first run. Counts the run. Each run
    /// after the last recorded run has the cost of the last recorded run.
    pub(crate) fn next(&self, first: f64) -> f64 {
        match self.runs.fetch_add(1, Ordering::Relaxed) {
            0 => first,
            run => self.costs[(run - 1).min(self.costs.len() - 1)],
        }
    }
}

/// A clone counts its runs from 0.
impl Clone for Reruns {
    fn clone(&self) -> Self {
        Self { costs: Arc::clone(&self.costs), runs: AtomicUsize::new(0) }
    }
}

/// Compares only the costs, not the number of runs so far.
impl PartialEq for Reruns {
    fn eq(&self, other: &Self) -> bool {
        self.costs == other.costs
    }
}

/// Reruns in a recording, in order: the restored storages and the costs.
#[derive(Debug, Default)]
pub(crate) struct Regenerations {
    told: Vec<Regeneration>,
    /// Whether the last entry was a rerun.
    goes_on: bool,
}

#[derive(Clone, Copy, Debug)]
struct Regeneration {
    tensor: TensorId,
    cost: f64,
    /// Whether the previous entry was also a rerun.
    follows: bool,
}

impl Regenerations {
    /// Notes that an entry is not a rerun.
    pub const fn interrupt(&mut self) {
        self.goes_on = false;
    }

    /// Adds a storage that was restored.
    pub fn push(&mut self, tensor: TensorId, cost: f64) {
        let follows = std::mem::replace(&mut self.goes_on, true);
        self.told.push(Regeneration { tensor, cost, follows });
    }

    /// Stores the costs of reruns in the ops and uploads of the recorded program.
    pub fn give_to(&self, program: &mut RecordedProgram) {
        if self.told.is_empty() {
            return;
        }
        let makers = makers(program);
        let mut runs: FxHashMap<usize, Vec<f64>> = FxHashMap::default();
        let mut last = None;
        for &Regeneration { tensor, cost, follows } in &self.told {
            let Some(maker) = makers.partition_point(|made| made.0 <= tensor).checked_sub(1) else {
                continue;
            };
            // A run has consecutive entries for the storages that it restored, and the first entry
            // has the run's cost. Two reruns of the same op always have an eviction entry between
            // them.
            if follows && last == Some(maker) {
                continue;
            }
            last = Some(maker);
            runs.entry(maker).or_default().push(cost);
        }
        let commands = program.commands_mut();
        for (maker, costs) in runs {
            let (_, command, call) = makers[maker];
            let (first, reruns) = match &mut commands[command] {
                Command::Put { host, .. } => {
                    let Some(first) = host.cost else { continue };
                    (first, &mut Arc::make_mut(host).reruns)
                }
                other => {
                    let Some(call) = other.calls_mut().get_mut(call) else { continue };
                    (call.op.cost, &mut call.op.reruns)
                }
            };
            // With a deterministic cost model all costs are equal, so no reruns are stored.
            if costs.iter().any(|&cost| cost != first) {
                *reruns = Reruns::new(costs).map(Box::new);
            }
        }
    }
}

/// First output of each upload, call and replacement. With each output come the position of the
/// command, and the position of the call in the command.
fn makers(program: &RecordedProgram) -> Vec<(TensorId, usize, usize)> {
    let mut makers = Vec::new();
    for (at, command) in program.commands().iter().enumerate() {
        match command {
            Command::Put { tensor, .. } | Command::Replace { made: tensor, .. } => {
                makers.push((*tensor, at, 0));
            }
            other => {
                let calls = other.calls().iter().enumerate();
                let calls = calls.filter(|(_, call)| !call.outputs.is_empty());
                makers.extend(calls.map(|(position, call)| (call.made, at, position)));
            }
        }
    }
    makers
}
