//! Memory over time, from a replay.

use super::Trace;
use super::plot::{Sample, Timeline};
use super::replay::{Outcome, Replay, Status};
use super::unbudgeted::Unbudgeted;
use crate::error::{Error, RegenerationError};
use crate::graph::Residence;

/// Limit on the number of samples. More samples would not visibly change a plot.
const SAMPLES: usize = 20_000;

impl Replay {
    /// Runs a trace and samples the memory, for [`plot::memory`](super::plot::memory).
    ///
    /// # Errors
    /// An error if the settings are invalid. A run that fails is an outcome, not an error.
    pub fn run_with_timeline(
        &self,
        trace: &Trace,
        unbudgeted: Unbudgeted,
        title: &str,
    ) -> Result<(Outcome, Timeline), Error> {
        let program = trace.program();
        let every = program.commands().len().div_ceil(SAMPLES).max(1);
        let (mut samples, mut budgets) = (Vec::new(), Vec::new());
        let mut budget = self.budget;
        // `most_used` and `regenerated` cover the commands since the last sample.
        let mut most_used = 0;
        let mut regenerated = 0;
        let outcome = self.run_watched(program, |at, done, engine| {
            let stats = engine.stats();
            most_used = most_used.max(stats.used_bytes);
            if std::mem::replace(&mut budget, stats.budget_bytes) != stats.budget_bytes {
                budgets.push((stats.base_cost + stats.recompute_cost, stats.budget_bytes));
            }
            if at % every != 0 && at + 1 < program.commands().len() && done {
                return;
            }
            let held = engine.graph().storages().filter(|(_, s)| s.handles > 0);
            let evicted = held.filter(|(_, s)| s.residence == Residence::Evicted);
            samples.push(Sample {
                at: stats.base_cost + stats.recompute_cost,
                used: most_used,
                evicted: evicted.map(|(_, s)| s.bytes).sum(),
                regenerated: stats.recomputed_bytes - regenerated,
            });
            (most_used, regenerated) = (0, stats.recomputed_bytes);
        })?;
        let timeline = Timeline {
            title: title.to_owned(),
            unit: self.unit(trace.unit()),
            budget: self.budget,
            budgets,
            threshold: self.settings.eviction_threshold,
            full_budget: Some(unbudgeted.full_budget),
            failure: failure(&outcome.status),
            samples,
        };
        Ok((outcome, timeline))
    }
}

/// Reason of a failed run, in a few words.
fn failure(status: &Status) -> Option<String> {
    match status {
        Status::Done => None,
        Status::Failed { error: Error::OutOfMemory(error), .. } => {
            Some(format!("out of memory: {}", error.op))
        }
        Status::Failed { error: Error::Regeneration(e), .. }
            if matches!(**e, RegenerationError::RecomputeLimit { .. }) =>
        {
            Some("recomputed more than the limit".to_owned())
        }
        Status::Failed { .. } => Some("failed".to_owned()),
    }
}
