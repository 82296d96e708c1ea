//! Deletion: what happens when a handle is dropped.
//!
//! ```text
//! 9 MB ─conv─▶ 25 MB ─add─▶ 25 MB ─batch norm─▶ 25 MB ─add─▶ 25 MB
//!              dropped      needed              dropped      needed
//! ```
//!
//! The backward pass in the drawing does not read the inputs of the adds, so the gradient tape
//! drops their handles. If these inputs were deleted entirely, values made from them could no
//! longer be evicted. The engine therefore evicts only the bytes of a dropped input, and keeps its
//! slot in the graph (a *fake* delete). With fake deletes, all values except the first (9 MB) can
//! still be evicted. When the last storage that needs a dropped input is deleted, the input's slot
//! is deleted too (a *real* delete). A real delete may leave further storages unneeded, which are
//! then deleted in the same way.

use super::{Engine, PathKey, StorageKey, TensorKey};
use crate::device::Device;
use crate::event::{Cause, Event};
use smallvec::{SmallVec, smallvec};

impl<D: Device> Engine<D> {
    /// Deletes a tensor. A key that names no tensor is ignored.
    pub fn del(&mut self, key: TensorKey) {
        if let Some(tensor) = self.store.graph.tensors.remove(key) {
            self.store.graph.storages[tensor.storage].handles -= 1;
            self.failures.end_stale(key);
            self.settle(tensor.storage);
        }
        // Also delete the value that the deleted tensor had replaced: the replacement can no longer
        // be undone.
        if !self.replaced.is_empty()
            && let Some(old) = self.replaced.remove(&key)
        {
            self.del(old);
        }
    }

    /// Evicts or deletes a storage, if no handle is left.
    pub(super) fn settle(&mut self, key: StorageKey) {
        let storage = self.store.graph.storage(key);
        if storage.handles > 0 {
            return;
        }
        if storage.users.is_empty() {
            self.forget(smallvec![key]);
            return;
        }
        if self.gives_way(key) || !self.lost_last_handle(key) {
            return;
        }
        let goes = self.store.graph.is_evictable(key);
        if goes || !self.store.graph.is_resident(key) {
            self.write_down_unheld(key);
        }
        if goes && !self.keeps(key) {
            self.evict(key, Cause::Unheld);
        }
    }

    /// Whether a storage stays resident after losing its last handle.
    fn keeps(&mut self, key: StorageKey) -> bool {
        match &mut self.store.script {
            // During a script, the script decides whether the storage stays: on the device, another
            // value may already occupy the storage's bytes.
            Some(script) => script.unheld_stays.pop_front().unwrap_or(false),
            None => {
                let keeps = self.evictor_keeps(key);
                if let Some(tape) = &mut self.store.tape {
                    tape.unheld_stays.push(keeps);
                }
                keeps
            }
        }
    }

    /// Deletes a storage that has no tensor and that no path reads.
    pub(super) fn discard(&mut self, key: StorageKey) {
        self.forget(smallvec![key]);
    }

    /// Cuts a storage from its producer, and deletes the path if no output is left.
    pub(super) fn cut_producer(&mut self, key: StorageKey) {
        self.tell_forgotten(key);
        if let Some(path) = self.store.cut(key) {
            self.remove_path(path);
        }
    }

    fn remove_path(&mut self, path: PathKey) {
        let mut unneeded = SmallVec::new();
        self.store.remove_path(path, |storage| unneeded.push(storage));
        self.forget(unneeded);
    }

    /// Deletes unneeded storages for good, then each source that became unneeded, and so on through
    /// the history. Uses no recursion, because a history may be deep.
    fn forget(&mut self, mut unneeded: SmallVec<[StorageKey; 4]>) {
        while let Some(key) = unneeded.pop() {
            // `unneeded` may contain a storage twice, if a path reads the storage twice.
            if !self.store.graph.storages.contains_key(key) {
                continue;
            }
            self.tell_forgotten(key);
            self.write_down_unheld(key);
            self.running_goes(key);
            let last_output_of = self.store.remove_storage(key);
            self.reasons.remove(key);
            self.tell(Event::DidDelete { storage: key });
            if let Some(path) = last_output_of {
                self.store.remove_path(path, |storage| unneeded.push(storage));
            }
        }
    }

    /// Sends the event that an evicted storage is about to be deleted or to lose its producer.
    /// Drops the storage's print, a record of its bits (`verify.rs`).
    fn tell_forgotten(&mut self, key: StorageKey) {
        if self.verify.is_some() {
            self.forget_bits(key);
        }
        if self.store.graph.is_evicted(key) {
            self.tell(Event::WillForget { storage: key });
        }
    }
}
