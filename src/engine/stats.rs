//! Statistics of an engine.

use super::Engine;
use crate::device::Device;
use crate::event::{Cause, Event};

/// Counters of an engine: its work so far, and its present contents.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Stats {
    /// Hard limit in bytes.
    pub budget_bytes: u64,
    /// Bytes in use now. Between steps that run by plan, the plan's block holds no values, and a
    /// runtime does not count the block. See [`plan_bytes`](Self::plan_bytes).
    pub used_bytes: u64,
    /// Bytes of host memory for copies of uploads and for hashes of evicted values. The copies of
    /// uploads make it possible to evict uploaded values. Host bytes are not part of the budget.
    pub host_bytes: u64,
    /// Part of `host_bytes` for hashes of evicted values: see
    /// [`Settings::verify_recomputed`](super::Settings::verify_recomputed).
    pub hash_bytes: u64,
    /// Most bytes ever in use.
    pub peak_bytes: u64,
    /// Highest number of bytes that could not be evicted, measured before each op. An eviction
    /// threshold below `unevictable_bytes` cannot be met. The number is 0 if no threshold is set.
    pub unevictable_bytes: u64,
    /// Present share of the free bytes that lie outside the largest hole: `(free - largest free) /
    /// free`.
    pub fragmentation: f64,
    /// Number of ops run for the first time. Uploads count; views do not.
    pub ops: u64,
    /// Number of runs of ops that had run before.
    pub recomputed_ops: u64,
    /// Bytes of all outputs of recomputed ops, including outputs that were not needed.
    pub recomputed_bytes: u64,
    /// Number of recomputed values whose bits were compared with the bits of the evicted value.
    pub verified_values: u64,
    /// Number of recomputed values that were not compared although verification is on. A value is
    /// not compared if it is not in the sample, or if its old bits are unknown. Old bits are
    /// unknown if the device had too little memory to read them. Old bits are also unknown if the
    /// step's plan was left after the value was evicted with its last handle.
    pub unverified_values: u64,
    /// Bytes hashed to verify recomputed values.
    pub hashed_bytes: u64,
    /// Number of storages evicted because memory was short or above the threshold, or at the user's
    /// request.
    pub evictions: u64,
    /// Bytes of the storages that `evictions` counts.
    pub evicted_bytes: u64,
    /// Number of storages evicted when their last handle was dropped. A storage counted here stays
    /// in the table, because other storages may be recomputed from it.
    pub fake_deletes: u64,
    /// Number of compactions: times that blocks were moved to make a hole.
    pub compactions: u64,
    /// Bytes moved by compactions.
    pub moved_bytes: u64,
    /// Number of candidates scored so far.
    pub score_evaluations: u64,
    /// Largest number of paths that waited for one another in one regeneration.
    pub max_regeneration_depth: usize,
    /// Cost of all first runs of ops, in units of the cost model.
    pub base_cost: f64,
    /// Cost of all repeated runs, in units of the cost model.
    pub recompute_cost: f64,
    /// Estimated seconds that the device spent on repeated runs. 0 if the device reports no times.
    /// The number is estimated from a sample if timing is not free.
    pub recompute_seconds: f64,
    /// Seconds spent choosing storages to evict.
    pub search_seconds: f64,
    /// Number of steps that recomputed several times their own work; see [`Event::Thrash`].
    pub thrashed_steps: u64,
    /// Number of tensors in the table.
    pub tensors: usize,
    /// Number of storages in the table.
    pub storages: usize,
    /// Number of compute paths in the table.
    pub paths: usize,
    /// Number of step marks so far.
    pub steps: u64,
    /// Number of steps that ran by plan from the first command to the last.
    pub planned_steps: u64,
    /// Number of steps that ran by plan and evicted storages, because memory does not suffice for
    /// all values of the step.
    pub planned_steps_evicting: u64,
    /// Number of steps that began by plan and continued without it, because a command differed from
    /// the plan.
    pub left_plans: u64,
    /// Number of evictions that plans avoided. For each step by plan, the number grows by the
    /// evictions of the step's last run without a plan, minus the evictions by plan.
    pub spared_evictions: u64,
    /// Bytes of the block lent to the largest plan of a step. Values that stay between steps are
    /// not in a plan's block.
    pub plan_bytes: u64,
    /// Length in bytes of the address range that the step of the largest plan used without a plan.
    /// The range reaches from the first to the last block of the step, holes included. Blocks of
    /// values that stay between steps do not count. If the step evicted storages, it would have
    /// needed a longer range without evictions.
    pub unplanned_bytes: u64,
    /// Seconds of all steps by plan, each measured from its first command to its mark. The time
    /// includes waiting for the caller or the device within a step. The time of the caller between
    /// steps is excluded.
    pub planned_seconds: f64,
    /// Estimated seconds that the steps by plan would have taken without a plan. The estimate for a
    /// kind of step is the shortest time among its latest runs without a plan, of which at most 8
    /// are kept. The first run of each kind of step is not used for the estimate. A kind of step
    /// without a counted run is left out of `unplanned_seconds` and of `planned_seconds`.
    ///
    /// The estimate is rough: often a kind has only three runs without a plan, all from the slow
    /// beginning of the program. For steps of less than a millisecond, the estimate is too high.
    pub unplanned_seconds: f64,
    /// Seconds in which steps waited for planners, or executed commands again in the tables because
    /// a plan was left. Planners work while the previous step runs.
    pub planning_seconds: f64,
    /// Bytes of host memory for knowledge about the program's steps; see the policy `learned`.
    pub learning_bytes: u64,
}

