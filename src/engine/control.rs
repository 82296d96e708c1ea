//! Settings that can change while tensors exist: budget, threshold, evictor, and whether history is
//! kept.

use super::tell::EVICTOR;
use super::{Engine, Error, StorageKey, TensorKey};
use crate::device::Device;
use crate::error::RuntimeError;
use crate::event::{Cause, Event};
use crate::evict::{Evictor, Foresight, Need, Want};
use crate::graph::Storage;
use crate::guard::caught;
use remat_memory::ByteSize;
use std::sync::Arc;

impl<D: Device> Engine<D> {
    /// The hard limit in bytes.
    #[must_use]
    pub const fn budget(&self) -> u64 {
        self.budget
    }

    /// Sets the hard limit, up to the bytes that the engine was opened with. A smaller limit takes
    /// effect at once: storages are evicted, and blocks are moved, until no block lies above the
    /// limit. An eviction threshold above the budget has no effect.
    ///
    /// # Errors
    /// If the limit is 0, above the bytes that the engine was opened with, or below the bytes that
    /// cannot be evicted. If moving a block fails on the device, or the evictor panics. After an
    /// error, the budget is unchanged.
    pub fn set_budget(&mut self, bytes: u64) -> Result<(), Error> {
        self.working()?;
        let maximum = self.store.space.maximum();
        if bytes > maximum {
            let [bytes, maximum] = [bytes, maximum].map(ByteSize);
            return Err(RuntimeError::Settings(format!(
                "a budget of {bytes} is above {maximum}, the budget that the runtime was opened with; open the \
                 runtime with the largest budget, and lower it later"
            ))
            .into());
        }
        if bytes < self.kept_bytes().max(1) {
            return Err(self.too_small(bytes));
        }
        let moves = loop {
            if let Some(moves) = self.store.space.plan_shrink(bytes) {
                break moves;
            }
            let over = self.store.space.used().saturating_sub(bytes).max(1);
            if !self.evict_one(Want { need: Need::Must, bytes: over }, Cause::Room)? {
                // The bytes that cannot be evicted fit in the limit, but not in the limit rounded
                // down to whole granules.
                return Err(self.too_small(bytes));
            }
        };
        if !moves.is_empty() {
            let moved = moves.iter().map(|step| step.bytes).sum();
            self.compact(&moves, bytes, moved)?;
        }
        self.store.set_limit(bytes)?;
        self.budget = bytes;
        self.tell(Event::DidSetBudget { bytes });
        Ok(())
    }

    /// Bytes that cannot be evicted.
    fn kept_bytes(&self) -> u64 {
        let evictable = if self.evicts { self.store.evictable_bytes() } else { 0 };
        self.store.space.used() - evictable
    }

    fn too_small(&self, budget: u64) -> Error {
        let [budget, kept] = [budget, self.kept_bytes()].map(ByteSize);
        RuntimeError::Settings(format!(
            "a budget of {budget} is too small for the {kept} that cannot be evicted; delete some tensors, or raise \
             the budget"
        ))
        .into()
    }

    /// Sets or removes the eviction threshold, from the next op on.
    ///
    /// # Errors
    /// If the threshold is above the budget.
    pub fn set_eviction_threshold(&mut self, threshold: Option<u64>) -> Result<(), Error> {
        self.working()?;
        let mut settings = self.settings.clone();
        settings.eviction_threshold = threshold;
        settings.check(self.budget)?;
        self.settings = settings;
        self.warned_of_threshold = false;
        Ok(())
    }

    /// Replaces the evictor from now on. The new evictor gets [`Event::DidEvict`] with
    /// [`Cause::Before`] for each storage that is already evicted.
    ///
    /// # Errors
    /// Fails if the new evictor panics. After a panic, the old evictor stays.
    pub fn set_evictor(&mut self, mut evictor: Box<dyn Evictor>) -> Result<(), Error> {
        self.working()?;
        let hears = self.tell_new_evictor(&mut *evictor)?;
        self.stats.score_evaluations += self.evictor.score_evaluations();
        self.hears = hears;
        self.evicts = evictor.evicts();
        self.keeps_unheld = evictor.by_step().is_some_and(|step| step.keeps_unheld());
        self.evictor = evictor;
        Ok(())
    }

    /// Whether the evictor may want to keep storages resident after their last handle is dropped.
    pub(crate) const fn keeps_unheld(&self) -> bool {
        self.keeps_unheld
    }

