//! Having a storage chosen, and letting its bytes go.

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
    /// With an eviction threshold: evicts until no more bytes than that are used, or nothing is left.
    #[inline(always)]
    pub(super) fn meet_threshold(&mut self) -> Result<(), Error> {
        match self.settings.eviction_threshold {
            // By a script nothing is evicted: nothing was.
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

    /// Evicts what the evictor would miss least. False if there is no candidate, or it never evicts.
    ///
    /// # Errors
    /// If the evictor panics, or chooses what cannot go. Nothing was evicted then.
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

    /// What is dead goes before anything that an evictor would have to choose.
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

    /// A wish to evict a tensor's storage now. Returns whether its bytes went: they stay if it is a
    /// leaf, or gone already.
    ///
    /// # Errors
    /// If the key is stale.
    pub fn drop_now(&mut self, key: TensorKey) -> Result<bool, Error> {
        self.working()?;
        let storage = self.tensor(key)?.storage;
        let evictable = self.store.graph.is_evictable(storage);
        if evictable {
            self.evict(storage, Cause::Wish);
        } else if self.store.graph.is_resident(storage) {
            let bytes = self.store.graph.storage(storage).bytes;
            if let Some(tape) = &mut self.store.tape {
                // The warning comes in each turn.
                tape.spoil("a leaf was to be evicted");
            }
            self.tell(Event::DidKeepLeaf { storage, bytes });
        }
        Ok(evictable)
    }

    /// Lets the bytes of an unpinned, resident storage with a producer go.
    pub(super) fn evict(&mut self, key: StorageKey, cause: Cause) {
        debug_assert_eq!(
            self.store.graph.storage(key).pins,
            0,
            "a pinned storage is never evicted"
        );
        self.let_go(key, cause);
    }

    /// Lets the bytes of outputs go that a failed run may have written over in part. They can be
    /// regenerated, and whoever pinned them fails with that run.
    pub(super) fn give_up(&mut self, outputs: &[Target]) {
        for key in outputs.iter().filter_map(|target| target.storage()) {
            if self.store.graph.is_resident(key) {
                self.let_go(key, Cause::Failed);
            }
        }
    }

    /// The outputs of a path that was to run for the first time are to be made when somebody reads them.
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
        let bytes = self.store.graph.storage(storage).bytes;
        self.tell(Event::DidEvict { storage, bytes, cause });
    }
}
