//! Regeneration by a schedule: every run and every eviction is decided before the first run.
//!
//! Regeneration on demand (`regenerate.rs`) decides before each run. If memory is short, a storage
//! that was just restored may be evicted, and must then be restored again. In a deep history, this
//! can happen at every level, so the work can grow exponentially. A regeneration that begins to
//! repeat runs therefore stops, and continues by a schedule, whose work is bounded.
//!
//! A schedule is found by simulating (*rehearsing*) the remaining runs on a copy of the graph
//! ([`Closure`]). In a rehearsal, all later runs and the next read of each value are known. The
//! cost of the schedule is known before the first run.
//!
//! Two orders are rehearsed, because neither is always better: the order in which the program made
//! the values, and depth first. The engine follows the cheaper schedule.

mod closure;
mod rehearsal;

use self::closure::Closure;
use self::rehearsal::rehearse;
use super::{Engine, Error, PathKey, StorageKey};
use crate::device::Device;

/// Runs and evictions in order.
#[derive(Debug)]
pub(super) struct Schedule {
    closure: Closure,
    steps: Vec<Step>,
    /// Number of runs.
    pub runs: usize,
}

/// Step of a schedule. The numbers are indices in the [`Closure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Runs a path whose inputs are all resident.
    Run(u32),
    /// Allows a storage to be evicted from this point of the schedule on. The storage is no longer
    /// needed, or not needed soon.
    Release(u32),
}

impl<D: Device> Engine<D> {
    /// Finds the cheapest schedule that restores `wanted` in the available memory. Returns `None`
    /// if no schedule stays within cost `most` and `most_runs` runs, or if no storage can be
    /// evicted.
    ///
    /// The cost of a run is `planned` of its path; where `planned` returns `None`, it is the path's
    /// cost in the graph. The caller must have released all pins of the regeneration.
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

    /// Follows a schedule. On success, each storage in `wanted` is resident and pinned once. On
    /// failure, no storage is pinned.
    pub(super) fn follow(
        &mut self,
        schedule: &Schedule,
        wanted: &[StorageKey],
    ) -> Result<(), Error> {
        let Schedule { closure, steps, .. } = schedule;
        self.repeats.need(closure.runs.len());
        // Pin the resident storages of the closure, because the schedule needs each of them until
        // its `Release`.
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
