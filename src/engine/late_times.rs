//! Times of runs, for devices that report a run's time only after the run is done.

use super::run::COST_MODEL;
use super::{Engine, Error};
use crate::device::Device;
use crate::guard::{caught, guarded};

/// Run whose time the device will report.
#[derive(Clone, Copy, Debug)]
pub(super) struct Late {
    /// Key of the run for the cost model.
    key: u64,
    /// Cost of the run, if the run repeats an earlier run; `None` for a first run.
    again: Option<f64>,
}

/// Total cost and time of the repeated runs that were timed, from which the time of all repeated
/// runs is estimated.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Recomputed {
    /// Cost of the runs whose time is known.
    cost: f64,
    seconds: f64,
}

impl Recomputed {
    pub(super) fn add(&mut self, cost: f64, seconds: f64) {
        self.cost += cost;
        self.seconds += seconds;
    }

    /// Estimated seconds of all repeated runs, whose total cost is `cost`.
    pub(super) fn seconds(&self, cost: f64) -> f64 {
        if self.cost > 0.0 { self.seconds * (cost / self.cost) } else { self.seconds }
    }
}

/// Number of runs with unknown times at which the engine asks the device for times. A query is not
/// free, so with fewer runs to ask for, the engine asks only once a step.
const MOST_AWAITED: usize = 256;

/// On a device where timing is not free, the engine times one repeated run in `SAMPLE`. The timed
/// run represents the untimed runs.
const SAMPLE: u64 = 8;

impl<D: Device> Engine<D> {
    /// Waits until the device has done all its queued work.
    ///
    /// # Errors
    /// Device errors that were not reported yet.
    pub fn sync(&mut self) -> Result<(), Error> {
        self.working()?;
        let done = guarded("sync", || self.store.device.sync());
        self.take_times();
        done
    }

    /// Whether the next repeated run is timed, as a sample for others.
    pub(super) fn is_sample(&self) -> bool {
        self.stats.recomputed_ops.is_multiple_of(SAMPLE)
    }

    /// Notes that the device will report the time of the last run.
    #[inline(never)]
    pub(super) fn await_time(&mut self, key: u64, again: Option<f64>) {
        self.late.push_back(Late { key, again });
        if self.late.len().is_multiple_of(MOST_AWAITED) {
            self.take_times();
        }
    }

    /// Takes the times that the device has measured so far, and passes them to the cost model.
    pub(super) fn take_times(&mut self) {
        while !self.late.is_empty() {
            let device = &mut self.store.device;
            let seconds = match caught(|| "the device: a time".to_owned(), || device.take_time()) {
                Ok(Some(seconds)) => seconds,
                Ok(None) => return,
                Err(error) => {
                    // After an error, it is unknown which later times belong to which runs.
                    self.late.clear();
                    return self.failures.keep(error);
                }
            };
            // Times come in the order of the runs.
            let Some(Late { key, again }) = self.late.pop_front() else { break };
            if !seconds.is_finite() {
                continue;
            }
            if let Err(error) = caught(COST_MODEL, || self.costs.learn(key, seconds)) {
                self.failures.keep(error);
            }
            if let Some(cost) = again {
                self.recomputed.add(cost, seconds);
            }
        }
    }
}
