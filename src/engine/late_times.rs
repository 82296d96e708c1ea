//! Times of runs on a device that reports them only later, when it has done the runs.

use super::run::COST_MODEL;
use super::{Engine, Error};
use crate::device::Device;
use crate::guard::{caught, guarded};

/// Run whose time the device will report.
#[derive(Clone, Copy, Debug)]
pub(super) struct Late {
    /// Key of the run for the cost model.
    key: u64,
    /// Cost of the run, if the run repeats an earlier one; `None` for a first run.
    again: Option<f64>,
}

/// Cost and time of the repeated runs that were timed, to estimate the time of all repeated runs.
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

    /// Estimated seconds of all repeated runs, which cost `cost`.
    pub(super) fn seconds(&self, cost: f64) -> f64 {
        if self.cost > 0.0 { self.seconds * (cost / self.cost) } else { self.seconds }
    }
}

/// Number of awaited times after which the device is asked for them. Asking is not free: with fewer
/// awaited times, the device is asked only once a step.
const MOST_AWAITED: usize = 256;

/// Number of repeated runs per timed one, on a device where timing is not free. The timed run
/// stands for the others.
const SAMPLE: u64 = 8;

impl<D: Device> Engine<D> {
    /// Waits until the device has done everything asked of it.
    ///
    /// # Errors
    /// Device errors that were not reported yet.
    pub fn sync(&mut self) -> Result<(), Error> {
        self.working()?;
        let done = guarded("sync", || self.store.device.sync());
        self.take_times();
        done
    }

    /// Whether the next repeated run is timed, and stands for others.
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

    /// Takes the times that the device knows by now, and passes them to the cost model.
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