    /// Whether the evictor wants storage `key` to stay resident. The engine asks for a storage that
    /// has no handle, or that was restored only to recompute other storages.
    pub(super) fn evictor_keeps(&mut self, key: StorageKey) -> bool {
        self.keeps_unheld
            && self
                .ask_evictor(|evictor, view| Some(evictor.by_step()?.keeps(key, view)))
                .flatten()
                .unwrap_or(true)
    }

    /// Whether dropping the handle `key` now would evict the tensor's bytes at once. True if the
    /// storage has no other handle, can be evicted, and the evictor does not want it to stay
    /// resident.
    pub(crate) fn would_go(&mut self, key: TensorKey) -> bool {
        let graph = &self.store.graph;
        let Some(storage) = graph.tensor(key).map(|tensor| tensor.storage) else { return false };
        let goes = graph.storage(storage).handles == 1 && graph.is_evictable(storage);
        goes && !self.evictor_keeps(storage)
    }

    /// Tells the engine and the evictor which known step runs from now on: see
    /// [`Driver::foresee`](crate::program::Driver::foresee). `None` means that no known step runs.
    ///
    /// # Errors
    /// If the evictor panics. The engine is then broken.
    pub fn foresee(&mut self, foresight: Option<Arc<Foresight>>) -> Result<(), Error> {
        self.working()?;
        let smallest = foresight.as_ref().and_then(|foresight| foresight.min_evict_bytes());
        self.store.candidates.set_min_evict_bytes(smallest, &self.store.graph);
        let step = foresight.as_ref().map(|foresight| Arc::clone(foresight.step()));
        self.store.graph.future.foresee(step);
        let evictor = &mut self.evictor;
        let told = caught(EVICTOR, || {
            evictor.by_step().is_some_and(|step| {
                step.foresee(foresight);
                step.keeps_unheld()
            })
        });
        match told {
            Ok(keeps) => {
                if let Some(tape) = &mut self.store.tape {
                    let changed = keeps != self.keeps_unheld;
                    tape.short.spoil_if(changed, "the next step was recognized in the middle");
                }
                self.keeps_unheld = keeps;
            }
            Err(error) => return Err(self.broken.insert(error).clone()),
        }
        Ok(())
    }

    /// Evictor that chooses the storages to evict.
    pub(crate) fn evictor(&self) -> &dyn Evictor {
        &*self.evictor
    }

    /// Whether the evictor has a part that uses the known step ([`Evictor::by_step`]).
    pub(crate) fn foresees(&mut self) -> bool {
        self.evictor.by_step().is_some()
    }

    /// Whether any storage was evicted for an allocation, for the threshold, or at the user's
    /// request.
    #[inline]
    pub(crate) const fn has_evicted(&self) -> bool {
        self.stats.evictions > 0
    }

    /// Whether history is kept, so that tensors can be evicted.
    #[must_use]
    pub const fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Keeps the history of all tensors made from now on.
    pub const fn enable(&mut self) {
        self.enabled = true;
    }

    /// Stops keeping history, and frees existing history. Every held tensor is restored and becomes
    /// a leaf. Every tensor made from now on is a leaf too. Without history, no storage can be
    /// evicted, and ops cost no bookkeeping.
    ///
    /// # Errors
    /// If the budget does not suffice for all held tensors, or one of them cannot be restored.
    /// After an error, history is kept as before, but tensors that already became leaves stay
    /// leaves.
    pub fn disable(&mut self) -> Result<(), Error> {
        self.working()?;
        let is_kept = |&(key, storage): &(StorageKey, &Storage)| {
            storage.handles > 0 && storage.producer.is_some() && !self.reasons.contains_key(key)
        };
        let mut held: Vec<StorageKey> =
            self.store.graph.storages().filter(is_kept).map(|(key, _)| key).collect();
        if !self.fit_as_leaves(&held) {
            let graph = &self.store.graph;
            let missing = held.iter().filter(|&&key| !graph.is_resident(key));
            let bytes = missing.map(|&key| self.store.space.at_most(graph.storage(key).bytes));
            return Err(self.out_of_memory("disable", &[], bytes.fold(0, u64::saturating_add)));
        }
        // Make leaves of resident storages first, because restoring an evicted storage might evict
        // resident storages that are not leaves yet.
        held.sort_by_key(|&key| !self.store.graph.is_resident(key));
        for key in held {
            self.commit_storage(key)?;
        }
        self.enabled = false;
        Ok(())
    }
}
