//! Settings changed while there are tensors: budget, threshold, evictor, and whether history is
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

    /// Sets the hard limit, up to the bytes that the engine was opened with. A smaller limit holds
    /// at once: storages above it are evicted, and blocks are moved below it. An eviction threshold
    /// above the budget has no effect.
    ///
    /// # Errors
    /// If the limit is 0, above the bytes that the engine was opened with, or below the bytes that
    /// cannot be evicted. Also if moving a block fails on the device, or the evictor panics. The
    /// budget is the old one then.
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
                // The bytes that cannot be evicted fit below the limit, but not below the limit
                // rounded down to whole granules.
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

    /// Replaces the evictor from now on. The new evictor is told [`Event::DidEvict`] of each
    /// evicted storage, as [`Cause::Before`].
    ///
    /// # Errors
    /// If the new evictor panics. The old one stays then.
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

    /// Whether the evictor may want storages without handles to stay resident until it chooses to
    /// evict them.
    pub(crate) const fn keeps_unheld(&self) -> bool {
        self.keeps_unheld
    }

    /// Whether the evictor wants storage `key` to stay resident. Asked when the storage has no
    /// handle, or was restored only to recompute others.
    pub(super) fn evictor_keeps(&mut self, key: StorageKey) -> bool {
        self.keeps_unheld
            && self
                .ask_evictor(|evictor, view| Some(evictor.by_step()?.keeps(key, view)))
                .flatten()
                .unwrap_or(true)
    }

    /// Whether dropping this handle now would evict the tensor's bytes at once. No other handle
    /// looks at the storage, it can be evicted, and the evictor does not want it to stay.
    pub(crate) fn would_go(&mut self, key: TensorKey) -> bool {
        let graph = &self.store.graph;
        let Some(storage) = graph.tensor(key).map(|tensor| tensor.storage) else { return false };
        let goes = graph.storage(storage).handles == 1 && graph.is_evictable(storage);
        goes && !self.evictor_keeps(storage)
    }

    /// Tells the engine and the evictor which step runs from now on, as
    /// [`Driver::foresee`](crate::program::Driver::foresee) says. `None`: the step is not known.
    ///
    /// # Errors
    /// If the evictor panics. The engine is broken then.
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

    /// Evictor that decides what to evict.
    pub(crate) fn evictor(&self) -> &dyn Evictor {
        &*self.evictor
    }

    /// Whether the evictor has a part that uses the known step ([`Evictor::by_step`]).
    pub(crate) fn foresees(&mut self) -> bool {
        self.evictor.by_step().is_some()
    }

    /// Whether any storage was evicted for room, for the threshold, or at the user's wish.
    #[inline]
    pub(crate) const fn has_evicted(&self) -> bool {
        self.stats.evictions > 0
    }

    /// Whether history is kept, so that tensors can be evicted.
    #[must_use]
    pub const fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Turns the keeping of history on, for all tensors made from now on.
    pub const fn enable(&mut self) {
        self.enabled = true;
    }

    /// Turns the keeping of history off, and frees existing history. Every held tensor is restored
    /// and becomes a leaf, and so does every tensor made from now on. Nothing is evicted then, and
    /// ops cost no bookkeeping.
    ///
    /// # Errors
    /// If the budget does not hold all held tensors, or one of them cannot be restored. History is
    /// kept as before then, but tensors that already became leaves stay leaves.
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
        // Make leaves of resident storages first: restoring an evicted one might evict them, and
        // then they would have to be restored as well.
        held.sort_by_key(|&key| !self.store.graph.is_resident(key));
        for key in held {
            self.commit_storage(key)?;
        }
        self.enabled = false;
        Ok(())
    }
}
