//! Where a simulated run lost time, to change something there.

use crate::engine::Listener;
use crate::event::Event;
use crate::evict::View;
use crate::rng::SplitMix64;
use crate::step::{NEVER, StepFuture};
use crate::sync::{Mutex, lock};
use std::sync::Arc;

/// What happened to the gaps of a step in a run.
#[derive(Debug, Default)]
pub(super) struct Guide {
    /// Gaps in which something was brought back, and the sum of what that cost up to each.
    regenerated: Vec<(u32, f64)>,
    /// Gaps in which something was evicted, of all gaps.
    evicted: Vec<bool>,
}

impl Guide {
    /// Whether something was evicted in this gap.
    pub fn is_evicted(&self, gap: usize) -> bool {
        self.evicted.get(gap).copied().unwrap_or(false)
    }

    /// A gap in which something was brought back, the likelier the more that cost.
    pub fn draw(&self, rng: &mut SplitMix64) -> Option<usize> {
        let (_, all) = *self.regenerated.last()?;
        let at = rng.unit() * all;
        let found = self.regenerated.partition_point(|(_, sum)| *sum <= at);
        self.regenerated.get(found).map(|(gap, _)| *gap as usize)
    }
}

/// Listens to a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Log(Arc<Mutex<Heard>>);

#[derive(Debug, Default)]
struct Heard {
    /// Gaps.
    evicted: Vec<u32>,
    regenerated: Vec<(u32, f64)>,
}

impl Log {
    /// What it heard.
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
