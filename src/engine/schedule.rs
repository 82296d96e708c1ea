//! Regenerating by a schedule: every run and every eviction is decided before the first run.
//!
//! Regenerating on demand (`regenerate.rs`) decides as it goes. Where memory is short it may evict what it
//! has just brought back, bring that back again, and so on, at every level of a deep history: its work can
//! grow exponentially. When a regeneration begins to repeat itself, it stops and follows a schedule. A schedule
//! is found by rehearsing the rest on a copy of the graph ([`Closure`]), where each run that still has to
//! come is known, and so is when each value will be read next. Its cost is known before anything runs.
//!
//! Two orders are rehearsed, for neither is always better: the order in which the program made the values,
//! and depth first. The cheaper schedule is followed.

mod closure;
mod rehearsal;

use self::closure::Closure;
use self::rehearsal::rehearse;
use super::{Engine, Error, PathKey, StorageKey};
use crate::device::Device;

/// What to run and what to let go, in order.
#[derive(Debug)]
pub(super) struct Schedule {
    closure: Closure,
    steps: Vec<Step>,
    /// Number of runs.
    pub runs: usize,
}

/// One step of a schedule. Numbers are those of the [`Closure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Runs a path whose inputs are all there.
    Run(u32),
    /// A storage is not needed any more, or not for long: it may be evicted from here on.
    Release(u32),
}

impl<D: Device> Engine<D> {
    /// The cheapest schedule found that brings `wanted` back in the memory there is. `None` if none was
    /// found that costs no more than `most` and runs no more than `most_runs` paths, or nothing can be
    /// evicted.
    ///
    /// Runs cost what was `planned`, where that is known. Nothing may be pinned on behalf of this regeneration.
    pub(super) fn schedule(
        &self,
        wanted: &[StorageKey],
        planned: impl Fn(PathKey) -> Option<f64>,
        most: f64,
        most_runs: usize,
    ) -> Option<Schedule> {
        if !self.evicts {
            return None;
        }
        let mut closure = self.closure(wanted);
        for run in &mut closure.runs {
            run.cost = planned(run.path).unwrap_or(run.cost);
        }
        let room = self.store.space.free_bytes() + self.store.evictable_bytes();
        let mut best: Option<(Vec<Step>, f64, usize)> = None;
        for order in [closure.order_of_creation(), closure.order_of_depth()] {
            let most = best.as_ref().map_or(most, |(_, cost, _)| *cost);
            let found = rehearse(&closure, &order, room, most, most_runs);
            if let Some(found) = found.filter(|(_, cost, _)| best.is_none() || *cost < most) {
                best = Some(found);
            }
        }
        let (steps, _, runs) = best?;
        Some(Schedule { closure, steps, runs })
    }

    /// Follows a schedule: `wanted` is resident then, and each pinned once. If it fails, none is pinned.
    pub(super) fn follow(
        &mut self,
        schedule: &Schedule,
        wanted: &[StorageKey],
    ) -> Result<(), Error> {
        let Schedule { closure, steps, .. } = schedule;
        self.repeats.need(closure.runs.len());
        // What the schedule counts on is pinned until the schedule lets it go.
        let mut pinned = vec![false; closure.storages.len()];
        for node in closure.resident() {
            self.store.pin(closure.storages[node as usize].key);
            pinned[node as usize] = true;
        }
        let mut result = Ok(());
        for &step in steps {
            match step {
                Step::Release(node) => {
                    if std::mem::take(&mut pinned[node as usize]) {
                        self.release_pin(closure.storages[node as usize].key);
                    }
                }
                Step::Run(run) => {
                    let run = &closure.runs[run as usize];
                    self.touch(&self.store.graph.inputs_of(run.path));
                    let absent = run.outputs.iter().any(|&node| {
                        self.store.graph.held(closure.storages[node as usize].key).is_none()
                    });
                    if absent {
                        result = self.check_interrupt().and_then(|()| self.run_path(run.path));
                        result = result.and_then(|()| self.check_recompute_limits());
                        if result.is_err() {
                            break;
                        }
                    }
                    for &node in &run.outputs {
                        if !std::mem::replace(&mut pinned[node as usize], true) {
                            self.store.pin(closure.storages[node as usize].key);
                        }
                    }
                }
            }
        }
        if result.is_ok() {
            wanted.iter().for_each(|&key| self.store.pin(key));
        }
        for (node, _) in pinned.into_iter().enumerate().filter(|(_, pinned)| *pinned) {
            self.release_pin(closure.storages[node].key);
        }
        result
    }
}
