//! Counters.

use super::Engine;
use crate::device::Device;
use crate::event::{Cause, Event};

/// What an engine has done so far, and what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Stats {
    /// Hard limit in bytes.
    pub budget_bytes: u64,
    /// Bytes in use now. Between steps that run by plan, a runtime does not count the block of the plan: nothing is in it
    /// then. It is [`plan_bytes`](Self::plan_bytes).
    pub used_bytes: u64,
    /// Bytes of host memory held by copies of what was put, so that it can be evicted, and by hashes. Not part of the budget.
    pub host_bytes: u64,
    /// Those of them that hold hashes of what was evicted: see
    /// [`Settings::verify_recomputed`](super::Settings::verify_recomputed).
    pub hash_bytes: u64,
    /// Most bytes ever in use.
    pub peak_bytes: u64,
    /// With an eviction threshold: most bytes in use that could not be evicted before an op. It cannot be met
    /// below that. 0 without one.
    pub unevictable_bytes: u64,
    /// `(free - largest free) / free`, now.
    pub fragmentation: f64,
    /// Ops run for the first time, uploads included; views not.
    pub ops: u64,
    /// Ops run again.
    pub recomputed_ops: u64,
    /// Bytes that those made, whether they were wanted or not.
    pub recomputed_bytes: u64,
    /// Values made again whose bits were compared with those that were evicted.
    pub verified_values: u64,
    /// With such a check on, values made again that were not compared: those that are not in the sample. And those of which
    /// nothing is known, as the plan of their step was left after they had gone with their last handle, or the device had no
    /// room to look at them.
    pub unverified_values: u64,
    /// Bytes that were hashed for it.
    pub hashed_bytes: u64,
    /// Storages evicted because memory was short or above the threshold, or at the user's wish.
    pub evictions: u64,
    /// Their bytes.
    pub evicted_bytes: u64,
    /// Storages dropped because no tensor looked at them any more, though they may be needed to
    /// recompute others.
    pub fake_deletes: u64,
    /// Times that blocks were moved to make a hole.
    pub compactions: u64,
    /// Bytes moved in doing so.
    pub moved_bytes: u64,
    /// Candidates scored.
    pub score_evaluations: u64,
    /// Most paths that waited for one another in one regeneration.
    pub max_regeneration_depth: usize,
    /// Cost of the ops run for the first time, in units of the cost model.
    pub base_cost: f64,
    /// Cost of the ops run again.
    pub recompute_cost: f64,
    /// Seconds the device spent running ops again, where it can tell; judged by some of them where telling is
    /// not free.
    pub recompute_seconds: f64,
    /// Seconds spent choosing what to evict.
    pub search_seconds: f64,
    /// Steps that recomputed several times their own work; see the `thrash` warning.
    pub thrashed_steps: u64,
    /// Tensors in the table.
    pub tensors: usize,
    /// Storages in the table.
    pub storages: usize,
    /// Compute paths in the table.
    pub paths: usize,
    /// Step marks so far.
    pub steps: u64,
    /// Steps that ran by plan, from the first command to the last.
    pub planned_steps: u64,
    /// Those of them that evicted something, as memory is too short for all they make.
    pub planned_steps_evicting: u64,
    /// Steps that began by plan and went on without, as they were not what was planned.
    pub left_plans: u64,
    /// Evictions that steps by plan had no need of: so many more there were in the same steps when they last ran before they
    /// were planned.
    pub spared_evictions: u64,
    /// Bytes of the largest plan of a step: of the block in which steps run, beside what is there between them.
    pub plan_bytes: u64,
    /// What the step of the largest plan took without it, when it was planned: bytes from the first to the last of its blocks,
    /// holes included, beside what is there between steps. If it evicted then, so that it fits in that.
    pub unplanned_bytes: u64,
    /// Seconds that steps by plan took, each from its first command to its mark: all that the worker waited for its caller or
    /// for the device meanwhile is in them, what the caller does between steps is not.
    pub planned_seconds: f64,
    /// Seconds that the same steps would have taken without a plan: for each, the quickest of the latest of its kind that ran
    /// so, at most 8, without the first of all. Mostly these are three in the beginning of a run, where steps are slow, so that
    /// it is rough, and too much where a step takes less than a millisecond. Steps of a kind of which there are none are in neither.
    pub unplanned_seconds: f64,
    /// Seconds beside that in which a step waited for planners, which work while the step before it runs, and in which what
    /// was done was written into the books as plans were left.
    pub planning_seconds: f64,
    /// Bytes of host memory for what is known of the steps of the program; see the policy `learned`.
    pub learning_bytes: u64,
}

impl Stats {
    pub(super) fn new(budget_bytes: u64) -> Self {
        Self { budget_bytes, ..Self::default() }
    }

    /// Counts what happens.
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
