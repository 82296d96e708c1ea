//! Residence, pins and uses of storages. Each method changes the graph and the list of candidates
//! together. A candidate is a resident storage with a producer, which can be evicted unless it is
//! pinned.

use super::{Store, Work};
use crate::device::Device;
use crate::graph::{Owner, PathKey, Residence, Storage, StorageKey};
use remat_memory::Held;

/// Position in the list of candidates, and block; `None` if the storage is not a candidate.
fn candidacy(storage: &Storage) -> Option<(u32, Held)> {
    match (storage.candidate, storage.residence) {
        (Some(position), Residence::Resident(held)) => Some((position, held)),
        _ => None,
    }
}

impl<D: Device> Store<D> {
    /// Makes a storage resident in the block `held`.
    #[inline]
    pub fn set_resident(&mut self, key: StorageKey, held: Held) {
        let storage = &mut self.graph.storages[key];
        debug_assert!(
            !matches!(storage.residence, Residence::Resident(_)),
            "a storage is placed once"
        );
        storage.residence = Residence::Resident(held);
        if storage.producer.is_some() {
            self.candidates.add(key, storage, held);
        }
    }

    /// Gives a resident storage another block of the same size, and frees the old block.
    pub fn replace_block(&mut self, key: StorageKey, block: Held) {
        let residence = &mut self.graph.storages[key].residence;
        if let Residence::Resident(before) =
            std::mem::replace(residence, Residence::Resident(block))
        {
            self.free(before);
        }
    }

    /// Hands the block of the resident storage `from` to the storage `to`. `from` counts as evicted.
    pub fn hand_over(&mut self, from: StorageKey, to: StorageKey) {
        self.remove_candidate(from);
        let residence = &mut self.graph.storages[from].residence;
        let Residence::Resident(held) = std::mem::replace(residence, Residence::Evicted) else {
            unreachable!("a storage that is written over is resident")
        };
        self.space.set_owner(held, Owner::Storage(to).number());
        self.set_resident(to, held);
    }

    /// Frees the block of `key`, if it has a block, and sets the residence to `why`. Returns
    /// whether a block was freed.
    #[inline]
    pub fn set_absent(&mut self, key: StorageKey, why: Residence) -> bool {
        self.remove_candidate(key);
        match std::mem::replace(&mut self.graph.storages[key].residence, why) {
            Residence::Resident(held) => {
                self.free(held);
                true
            }
            _ => false,
        }
    }

    /// Makes a storage a leaf by cutting it from its producer. Returns the producer's path if the
    /// path has no outputs left.
    pub fn cut(&mut self, key: StorageKey) -> Option<PathKey> {
        self.remove_candidate(key);
        self.graph.cut(key)
    }

    /// Removes an unneeded storage. Returns the storage's path if the path has no outputs left.
    #[inline]
    pub fn remove_storage(&mut self, key: StorageKey) -> Option<PathKey> {
        self.remove_candidate(key);
        let (held, last_output_of) = self.graph.remove_storage(key);
        if let Some(held) = held {
            self.free(held);
        }
        last_output_of
    }

    /// Removes a path without outputs. Calls `unneeded` for each input that has no handle and no
    /// other reader.
    #[inline]
    pub fn remove_path(&mut self, path: PathKey, unneeded: impl FnMut(StorageKey)) {
        self.graph.remove_path(path, unneeded);
        let Some(body) = self.bodies.remove(path) else { return };
        if let Work::Upload(host) = &body.work {
            self.host_bytes -= D::layout_of(host).bytes();
        }
        self.reuse(body.layouts);
    }

    /// Notes that an op reads or makes the storage now.
    #[inline(always)]
    pub fn touch(&mut self, key: StorageKey) {
        let storage = &mut self.graph.storages[key];
        storage.last_used = self.now;
        if let Some(position) = storage.candidate {
            self.candidates.touch(position, self.now);
        }
    }

    /// Pins a storage, which prevents its eviction until [`Store::unpin`]. The block may still be
    /// moved.
    #[inline(always)]
    pub fn pin(&mut self, key: StorageKey) {
        let storage = &mut self.graph.storages[key];
        storage.pins += 1;
        if storage.pins == 1
            && let Some((position, held)) = candidacy(storage)
        {
            self.candidates.pinned(position, held);
        }
    }

    /// Removes one pin. Returns whether no pin is left.
    #[inline]
    pub fn unpin(&mut self, key: StorageKey) -> bool {
        let storage = &mut self.graph.storages[key];
        storage.pins -= 1;
        if storage.pins == 0
            && let Some((position, held)) = candidacy(storage)
        {
            self.candidates.unpinned(position, storage, held);
        }
        storage.pins == 0
    }

    /// Marks the inputs of `path` as awaited by one more run.
    pub fn await_inputs(&mut self, path: PathKey) {
        self.change_awaited(path, 1);
    }

    /// Reverses [`Store::await_inputs`], after the run is done or was given up.
    pub fn stop_awaiting_inputs(&mut self, path: PathKey) {
        self.change_awaited(path, -1);
    }

    fn change_awaited(&mut self, path: PathKey, by: i32) {
        for edge in &self.graph.paths[path].inputs {
            let storage = &mut self.graph.storages[edge.storage];
            storage.awaited = storage.awaited.strict_add_signed(by);
            if let Some((position, held)) = candidacy(storage) {
                self.candidates.awaited(position, storage, held);
            }
        }
    }

    #[inline]
    fn remove_candidate(&mut self, key: StorageKey) {
        let storage = &mut self.graph.storages[key];
        let Some((_, held)) = candidacy(storage) else { return };
        if let Some((moved, position)) = self.candidates.remove(storage, held) {
            self.graph.storages[moved].candidate = Some(position);
        }
    }
}
