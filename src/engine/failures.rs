//! Failures: which values are lost, which updates are skipped, and who gets the error.
//!
//! A value whose op failed is *poisoned*, and so is whatever is made from it. Leaves are spared: an update whose
//! inputs are poisoned, or that finds no room, is skipped, and its handle goes on naming the old value. Each
//! failure is reported once: by the first read of a value that is lost to it, by the first read of anything after
//! an update was skipped because of it, or by [`Engine::take_failure`]. With it, all failures of its step so far count
//! as reported: where memory is short, one seldom comes alone.
//!
//! A handle that names an old value in place of a new one is *stale* until somebody is told why. Until then a read of it
//! returns the failure, and what is computed from it is lost to the failure at once: nobody pays for a step whose results
//! are wrong. An update or a replacement of a stale handle that works gives it a new value.

use super::{Engine, Error, Residence, StorageKey, TensorKey};
use crate::device::Device;
use crate::error::{FailureKey, HandleError};
use crate::event::Event;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// Of a flood of failures, the first ones tell what went wrong.
const MOST_UNREPORTED: usize = 64;

/// What is known of failures, beside the reason of each poisoned storage.
#[derive(Debug, Default)]
pub(super) struct Failures {
    /// With the number of their step, oldest first. Never more than [`MOST_UNREPORTED`]; the last one is the
    /// newest there is.
    unreported: VecDeque<(u64, Error)>,
    /// Number of the step at hand.
    step: u64,
    /// The first one of the step at hand, until it is reported.
    of_step: Option<Error>,
    /// Why an update was skipped, if that is not reported, and in which step that happened.
    skipped: Option<(u64, Error)>,
    /// Stale handles, each with its failure and the step of that. Reported failures have none.
    stale: FxHashMap<TensorKey, (u64, Error)>,
}

impl Failures {
    /// The first failure of the step at hand that is not reported.
    pub fn of_step(&self) -> Option<&Error> {
        self.of_step.as_ref()
    }

    /// Whether nothing waits to be told that a read or an update would have to heed.
    pub fn are_quiet(&self) -> bool {
        self.of_step.is_none() && self.skipped.is_none() && self.stale.is_empty()
    }

    /// The failure of a stale handle.
    pub fn of_stale(&self, key: TensorKey) -> Option<&Error> {
        self.stale.get(&key).map(|(_, failure)| failure)
    }

    /// Whether no handle is stale.
    #[inline]
    pub fn are_none_stale(&self) -> bool {
        self.stale.is_empty()
    }

    /// The failure of the first stale handle among these.
    pub fn of_stale_among(&self, keys: &[TensorKey]) -> Option<Error> {
        if self.stale.is_empty() {
            return None;
        }
        keys.iter().find_map(|&key| self.of_stale(key).cloned())
    }

    /// A handle names an old value because of this failure. Of one that was reported nothing more is said.
    pub fn make_stale(&mut self, key: TensorKey, error: &Error) {
        if let Some(step) = self.step_of(error.key()) {
            self.stale.entry(key).or_insert_with(|| (step, error.clone()));
        }
    }

    /// A handle goes, or has a new value.
    #[inline]
    pub fn end_stale(&mut self, key: TensorKey) {
        if !self.stale.is_empty() {
            std::hint::cold_path();
            self.stale.remove(&key);
        }
    }

    /// A failure that is not reported.
    pub fn find(&self, key: FailureKey) -> Option<&Error> {
        self.unreported.iter().map(|(_, failure)| failure).find(|failure| failure.key() == key)
    }

    /// Takes what is to be told out of the way: commands that are gone through once more are done already, and heed nothing.
    pub fn set_aside(&mut self) -> Self {
        let step = self.step;
        std::mem::replace(self, Self { step, ..Self::default() })
    }

    /// Puts that back, before what came meanwhile.
    pub fn put_back(&mut self, before: Self) {
        let Self { mut unreported, of_step, skipped, mut stale, .. } = before;
        unreported.append(&mut self.unreported);
        unreported.truncate(MOST_UNREPORTED);
        self.unreported = unreported;
        self.of_step = of_step.or(self.of_step.take());
        self.skipped = skipped.or(self.skipped.take());
        for (key, later) in self.stale.drain() {
            stale.entry(key).or_insert(later);
        }
        self.stale = stale;
    }

