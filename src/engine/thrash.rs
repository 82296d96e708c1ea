//! Thrashing: a step recomputes far more than its own work. A step with too many repeated runs
//! fails; the limit is in this file.

use super::{Engine, Error, PathKey, RecomputeLimit};
use crate::device::Device;
use crate::error::RegenerationError;
use crate::event::Event;

/// A step thrashes if its recomputed cost exceeds this multiple of the cost of first runs, in this
/// step or the previous step, whichever is higher.
const MULTIPLE: f64 = 4.0;

/// Number of repeated runs below which no step counts as thrashing. A few repeated runs among the
/// first ops of a program are harmless.
const MIN_OPS: u64 = 256;

/// A step fails when its repeated runs exceed this multiple of its own ops. Without a limit, a step
/// with too little memory would run very long before it fails.
const MOST_TIMES_AGAIN: u64 = 64;

/// Number of repeated runs that every step may have, however small it is. 4096 runs take very
/// little time.
const FEW_AGAIN: u64 = 1 << 12;

/// Numbers of runs in the current step. If the program marks no steps, each read ends a step.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Repeats {
    /// Number of ops run for the first time.
    own: u64,
    /// Value of `own` in the previous step.
    last_own: u64,
    /// Number of repeated runs.
    again: u64,
    /// Number of paths in the largest regeneration. The number matters in a step of few ops that
    /// reads a value with a long history.
    largest: u64,
    /// Whether a read is being executed. Repeated runs for reads do not count: a program may read
    /// any number of times, and the regeneration limit bounds each read.
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

    /// Notes that a regeneration has `paths` paths.
    pub(super) fn need(&mut self, paths: usize) {
        self.largest = self.largest.max(paths as u64);
    }

    /// Fails with [`RegenerationError::StepLimit`] if the step repeated too many runs.
    fn check(&self) -> Result<(), Error> {
        let ops = self.own.max(self.last_own).max(self.largest);
        if self.paused || self.again <= FEW_AGAIN.max(MOST_TIMES_AGAIN * ops) {
            return Ok(());
        }
        let (runs, limit) = (self.again, MOST_TIMES_AGAIN);
        Err(RegenerationError::StepLimit { runs, ops, limit }.into())
    }
}

/// Costs of the current step's runs, in units of the cost model.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StepWork {
    base: f64,
    recomputed: f64,
    recomputed_ops: u64,
    /// Base cost of the previous step.
    last_base: f64,
    thrashes: bool,
    /// Number of evictions because an allocation did not fit, and number of evictions to get below
    /// the eviction threshold.
    evictions: [u64; 2],
}

impl StepWork {
    pub(super) fn did_run(&mut self, cost: f64) {
        self.base += cost;
    }

    /// Adds the cost of a repeated run. Returns whether the step begins to thrash with the run.
    pub(super) fn did_run_again(&mut self, cost: f64) -> bool {
        self.recomputed += cost;
        self.recomputed_ops += 1;
        let limit = MULTIPLE * self.base.max(self.last_base);
        let thrashes = self.recomputed_ops >= MIN_OPS && self.recomputed > limit;
        thrashes && !std::mem::replace(&mut self.thrashes, true)
    }

    /// Counts an eviction, which was made either only for the threshold or for an allocation.
    pub(super) fn did_evict(&mut self, for_threshold: bool) {
        self.evictions[usize::from(for_threshold)] += 1;
    }

    /// Name of the setting that caused most evictions, and that the user should therefore raise.
    fn too_low(&self) -> &'static str {
        let [for_room, for_threshold] = self.evictions;
        if for_threshold > for_room { "eviction threshold" } else { "budget" }
    }

    pub(super) fn next_step(&mut self) {
        *self = Self { last_base: self.base, ..Self::default() };
    }
}

impl<D: Device> Engine<D> {
    /// Accounts for a repeated run of a path. Warns if the step begins to thrash.
    #[inline(never)]
    pub(super) fn account_recompute(&mut self, path: PathKey, cost: f64) {
        self.repeats.did_run_again();
        if self.work.did_run_again(cost) {
            let work = self.work.base.max(self.work.last_base);
            let times = (10.0 * self.work.recomputed / work).round() / 10.0;
            let (step, raise) = (self.step + 1, self.work.too_low());
            if let Some(tape) = &mut self.store.tape {
                // Mark the current turn as unfit for a plan: a turn by plan could not give the
                // warning.
                tape.short.spoil_if(true, "it recomputes several times its own work");
            }
            self.tell(Event::Thrash { step, path, times, raise });
        }
    }

    /// Fails if the recomputation of the current step, or of the whole run so far, exceeds its
    /// limit.
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
