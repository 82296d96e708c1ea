//! Failures: lost values, skipped updates, and how errors reach the user.
//!
//! A value whose op failed is *poisoned*, and so are all values made from it. Leaves are not
//! poisoned by later failures. An update that has a poisoned input, or for which memory does not
//! suffice, is skipped: its handle still names the old value.
//!
//! Each failure is reported once: by the first read of a value lost to the failure, or by
//! [`Engine::take_failure`]. If an update was skipped because of a failure, the first read of any
//! value reports it. When one failure is reported, all failures of its step so far count as
//! reported, because a lack of memory usually causes several.
//!
//! After a skipped update, a handle names an old value in place of a new one. The handle is *stale*
//! until the failure is reported. A read of a stale handle returns the failure. Values computed
//! from a stale handle are lost at once, so that no time is spent on a step whose results would be
//! wrong. A successful update or replacement gives a stale handle a new value.

use super::{Engine, Error, Residence, StorageKey, TensorKey};
use crate::device::Device;
use crate::error::{FailureKey, HandleError};
use crate::event::Event;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// Maximum number of unreported failures that are kept. The first failures suffice to show what
/// went wrong.
const MOST_UNREPORTED: usize = 64;

/// Failures that are not reported yet. `Engine::reasons` has the failure of each storage without a
/// value, whether or not the failure is reported.
#[derive(Debug, Default)]
pub(super) struct Failures {
    /// Unreported failures with the numbers of their steps, oldest first. The list has at most
    /// [`MOST_UNREPORTED`] entries, and the last entry is always the newest failure.
    unreported: VecDeque<(u64, Error)>,
    /// Number of the current step.
    step: u64,
    /// First failure of the current step, until it is reported.
    of_step: Option<Error>,
    /// First unreported failure that caused a skipped update, with the number of the failure's
    /// step.
    skipped: Option<(u64, Error)>,
    /// Failure of each stale handle (a handle that names an old value because of the failure), with
    /// the number of the failure's step. A handle is no longer stale once its failure is reported.
    stale: FxHashMap<TensorKey, (u64, Error)>,
}

impl Failures {
    /// First failure of the current step; `None` once the failure is reported.
    pub fn of_step(&self) -> Option<&Error> {
        self.of_step.as_ref()
    }

    /// Whether reads and updates can skip the check for failures: the current step has no failure,
    /// no update was skipped, and no handle is stale.
    pub fn are_quiet(&self) -> bool {
        self.of_step.is_none() && self.skipped.is_none() && self.stale.is_empty()
    }

    /// Failure because of which a handle is stale (names an old value); `None` if the handle is not
    /// stale.
    pub fn of_stale(&self, key: TensorKey) -> Option<&Error> {
        self.stale.get(&key).map(|(_, failure)| failure)
    }

    /// Whether no handle is stale: none names an old value because of a failure.
    #[inline]
    pub fn are_none_stale(&self) -> bool {
        self.stale.is_empty()
    }

    /// Failure of the first handle in `keys` that names an old value because of a failure.
    pub fn of_stale_among(&self, keys: &[TensorKey]) -> Option<Error> {
        if self.stale.is_empty() {
            return None;
        }
        keys.iter().find_map(|&key| self.of_stale(key).cloned())
    }

    /// Makes a handle stale: it names an old value because of the failure `error`. Does nothing if
    /// the failure was reported.
    pub fn make_stale(&mut self, key: TensorKey, error: &Error) {
        if let Some(step) = self.step_of(error.key()) {
            self.stale.entry(key).or_insert_with(|| (step, error.clone()));
        }
    }

    /// Makes a handle no longer stale, because it was dropped or has a new value.
    #[inline]
    pub fn end_stale(&mut self, key: TensorKey) {
        if !self.stale.is_empty() {
            std::hint::cold_path();
            self.stale.remove(&key);
        }
    }

    /// Finds an unreported failure by its key.
    pub fn find(&self, key: FailureKey) -> Option<&Error> {
        self.unreported.iter().map(|(_, failure)| failure).find(|failure| failure.key() == key)
    }

    /// Removes and returns all failures before a script runs. The device has already done the
    /// commands of the script, so no failure may skip them.
    pub fn set_aside(&mut self) -> Self {
        let step = self.step;
        std::mem::replace(self, Self { step, ..Self::default() })
    }

    /// Puts back the failures that [`Self::set_aside`] removed, in front of all failures that were
    /// kept since.
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

    /// Begins a new step.
    pub fn next_step(&mut self) {
        self.step += 1;
        self.of_step = None;
    }

