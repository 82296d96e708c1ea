//! Freeing memory when an allocation does not fit. `space.rs` of the crate `remat-memory` enforces
//! the budget: it places no block beyond the limit.
//!
//! An allocation that still does not fit is an error (`error/out_of_memory.rs`). `failures.rs`
//! describes what then happens to values, and `driver/attempt.rs` finds the budget that the error
//! names.

use super::{Engine, Error};
use crate::device::Device;
use crate::error::OutOfMemory;
use crate::event::{Cause, Event};
use crate::evict::{Need, Want};
use crate::graph::{Owner, Residence};
use crate::layout::Layout;
use remat_memory::{Held, Move, Snapshot};
use tracing::{Level, enabled};

/// Bytes that may be moved for each byte requested. Moving four bytes costs about as much as
/// evicting one byte. A move reads and writes each byte once. Restoring an evicted storage reads
/// and writes several times the storage's size.
const WORTH_MOVING: u64 = 4;

impl<D: Device> Engine<D> {
    /// Allocates a block of at least `bytes` bytes. Evicts if too few bytes are free. Moves blocks
    /// if enough bytes are free but no hole is large enough. If the blocks to move are far larger
    /// than the request, first evicts storages that the evictor finds worth evicting. Moves the
    /// large blocks only when the evictor finds no storage worth evicting.
    ///
    /// Returns `None`, and evicts nothing, if evicting all evictable storages would not free enough
    /// bytes.
    #[inline(always)]
    pub(super) fn allocate(&mut self, bytes: u64, owner: Owner) -> Result<Option<Held>, Error> {
        match self.store.place(bytes, owner) {
            Some(held) => Ok(Some(held)),
            None => self.make_room(bytes, owner),
        }
    }

    /// Does the work of [`Engine::allocate`] when no hole is large enough.
    #[inline(never)]
    fn make_room(&mut self, bytes: u64, owner: Owner) -> Result<Option<Held>, Error> {
        let held = self.evict_or_move(bytes, owner)?;
        if held.is_none() && self.take_back_kept() {
            return self.allocate(bytes, owner);
        }
        Ok(held)
    }

    fn evict_or_move(&mut self, bytes: u64, owner: Owner) -> Result<Option<Held>, Error> {
        let size = self.store.space.round(bytes);
        if !self.may_have(size) {
            return Ok(None);
        }
        if self.store.grow(bytes)
            && let Some(held) = self.store.place(bytes, owner)
        {
            return Ok(Some(held));
        }
        // The attempt to grow may have shown that the device has less memory than the budget.
        if !self.may_have(size) {
            return Ok(None);
        }
        loop {
            let free = self.store.space.free_bytes();
            if free < size {
                let want = Want { need: Need::Must, bytes: size - free };
                if !self.evict_one(want, Cause::Room)? {
                    return Ok(None);
                }
                self.work.did_evict(false);
            } else {
                // Moves are found whenever enough bytes are free, because even pinned blocks may be
                // moved. Offsets are read when an op is launched, and the device works in order.
                let moves = self.store.plan_compaction(bytes);
                let moved: u64 = moves.iter().map(|m| m.bytes).sum();
                let want = Want { need: Need::Wish, bytes: size };
                if moved <= WORTH_MOVING * size || !self.evict_one(want, Cause::Room)? {
                    self.compact(&moves, bytes, moved)?;
                }
            }
            if let Some(held) = self.store.place(bytes, owner) {
                return Ok(Some(held));
            }
        }
    }

    /// Whether `bytes` bytes would be free if all evictable storages were evicted.
    pub(super) fn may_have(&self, bytes: u64) -> bool {
        let evictable = if self.evicts { self.store.evictable_bytes() } else { 0 };
        self.store.space.free_bytes() + evictable >= bytes
    }

    /// Like [`Engine::may_have`], but if too few bytes would be free, also frees the blocks that
    /// the tape keeps.
    pub(super) fn may_get(&mut self, bytes: u64) -> bool {
        self.may_have(bytes) || self.take_back_kept() && self.may_have(bytes)
    }

    /// Moves blocks to make a hole of `wanted` bytes. `bytes` is the total size of the moved
    /// blocks.
    pub(super) fn compact(&mut self, moves: &[Move], wanted: u64, bytes: u64) -> Result<(), Error> {
        moves.iter().try_for_each(|step| self.store.relocate(step))?;
        self.tell(Event::DidMove { moves: moves.len(), bytes, wanted });
        Ok(())
    }

    /// Makes the error for a request of `bytes` bytes by `op` that cannot be met.
    #[cold]
    pub(super) fn out_of_memory(&self, op: &str, inputs: &[Layout], bytes: u64) -> Error {
        let store = &self.store;
        let mut error = OutOfMemory {
            op: op.to_owned(),
            inputs: inputs.iter().map(Layout::to_string).collect(),
            wanted: bytes,
            budget: if store.space.is_refused() { store.space.capacity() } else { self.budget },
            used: store.space.used(),
            free: store.space.free_bytes(),
            largest_free: store.space.largest_free(),
            fragmentation: store.space.fragmentation(),
            pinned: 0,
            leaves: 0,
            evictable: store.evictable_bytes(),
            unmarked: self.unmarked(),
            device: None,
            holders: Vec::new(),
            passing: None,
        };
        let mut named = 0;
        for (_, storage) in store.graph.storages() {
            let Residence::Resident(Held { bytes, .. }) = storage.residence else { continue };
            named += bytes;
            if storage.pins > 0 {
                error.pinned += bytes;
            } else if storage.producer.is_none() {
                error.leaves += bytes;
            }
        }
        // The remaining pinned bytes are outputs and scratch that the current op placed before the
        // request failed.
        error.pinned += store.space.used() - named;
        error.holders = store.holders();
        if enabled!(target: "remat", Level::DEBUG) {
            let map = store.memory_map();
            tracing::debug!(target: "remat", op, wanted = bytes, %map, "out of memory");
        }
        error.into()
    }

    /// Memory map for tools: every chunk of the arena, with the name of the storage in it.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.store.snapshot()
    }

    /// Memory map for people: see [`Arena::dump`](remat_memory::Arena::dump). Empty on a device
    /// that owns its memory, where the engine only counts bytes.
    #[must_use]
    pub fn memory_map(&self) -> String {
        self.store.memory_map()
    }
}
