//! Hints for a climb: the gaps of a step in which a simulated run recomputed. A gap is the part of
//! the step between two uses of a value.

use crate::engine::Listener;
use crate::event::Event;
use crate::evict::View;
use crate::step::{NEVER, StepFuture};
use crate::sync::{Mutex, lock};
use remat_rng::SplitMix64;
use std::sync::Arc;

/// Evictions and regenerations of a run, by gap of the step.
#[derive(Debug, Default)]
pub(super) struct Guide {
    /// Gaps in which a value was regenerated. The number of a gap is a running sum: the
    /// regeneration costs of all gaps up to and including this gap.
    regenerated: Vec<(u32, f64)>,
    /// Number of a gap -> whether its value was evicted in the gap.
    evicted: Vec<bool>,
}

impl Guide {
    /// Whether gap `gap` has an eviction.
    pub fn is_evicted(&self, gap: usize) -> bool {
        self.evicted.get(gap).copied().unwrap_or(false)
    }

    /// Draws a gap with a regeneration at random. The probability of a gap is proportional to its
    /// regeneration cost.
    pub fn draw(&self, rng: &mut SplitMix64) -> Option<usize> {
        let (_, all) = *self.regenerated.last()?;
        let at = rng.unit() * all;
        let found = self.regenerated.partition_point(|(_, sum)| *sum <= at);
        self.regenerated.get(found).map(|(gap, _)| *gap as usize)
    }
}

/// Listener that collects the evictions and regenerations of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Log(Arc<Mutex<Heard>>);

#[derive(Debug, Default)]
struct Heard {
    /// Gaps with an eviction.
    evicted: Vec<u32>,
    /// Gaps with a regeneration, each with the cost of the regeneration.
    regenerated: Vec<(u32, f64)>,
}

impl Log {
    /// Summary of all collected events, by gap.
    pub fn guide(&self, step: &StepFuture) -> Guide {
        let heard = lock(&self.0);
        let mut evicted = vec![false; step.gaps()];
        heard.evicted.iter().for_each(|&gap| evicted[gap as usize] = true);
        let mut cost = vec![0.0; step.gaps()];
        heard.regenerated.iter().for_each(|&(gap, of_run)| cost[gap as usize] += of_run);
        let mut sum = 0.0;
        let mut regenerated = Vec::new();
        for (gap, cost) in cost.into_iter().enumerate().filter(|(_, cost)| *cost > 0.0) {
            sum += cost;
            regenerated.push((gap as u32, sum));
        }
        Guide { regenerated, evicted }
    }
}

impl Listener for Log {
    fn on(&mut self, event: &Event, view: View<'_>) {
        let (storage, cost) = match *event {
            Event::DidEvict { storage, .. } => (storage, None),
            Event::DidRegenerate { storage, cost, .. } => (storage, Some(cost)),
            _ => return,
        };
        let Some(foreseen) = view.graph.future().foreseen() else { return };
        let Some(ordinal) = foreseen.ordinal(storage).filter(|ordinal| *ordinal != NEVER) else {
            return;
        };
        let gap = foreseen.step().gap(ordinal, foreseen.at()) as u32;
        let mut heard = lock(&self.0);
        match cost {
            None => heard.evicted.push(gap),
            Some(cost) => heard.regenerated.push((gap, cost)),
        }
    }
}