    /// Keeps a new failure.
    pub fn keep(&mut self, error: Error) {
        self.of_step.get_or_insert_with(|| error.clone());
        self.unreported.truncate(MOST_UNREPORTED - 1);
        self.unreported.push_back((self.step, error));
    }

    /// Notes that an update was skipped because of a failure. Does nothing if the failure was
    /// reported.
    pub fn skip(&mut self, error: &Error) {
        if let Some(step) = self.step_of(error.key()) {
            self.skipped.get_or_insert_with(|| (step, error.clone()));
        }
    }

    /// Marks a failure and all failures of its step so far as reported.
    pub fn report(&mut self, error: &Error) {
        let Some(step) = self.step_of(error.key()) else { return };
        self.unreported.retain(|(other, _)| *other != step);
        self.skipped.take_if(|(other, _)| *other == step);
        self.stale.retain(|_, (other, _)| *other != step);
        if step == self.step {
            self.of_step = None;
        }
    }

    /// Step of an unreported failure; `None` if the failure is reported.
    fn step_of(&self, key: FailureKey) -> Option<u64> {
        let of_step = self.of_step.iter().map(|failure| (self.step, failure));
        let all = self.unreported.iter().chain(&self.skipped).chain(self.stale.values());
        let all = all.map(|(step, failure)| (*step, failure));
        all.chain(of_step).find(|(_, failure)| failure.key() == key).map(|(step, _)| step)
    }
}

impl<D: Device> Engine<D> {
    /// Takes the first failure that is not reported yet, and marks it as reported.
    pub fn take_failure(&mut self) -> Option<Error> {
        let (_, error) = self.failures.unreported.front()?.clone();
        self.report(&error);
        Some(error)
    }

    /// Newest failure that is not reported yet.
    pub(crate) fn last_failure(&self) -> Option<&Error> {
        Some(&self.failures.unreported.back()?.1)
    }

    /// Marks a failure as reported, and resets the step's count of repeated runs, so that the next
    /// command is not refused.
    pub(crate) fn report(&mut self, error: &Error) {
        self.failures.report(error);
        self.repeats.next_step();
    }

    /// Whether a command may run without checks for failures: the engine is not broken, and the
    /// failures [are quiet](Failures::are_quiet).
    #[inline]
    pub(crate) fn owes_no_word(&self) -> bool {
        self.broken.is_none() && self.failures.are_quiet()
    }

    /// Makes handles stale because of a failure. Each handle still names its old value.
    pub(crate) fn keep_old(&mut self, keys: &[TensorKey], error: &Error) {
        self.failures.skip(error);
        keys.iter().for_each(|&key| self.failures.make_stale(key, error));
    }

    /// Takes the unreported failure of a skipped update, and marks it as reported.
    pub(super) fn take_skipped(&mut self) -> Option<Error> {
        let (_, error) = self.failures.skipped.clone()?;
        self.report(&error);
        Some(error)
    }

    /// Keeps a failure for [`Engine::take_failure`], unless a tensor was already lost to the
    /// failure.
    pub fn fail(&mut self, error: Error) {
        if !self.reasons.values().any(|reason| reason.key() == error.key()) {
            self.keep_failure(&error);
        }
    }

    /// Keeps a new failure and sends its event. Undoes the replacements of the current step.
    pub(super) fn keep_failure(&mut self, error: &Error) {
        self.failures.keep(error.clone());
        self.tell(Event::DidFail { failure: error.key() });
        self.take_back(error);
    }

    /// Failure of the first storage in `keys` that lost its value to a failure.
    pub(super) fn reason_among(&self, keys: &[StorageKey]) -> Option<Error> {
        if self.reasons.is_empty() {
            return None;
        }
        std::hint::cold_path();
        keys.iter().find_map(|&key| self.reasons.get(key).cloned())
    }

    /// Error of a storage that cannot be restored.
    pub(super) fn lost(&self, key: StorageKey) -> Error {
        self.reasons.get(key).cloned().unwrap_or_else(|| HandleError::Unknown.into())
    }

    /// Marks storages as lost to a new failure, and keeps the failure for the first reader.
    pub(super) fn poison(&mut self, storages: &[StorageKey], error: &Error) {
        self.keep_failure(error);
        self.poison_quietly(storages, error);
    }

    /// Marks storages as lost to a failure that was already kept.
    pub(super) fn poison_quietly(&mut self, storages: &[StorageKey], error: &Error) {
        for &storage in storages {
            self.cut_producer(storage);
            self.store.set_absent(storage, Residence::Poisoned);
            self.reasons.insert(storage, error.clone());
        }
    }
}
