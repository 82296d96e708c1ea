//! Thrashing: recomputing far more than the work itself; and steps that are given up because of it.

use super::{Engine, Error, PathKey, RecomputeLimit};
use crate::device::Device;
use crate::error::RegenerationError;
use crate::event::Event;

/// A step thrashes once it has recomputed this many times the cost of its own work, or of the step
/// before if that was more.
const MULTIPLE: f64 = 4.0;

/// And has run at least this many ops again, so that the first ops of a program do not count.
const MIN_OPS: u64 = 256;

/// A step that has run more than this many times its own ops again is given up: it would crawl, and fail in the end.
const MOST_TIMES_AGAIN: u64 = 64;

/// But a small step may run so many again: they are done in no time.
const FEW_AGAIN: u64 = 1 << 12;

/// Runs of the step at hand. Without marks, a step ends with each read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Repeats {
    /// Ops that ran for the first time.
    own: u64,
    /// `own` of the step before.
    last_own: u64,
    /// Ops that ran again.
    again: u64,
    /// Paths of the largest regeneration: a step that makes little may read what takes many ops to restore.
    largest: u64,
    /// Whether a read is at hand. Its runs are not counted: a program may read as often as it likes, and the regeneration
    /// limit bounds each read.
    paused: bool,
}

impl Repeats {
    pub(super) fn next_step(&mut self) {
        if self.own > 0 {
            self.last_own = self.own;
        }
        (self.own, self.again, self.largest) = (0, 0, 0);
    }

    pub(super) fn pause(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// Counts ops that ran for the first time.
    pub(super) fn did_run(&mut self, ops: u64) {
        self.own += ops;
    }

    fn did_run_again(&mut self) {
        self.again += u64::from(!self.paused);
    }

    /// A regeneration has so many paths.
    pub(super) fn need(&mut self, paths: usize) {
        self.largest = self.largest.max(paths as u64);
    }

    /// The error of a step that ran too much again.
    fn check(&self) -> Result<(), Error> {
        let ops = self.own.max(self.last_own).max(self.largest);
        if self.paused || self.again <= FEW_AGAIN.max(MOST_TIMES_AGAIN * ops) {
            return Ok(());
        }
        let (runs, limit) = (self.again, MOST_TIMES_AGAIN);
        Err(RegenerationError::StepLimit { runs, ops, limit }.into())
    }
}

/// The work of the step at hand, in units of the cost model.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StepWork {
    base: f64,
    recomputed: f64,
    recomputed_ops: u64,
    /// Base cost of the step before.
    last_base: f64,
    thrashes: bool,
    /// Evictions because an allocation did not fit, and to get below the eviction threshold.
    evictions: [u64; 2],
}

impl StepWork {
    pub(super) fn did_run(&mut self, cost: f64) {
        self.base += cost;
    }

    /// Whether the step began to thrash with this.
    pub(super) fn did_run_again(&mut self, cost: f64) -> bool {
        self.recomputed += cost;
        self.recomputed_ops += 1;
        let limit = MULTIPLE * self.base.max(self.last_base);
        let thrashes = self.recomputed_ops >= MIN_OPS && self.recomputed > limit;
        thrashes && !std::mem::replace(&mut self.thrashes, true)
    }

    /// Whether it was `for_threshold` only.
    pub(super) fn did_evict(&mut self, for_threshold: bool) {
        self.evictions[usize::from(for_threshold)] += 1;
    }

    /// What should be raised.
    fn too_low(&self) -> &'static str {
        let [for_room, for_threshold] = self.evictions;
        if for_threshold > for_room { "eviction threshold" } else { "budget" }
    }

    pub(super) fn next_step(&mut self) {
        *self = Self { last_base: self.base, ..Self::default() };
    }
}

impl<D: Device> Engine<D> {
    /// A path ran again.
    #[inline(never)]
    pub(super) fn account_recompute(&mut self, path: PathKey, cost: f64) {
        self.repeats.did_run_again();
        if self.work.did_run_again(cost) {
            let work = self.work.base.max(self.work.last_base);
            let times = (10.0 * self.work.recomputed / work).round() / 10.0;
            let (step, raise) = (self.step + 1, self.work.too_low());
            if let Some(tape) = &mut self.store.tape {
                // The warning comes in each turn.
                tape.short.spoil_if(true, "it recomputes several times its own work");
            }
            self.tell(Event::Thrash { step, path, times, raise });
        }
    }

    /// Fails if the step at hand, or everything so far, recomputes more than it may.
    pub(super) fn check_recompute_limits(&self) -> Result<(), Error> {
        self.repeats.check()?;
        let (cost, work) = (self.stats.recompute_cost, self.stats.base_cost);
        match self.settings.recompute_limit {
            Some(RecomputeLimit::Multiple(limit)) if cost > limit * work => {
                Err(RegenerationError::RecomputeLimit { ratio: cost / work, limit }.into())
            }
            Some(RecomputeLimit::Cost(limit)) if cost > limit => {
                Err(RegenerationError::RecomputeCost { cost, limit }.into())
            }
            _ => Ok(()),
        }
    }
}
