//! Times of runs that the device tells later, as it runs behind.

use super::guard::guarded;
use super::{Engine, Error};
use crate::device::Device;

/// A run whose time the device will tell.
#[derive(Clone, Copy, Debug)]
pub(super) struct Late {
    /// Of the run, for the cost model.
    key: u64,
    /// Whether it was a repetition.
    again: bool,
}

/// Asking the device is not free. So it is asked once a step, or when so many times are awaited.
const MOST_AWAITED: usize = 256;

impl<D: Device> Engine<D> {
    /// Waits until the device has done all it was told.
    ///
    /// # Errors
    /// What went wrong there and nobody was told of yet.
    pub fn sync(&mut self) -> Result<(), Error> {
        let done = guarded("sync", || self.device.sync());
        self.take_times();
        done
    }

    /// The last run's time will be told.
    pub(super) fn await_time(&mut self, key: u64, again: bool) {
        self.late.push_back(Late { key, again });
        if self.late.len().is_multiple_of(MOST_AWAITED) {
            self.take_times();
        }
    }

    /// Learns what times are known by now.
    pub(super) fn take_times(&mut self) {
        while !self.late.is_empty()
            && let Some(seconds) = self.device.take_time()
        {
            // Times come in the order of the runs.
            let Some(Late { key, again }) = self.late.pop_front() else { break };
            self.costs.learn(key, seconds);
            if again {
                self.stats.recompute_seconds += seconds;
            }
        }
    }
}
