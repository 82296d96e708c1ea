//! Eviction: the evictor chooses a storage, and the engine frees the storage's bytes.

use super::run::Target;
use super::tell::EVICTOR;
use super::{Engine, Error, PathKey, Residence, StorageKey, TensorKey};
use crate::device::Device;
use crate::error::CallbackError;
use crate::event::{Cause, Event};
use crate::evict::{Need, Victim, Want};
use crate::guard::caught;
use std::time::Instant;

impl<D: Device> Engine<D> {
    /// Evicts down to the eviction threshold, if a threshold is set, or until no candidate is left.
    #[inline(always)]
    pub(super) fn meet_threshold(&mut self) -> Result<(), Error> {
        match self.settings.eviction_threshold {
            // During a script, the threshold evicts nothing. The device has already run the
            // script's commands, and evicted nothing for the threshold.
            Some(threshold) if self.store.script.is_none() => self.evict_to(threshold),
            _ => Ok(()),
        }
    }

    fn evict_to(&mut self, threshold: u64) -> Result<(), Error> {
        while let Some(bytes) = self.store.space.used().checked_sub(threshold).filter(|&b| b > 0)
            && self.evict_one(Want { need: Need::Wish, bytes }, Cause::Threshold)?
        {
            self.work.did_evict(true);
        }
        let kept = self.store.space.used() - self.store.evictable_bytes();
        self.stats.unevictable_bytes = self.stats.unevictable_bytes.max(kept);
        if kept > threshold && !std::mem::replace(&mut self.warned_of_threshold, true) {
            self.tell(Event::AboveThreshold { threshold, kept });
        }
        Ok(())
    }

    /// Evicts one storage: a lingering dead storage if there is one, and otherwise the evictor's
    /// choice. Returns false if there is no candidate, or if the evictor never evicts.
    ///
    /// # Errors
    /// Fails if the evictor panics, or chooses a storage that cannot be evicted. After an error,
    /// nothing was evicted.
    pub(super) fn evict_one(&mut self, want: Want, cause: Cause) -> Result<bool, Error> {
        if self.store.evictable_bytes() == 0 || !self.evicts {
            return Ok(false);
        }
        if let Some(dead) = self.next_lingering() {
            self.evict(dead, Cause::Dead);
            return Ok(true);
        }
        let start = Instant::now();
        let (evictor, view) = (&mut self.evictor, self.store.view());
        let choice = caught(EVICTOR, || evictor.next(want, view));
        self.stats.search_seconds += start.elapsed().as_secs_f64();
        let Some(Victim { storage, score }) = choice? else { return Ok(false) };
        let known = self.store.graph.storages.contains_key(storage);
        if !known || !self.store.graph.is_evictable(storage) {
            return Err(CallbackError::Victim { storage }.into());
        }
        self.tell(Event::WillEvict { storage, score });
        self.evict(storage, cause);
        Ok(true)
    }

    /// Next dead storage that still lingers in memory, oldest first. Lingering storages are evicted
    /// before any storage that the evictor chooses.
    fn next_lingering(&mut self) -> Option<StorageKey> {
        while let Some(key) = self.lingering.pop_front() {
            let Some(storage) = self.store.graph.storages.get_mut(key) else { continue };
            storage.lingers = false;
            if self.is_dead(key) {
                return Some(key);
            }
        }
        None
    }

    /// Evicts a tensor's storage now, at the user's request. Returns whether this call evicted the
    /// storage: false for a leaf, and for a storage that was already evicted.
    ///
    /// # Errors
    /// Fails if the key names no tensor.
    pub fn drop_now(&mut self, key: TensorKey) -> Result<bool, Error> {
        self.working()?;
        let storage = self.tensor(key)?.storage;
        let evictable = self.store.graph.is_evictable(storage);
        if evictable {
            self.evict(storage, Cause::Wish);
        } else if self.store.graph.is_resident(storage) {
            let bytes = self.store.graph.storage(storage).bytes;
            if let Some(tape) = &mut self.store.tape {
                // Mark the current turn as unfit for a plan: a turn by plan could not give the
                // warning.
                tape.spoil("a leaf was to be evicted");
            }
            self.tell(Event::DidKeepLeaf { storage, bytes });
        }
        Ok(evictable)
    }

    /// Evicts an unpinned, resident storage with a producer.
    pub(super) fn evict(&mut self, key: StorageKey, cause: Cause) {
        debug_assert_eq!(
            self.store.graph.storage(key).pins,
            0,
            "a pinned storage is never evicted"
        );
        self.let_go(key, cause);
    }

    /// Evicts the targets of a failed run, because the run may have written over part of their
    /// bytes. The targets can be regenerated. A command that pinned one of them fails together with
    /// the run.
    pub(super) fn give_up(&mut self, targets: &[Target]) {
        for key in targets.iter().filter_map(|target| target.storage()) {
            if self.store.graph.is_resident(key) {
                self.let_go(key, Cause::Failed);
            }
        }
    }

    /// Marks the outputs of a path that has never run as evicted. The path first runs when an
    /// output is needed.
    pub(super) fn evict_unmade(&mut self, path: PathKey) {
        for key in self.store.graph.outputs_of(path) {
            self.let_go(key, Cause::Postponed);
        }
    }

    fn let_go(&mut self, storage: StorageKey, cause: Cause) {
        if self.store.tape.is_some() {
            self.write_down_eviction(storage, cause);
        }
        if self.verify.is_some() {
            self.keep_bits(storage, cause);
        }
        self.store.set_absent(storage, Residence::Evicted);
        self.tell_evicted(storage, cause);
    }

    #[inline]
    pub(super) fn tell_evicted(&mut self, storage: StorageKey, cause: Cause) {
        let bytes = self.store.graph.storage(storage).bytes;
        self.tell(Event::DidEvict { storage, bytes, cause });
    }
}
