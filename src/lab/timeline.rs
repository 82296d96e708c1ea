//! Memory over time, from a replay.

use super::plot::{Sample, Timeline};
use super::program::Program;
use super::replay::{Outcome, Replay};
use crate::engine::Residence;
use crate::error::Error;

/// More samples than this show nothing more.
const SAMPLES: usize = 20_000;

impl Replay {
    /// Runs `program`, and notes how memory is used meanwhile, for [`plot::memory`](super::plot::memory).
    ///
    /// # Errors
    /// If the settings make no sense. A run that fails is an outcome.
    pub fn run_with_timeline(
        &self,
        program: &Program,
        title: &str,
    ) -> Result<(Outcome, Timeline), Error> {
        let every = program.instructions().len().div_ceil(SAMPLES).max(1);
        let mut samples = Vec::new();
        // Of the instructions since the last sample.
        let mut most_used = 0;
        let mut regenerated = 0;
        let outcome = self.run_watched(program, |at, engine| {
            let stats = engine.stats();
            most_used = most_used.max(stats.used_bytes);
            if at % every != 0 && at + 1 < program.instructions().len() {
                return;
            }
            let storages = engine.table().storages();
            let evicted = storages.filter(|(_, s)| s.residence == Residence::Evicted);
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
            time_unit: program.unit().to_owned(),
            budget: self.settings.budget,
            threshold: self.settings.eviction_threshold,
            samples,
        };
        Ok((outcome, timeline))
    }
}