impl Stats {
    pub(super) fn new(budget_bytes: u64) -> Self {
        Self { budget_bytes, ..Self::default() }
    }

    /// Counts an event.
    #[inline(always)]
    pub(super) fn on(&mut self, event: &Event) {
        match *event {
            Event::DidEvict { bytes, cause, .. } if cause.is_chosen() => {
                self.evictions += 1;
                self.evicted_bytes += bytes;
            }
            Event::DidEvict { cause: Cause::Unheld, .. } => self.fake_deletes += 1,
            Event::WillRegenerate { depth, .. } => {
                self.max_regeneration_depth = self.max_regeneration_depth.max(depth);
            }
            Event::DidRun { again: false, cost, .. } => {
                self.ops += 1;
                self.base_cost += cost;
            }
            Event::DidRun { again: true, bytes, cost, .. } => {
                self.recomputed_ops += 1;
                self.recomputed_bytes = self.recomputed_bytes.saturating_add(bytes);
                self.recompute_cost += cost;
            }
            Event::DidMove { bytes, .. } => {
                self.compactions += 1;
                self.moved_bytes += bytes;
            }
            Event::DidSetBudget { bytes } => self.budget_bytes = bytes,
            Event::Thrash { .. } => self.thrashed_steps += 1,
            Event::DidReplay { ops, cost, for_room } => {
                self.ops += ops;
                self.base_cost += cost;
                self.recomputed_ops += for_room.ops;
                self.recomputed_bytes = self.recomputed_bytes.saturating_add(for_room.bytes);
                self.recompute_cost += for_room.cost;
                self.evictions += for_room.evictions;
                self.evicted_bytes += for_room.evicted_bytes;
                self.compactions += for_room.compactions;
                self.moved_bytes += for_room.moved_bytes;
                self.planned_steps_evicting += u64::from(for_room.evictions > 0);
                self.planned_steps += 1;
            }
            Event::DidStep { step, .. } => self.steps = step,
            _ => {}
        }
    }
}

impl<D: Device> Engine<D> {
    /// A snapshot of the counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let (tensors, storages, paths) = self.store.graph.counts();
        let counts = self.verify.as_ref().map(|verify| verify.counts()).unwrap_or_default();
        let hash_bytes = self.verify.as_ref().map_or(0, |verify| verify.host_bytes());
        Stats {
            used_bytes: self.store.space.used(),
            peak_bytes: self.store.space.peak(),
            fragmentation: self.store.space.fragmentation(),
            tensors,
            storages,
            paths,
            host_bytes: self.store.host_bytes + hash_bytes,
            hash_bytes,
            verified_values: counts.verified,
            unverified_values: counts.unverified,
            hashed_bytes: counts.hashed_bytes,
            score_evaluations: self.stats.score_evaluations + self.evictor.score_evaluations(),
            recompute_seconds: self.recomputed.seconds(self.stats.recompute_cost),
            ..self.stats
        }
    }
}
