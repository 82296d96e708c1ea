//! Failures: which values are lost, which updates are skipped, and who gets the error.
//!
//! A value whose op failed is *poisoned*, and so is whatever is made from it. Leaves are spared: an update whose
//! inputs are poisoned, or that finds no room, is skipped, and its handle goes on naming the old value. Each
//! failure is reported once: by the first read of a value that is lost to it, by the first read of anything after
//! an update was skipped because of it, or by [`Engine::take_failure`].

use super::{Engine, Error, Residence, StorageKey};
use crate::device::Device;
use std::collections::VecDeque;

/// Of a flood of failures, the first ones tell what went wrong.
const MOST_UNTOLD: usize = 64;

/// What is known of failures, beside the reason of each poisoned storage.
#[derive(Debug, Default)]
pub(super) struct Failures {
    /// Nobody was told of these yet, oldest first. Never more than [`MOST_UNTOLD`].
    untold: VecDeque<Error>,
    /// The first one of the step at hand, until it is told.
    of_step: Option<Error>,
    /// Why an update was skipped. Nobody was told yet.
    skipped: Option<Error>,
}

impl Failures {
    /// The first failure of the step at hand that nobody was told of.
    pub fn of_step(&self) -> Option<&Error> {
        self.of_step.as_ref()
    }

    /// A step begins.
    pub fn next_step(&mut self) {
        self.of_step = None;
    }

    /// A failure that is news.
    pub fn keep(&mut self, error: Error) {
        self.of_step.get_or_insert_with(|| error.clone());
        if self.untold.len() < MOST_UNTOLD {
            self.untold.push_back(error);
        }
    }

    /// Whoever asked is told now.
    pub fn told(&mut self, error: &Error) {
        self.untold.retain(|failure| !failure.is(error));
        self.of_step.take_if(|failure| failure.is(error));
        self.skipped.take_if(|failure| failure.is(error));
    }
}

impl<D: Device> Engine<D> {
    /// Takes the first failure that nobody has been told of yet.
    pub fn take_failure(&mut self) -> Option<Error> {
        let error = self.failures.untold.pop_front()?;
        self.failures.told(&error);
        Some(error)
    }

    /// Takes the failure for which an update was skipped, if nobody has been told of it yet.
    pub(super) fn take_skipped(&mut self) -> Option<Error> {
        let error = self.failures.skipped.take()?;
        self.failures.told(&error);
        Some(error)
    }

    /// Keeps a failure for [`Engine::take_failure`], unless it is the known reason of a lost tensor.
    pub fn fail(&mut self, error: Error) {
        if !self.reasons.values().any(|reason| reason.is(&error)) {
            self.keep_failure(&error);
        }
    }

    /// A failure that is news. What was replaced in this step is taken back.
    pub(super) fn keep_failure(&mut self, error: &Error) {
        tracing::error!(target: "remat", %error, "op failed");
        self.failures.keep(error.clone());
        self.take_back();
    }

    /// An update was skipped for a failure that is kept already.
    pub(super) fn skip(&mut self, error: &Error) {
        if self.failures.untold.iter().any(|failure| failure.is(error)) {
            self.failures.skipped.get_or_insert_with(|| error.clone());
        }
    }

    /// The reason of the first poisoned storage among `keys`.
    pub(super) fn reason_among(&self, keys: &[StorageKey]) -> Option<Error> {
        keys.iter().find_map(|&key| self.reasons.get(key).cloned())
    }

    /// Why a storage cannot be brought back.
    pub(super) fn lost(&self, key: StorageKey) -> Error {
        self.reasons.get(key).cloned().unwrap_or(Error::UnknownTensor)
    }

    /// Marks storages as lost to a failure, which is kept for whoever asks first.
    pub(super) fn poison(&mut self, storages: &[StorageKey], error: &Error) {
        self.keep_failure(error);
        self.poison_quietly(storages, error);
    }

    /// Marks storages as lost to a failure that is known already.
    pub(super) fn poison_quietly(&mut self, storages: &[StorageKey], error: &Error) {
        for &storage in storages {
            self.cut_producer(storage);
            if let Some(block) = self.table.set_absent(storage, Residence::Poisoned) {
                self.space.free(block);
            }
            self.reasons.insert(storage, error.clone());
        }
    }
}