    /// A step begins.
    pub fn next_step(&mut self) {
        self.step += 1;
        self.of_step = None;
    }

    /// A failure that is news.
    pub fn keep(&mut self, error: Error) {
        self.of_step.get_or_insert_with(|| error.clone());
        self.unreported.truncate(MOST_UNREPORTED - 1);
        self.unreported.push_back((self.step, error));
    }

    /// An update was skipped for a failure. Of one that was reported nothing more is said.
    pub fn skip(&mut self, error: &Error) {
        if let Some(step) = self.step_of(error.key()) {
            self.skipped.get_or_insert_with(|| (step, error.clone()));
        }
    }

    /// Somebody gets this failure now.
    pub fn report(&mut self, error: &Error) {
        let Some(step) = self.step_of(error.key()) else { return };
        self.unreported.retain(|(other, _)| *other != step);
        self.skipped.take_if(|(other, _)| *other == step);
        self.stale.retain(|_, (other, _)| *other != step);
        if step == self.step {
            self.of_step = None;
        }
    }

    /// The step of a failure that is not reported.
    fn step_of(&self, key: FailureKey) -> Option<u64> {
        let of_step = self.of_step.iter().map(|failure| (self.step, failure));
        let all = self.unreported.iter().chain(&self.skipped).chain(self.stale.values());
        let all = all.map(|(step, failure)| (*step, failure));
        all.chain(of_step).find(|(_, failure)| failure.key() == key).map(|(step, _)| step)
    }
}

impl<D: Device> Engine<D> {
    /// Takes the first failure that is not reported yet.
    pub fn take_failure(&mut self) -> Option<Error> {
        let (_, error) = self.failures.unreported.front()?.clone();
        self.report(&error);
        Some(error)
    }

    /// The last failure that nobody was told of.
    pub(crate) fn last_failure(&self) -> Option<&Error> {
        Some(&self.failures.unreported.back()?.1)
    }

    /// Somebody gets this failure now. What follows is tried anew: with nothing spent.
    pub(super) fn report(&mut self, error: &Error) {
        self.failures.report(error);
        self.repeats.next_step();
    }

    /// Whether a command may be done without a look at failures: none waits to be told that a read or an update would have
    /// to heed, and everything works.
    #[inline]
    pub(crate) fn owes_no_word(&self) -> bool {
        self.broken.is_none() && self.failures.are_quiet()
    }

    /// Handles that were to have a new value and go on naming the old one, because of a failure that was kept.
    pub(crate) fn keep_old(&mut self, keys: &[TensorKey], error: &Error) {
        self.failures.skip(error);
        keys.iter().for_each(|&key| self.failures.make_stale(key, error));
    }

    /// Takes the failure for which an update was skipped, if it is not reported yet.
    pub(super) fn take_skipped(&mut self) -> Option<Error> {
        let (_, error) = self.failures.skipped.clone()?;
        self.report(&error);
        Some(error)
    }

    /// Keeps a failure for [`Engine::take_failure`], unless it is the known reason of a lost tensor.
    pub fn fail(&mut self, error: Error) {
        if !self.reasons.values().any(|reason| reason.key() == error.key()) {
            self.keep_failure(&error);
        }
    }

    /// A failure that is news. What was replaced in this step is taken back.
    pub(super) fn keep_failure(&mut self, error: &Error) {
        self.failures.keep(error.clone());
        self.tell(Event::DidFail { failure: error.key() });
        self.take_back(error);
    }

    /// The reason of the first poisoned storage among `keys`.
    pub(super) fn reason_among(&self, keys: &[StorageKey]) -> Option<Error> {
        if self.reasons.is_empty() {
            return None;
        }
        std::hint::cold_path();
        keys.iter().find_map(|&key| self.reasons.get(key).cloned())
    }

    /// Why a storage cannot be brought back.
    pub(super) fn lost(&self, key: StorageKey) -> Error {
        self.reasons.get(key).cloned().unwrap_or_else(|| HandleError::Unknown.into())
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
            self.store.set_absent(storage, Residence::Poisoned);
            self.reasons.insert(storage, error.clone());
        }
    }
}
