//! What something recorded cost each time that it ran.

use super::{Command, RecordedProgram, TensorId};
use crate::sync::atomic::{AtomicUsize, Ordering};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Costs of an op, or of an upload, where those of its later runs differ from that of the first: costs that were measured do.
#[derive(Debug)]
pub struct Reruns {
    /// Of each run after the first, in order; at least one.
    costs: Arc<[f64]>,
    /// Runs so far, the first included.
    runs: AtomicUsize,
}

impl Reruns {
    /// Costs of each run after the first. `None` if there is none.
    #[must_use]
    pub fn new(costs: impl Into<Arc<[f64]>>) -> Option<Self> {
        let costs: Arc<[f64]> = costs.into();
        (!costs.is_empty()).then(|| Self { costs, runs: AtomicUsize::new(0) })
    }

    /// Costs of each run after the first, in order.
    #[must_use]
    pub fn costs(&self) -> &[f64] {
        &self.costs
    }

    /// The least that a run after the first cost.
    pub(crate) fn least(&self) -> f64 {
        self.costs.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// What the next run costs, where the first cost `first`; it counts as made. One that was not recorded costs as much as the
    /// last that was.
    pub(crate) fn next(&self, first: f64) -> f64 {
        match self.runs.fetch_add(1, Ordering::Relaxed) {
            0 => first,
            run => self.costs[(run - 1).min(self.costs.len() - 1)],
        }
    }
}

/// A copy has not run yet.
impl Clone for Reruns {
    fn clone(&self) -> Self {
        Self { costs: Arc::clone(&self.costs), runs: AtomicUsize::new(0) }
    }
}

/// By the costs.
impl PartialEq for Reruns {
    fn eq(&self, other: &Self) -> bool {
        self.costs == other.costs
    }
}

/// The runs that a recording tells of beside its commands, in order: which storages they brought back, and at what cost.
#[derive(Debug, Default)]
pub(crate) struct Regenerations {
    told: Vec<Regeneration>,
    /// Nothing was told since the last of them.
    goes_on: bool,
}

#[derive(Clone, Copy, Debug)]
struct Regeneration {
    tensor: TensorId,
    cost: f64,
    /// Whether nothing was told between the one before and this one.
    follows: bool,
}

impl Regenerations {
    /// Something else was told.
    pub const fn interrupt(&mut self) {
        self.goes_on = false;
    }

    /// A storage was brought back.
    pub fn push(&mut self, tensor: TensorId, cost: f64) {
        let follows = std::mem::replace(&mut self.goes_on, true);
        self.told.push(Regeneration { tensor, cost, follows });
    }

    /// Lets the ops and uploads of the recorded program know what their later runs cost.
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
            // A run tells of all that it brings back, one after the other, and of its cost with the first. To be brought back
            // again, something must have been evicted in between.
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
            // Where a cost model says the same each time, there is nothing to count.
            if costs.iter().any(|&cost| cost != first) {
                *reruns = Reruns::new(costs).map(Box::new);
            }
        }
    }
}

/// The first tensor of each upload, call and replacement, with the position of the command, and of the call in it.
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
