//! Statistics of an engine.

use super::Engine;
use crate::device::Device;
use crate::event::{Cause, Event};

/// Counters of an engine: work so far, and present contents.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Stats {
    /// Hard limit in bytes.
    pub budget_bytes: u64,
    /// Bytes in use now. Between steps that run by plan, the block of the plan holds nothing, and a
    /// runtime does not count it. See [`plan_bytes`](Self::plan_bytes).
    pub used_bytes: u64,
    /// Bytes of host memory for copies of uploads, kept so that uploads can be evicted, and for
    /// hashes of evicted values. Not part of the budget.
    pub host_bytes: u64,
    /// Part of `host_bytes` for hashes of evicted values: see
    /// [`Settings::verify_recomputed`](super::Settings::verify_recomputed).
    pub hash_bytes: u64,
    /// Most bytes ever in use.
    pub peak_bytes: u64,
    /// Largest number of bytes that could not be evicted before an op. An eviction threshold below
    /// this number cannot be met. 0 without a threshold.
    pub unevictable_bytes: u64,
    /// `(free - largest free) / free`, now.
    pub fragmentation: f64,
    /// Ops run for the first time. Uploads count, views do not.
    pub ops: u64,
    /// Runs of ops that had run before.
    pub recomputed_ops: u64,
    /// Bytes of all outputs of the ops run again, including outputs that were not needed.
    pub recomputed_bytes: u64,
    /// Recomputed values whose bits were compared with the evicted value.
    pub verified_values: u64,
    /// Recomputed values that were not compared, while such a check is on: values that are not in
    /// the sample, and values whose bits are not known. Bits are unknown if the device had no room
    /// to look at them. Bits are also unknown if the step's plan was left after the value was
    /// evicted with its last handle.
    pub unverified_values: u64,
    /// Bytes hashed to verify recomputed values.
    pub hashed_bytes: u64,
    /// Storages evicted because memory was short or above the threshold, or at the user's wish.
    pub evictions: u64,
    /// Bytes of the storages that `evictions` counts.
    pub evicted_bytes: u64,
    /// Storages evicted when their last handle was dropped. Such storages stay in the table, since
    /// others may need them to be recomputed.
    pub fake_deletes: u64,
    /// Number of compactions: times that blocks were moved to make a hole.
    pub compactions: u64,
    /// Bytes moved by compactions.
    pub moved_bytes: u64,
    /// Candidates scored so far.
    pub score_evaluations: u64,
    /// Largest number of paths that waited for one another in one regeneration.
    pub max_regeneration_depth: usize,
    /// Cost of the ops run for the first time, in units of the cost model.
    pub base_cost: f64,
    /// Cost of the repeated runs, in units of the cost model.
    pub recompute_cost: f64,
    /// Estimated seconds that the device spent running ops again. 0 if the device cannot tell;
    /// based on a sample where timing is not free.
    pub recompute_seconds: f64,
    /// Seconds spent choosing what to evict.
    pub search_seconds: f64,
    /// Steps that recomputed several times their own work; see [`Event::Thrash`].
    pub thrashed_steps: u64,
    /// Tensors in the table.
    pub tensors: usize,
    /// Storages in the table.
    pub storages: usize,
    /// Compute paths in the table.
    pub paths: usize,
    /// Step marks so far.
    pub steps: u64,
    /// Steps that ran by plan from the first command to the last.
    pub planned_steps: u64,
    /// Steps by plan that evicted storages, because memory is too short for all values of the step.
    pub planned_steps_evicting: u64,
    /// Steps that began by plan and went on without it, because a command differed from the plan.
    pub left_plans: u64,
    /// Evictions spared by plans: for each step by plan, the evictions of the same step in its last
    /// run without a plan, minus the evictions by plan.
    pub spared_evictions: u64,
    /// Bytes of the block lent to the largest plan of a step. Values that stay between steps are
    /// not in this block.
    pub plan_bytes: u64,
    /// Bytes that the step of the largest plan was spread over without a plan. Counted from the
    /// first to the last of its blocks, with holes, without values that stay between steps. If the
    /// step evicted, it fitted in these bytes by evicting.
    pub unplanned_bytes: u64,
    /// Seconds of steps by plan, each from its first command to its mark. Includes waits of the
    /// worker for its caller or the device. Excludes the time of the caller between steps.
    pub planned_seconds: f64,
    /// Estimated seconds that the same steps would have taken without a plan. The estimate for a
    /// kind of step is the quickest of its latest runs without a plan: at most 8, without the very
    /// first. Steps of a kind without such runs are left out here and in `planned_seconds`.
    ///
    /// The estimate is rough, since often only three such runs exist, from the slow beginning of a
    /// run. For steps of less than a millisecond, the estimate is too high.
    pub unplanned_seconds: f64,
    /// Seconds in which steps waited for planners, or redid commands in the tables because a plan
    /// was left. Planners work while the step before runs.
    pub planning_seconds: f64,
    /// Bytes of host memory for what is known about the program's steps; see the policy `learned`.
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
