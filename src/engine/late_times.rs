//! Times of runs on a device that runs behind, which it reports later.

use super::run::COST_MODEL;
use super::{Engine, Error};
use crate::device::Device;
use crate::guard::{caught, guarded};

/// A run whose time the device will tell.
#[derive(Clone, Copy, Debug)]
pub(super) struct Late {
    /// Of the run, for the cost model.
    key: u64,
    /// Its cost, if it was a repetition.
    again: Option<f64>,
}

/// What is known of how long repetitions took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Recomputed {
    /// Of those whose time is known.
    cost: f64,
    seconds: f64,
}

impl Recomputed {
    pub(super) fn add(&mut self, cost: f64, seconds: f64) {
        self.cost += cost;
        self.seconds += seconds;
    }

    /// Seconds of all repetitions, which cost `cost`.
    pub(super) fn seconds(&self, cost: f64) -> f64 {
        if self.cost > 0.0 { self.seconds * (cost / self.cost) } else { self.seconds }
    }
}

/// Asking the device is not free. So it is asked once a step, or when so many times are awaited.
const MOST_AWAITED: usize = 256;

/// Of so many repetitions, one is timed on a device where that is not free, and stands for the others.
const SAMPLE: u64 = 8;

impl<D: Device> Engine<D> {
    /// Waits until the device has done all it was told.
    ///
    /// # Errors
    /// What went wrong there and nobody was told of yet.
    pub fn sync(&mut self) -> Result<(), Error> {
        self.working()?;
        let done = guarded("sync", || self.store.device.sync());
        self.take_times();
        done
    }

    /// Whether the repetition that comes next stands for others.
    pub(super) fn is_sample(&self) -> bool {
        self.stats.recomputed_ops.is_multiple_of(SAMPLE)
    }

    /// The last run's time will be told.
    #[inline(never)]
    pub(super) fn await_time(&mut self, key: u64, again: Option<f64>) {
        self.late.push_back(Late { key, again });
        if self.late.len().is_multiple_of(MOST_AWAITED) {
            self.take_times();
        }
    }

    /// Learns what times are known by now.
    pub(super) fn take_times(&mut self) {
        while !self.late.is_empty() {
            let device = &mut self.store.device;
            let seconds = match caught(|| "the device: a time".to_owned(), || device.take_time()) {
                Ok(Some(seconds)) => seconds,
                Ok(None) => return,
                Err(error) => {
                    // It cannot be told any more which times belong to which runs.
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
