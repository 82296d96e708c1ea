//! Names of storages and blocks in reports and events.

use super::Store;
use crate::device::Device;
use crate::graph::{Owner, PathKey, Residence, StorageKey};
use remat_memory::{Held, Snapshot};
use slotmap::Key as _;
use std::borrow::Cow;

/// Number of holders that an error lists.
const HOLDERS: usize = 5;

impl<D: Device> Store<D> {
    /// Name of a storage in reports: its label, or the name of its op if it has no label.
    pub fn name_of(&self, key: StorageKey) -> &str {
        self.graph.storage(key).label.as_deref().unwrap_or_else(|| self.op_of(key))
    }

    /// Name of the op that makes a storage; `leaf` for a leaf.
    pub fn op_of(&self, key: StorageKey) -> &str {
        self.graph.storage(key).producer.map_or("leaf", |path| self.op_of_path(path))
    }

    /// Name of the op of a path.
    pub fn op_of_path(&self, path: PathKey) -> &str {
        match self.bodies.get(path) {
            Some(body) => body.work.name(),
            // While a path runs, its body is not in the table.
            None if self.running.is_empty() => "the current op",
            None => &self.running,
        }
    }

    /// Name of a storage in events: its label, or its number if it has no label.
    pub fn tensor_name(&self, key: StorageKey) -> Cow<'_, str> {
        match &self.graph.storage(key).label {
            Some(label) => Cow::Borrowed(label),
            None => Cow::Owned(format!("{:?}", key.data())),
        }
    }

    /// Snapshot of every chunk of the arena, with the names of the storages in the chunks.
    pub fn snapshot(&self) -> Snapshot {
        self.space.snapshot(|owner| self.owner_name(owner).to_owned())
    }

    /// Text form of [`Store::snapshot`]; empty without an arena.
    pub fn memory_map(&self) -> String {
        let name = |owner| self.owner_name(owner).to_owned();
        self.space.arena().map_or_else(String::new, |arena| arena.dump(0, name))
    }

    /// Name of a block's owner in reports; `scratch` if the owner is not a storage.
    pub fn owner_name(&self, owner: u64) -> &str {
        self.owner(owner).map_or("scratch", |key| self.name_of(key))
    }

    /// Reason why the owner of a block cannot be evicted, or `evictable`.
    pub fn reason(&self, owner: u64) -> &'static str {
        let storage = self.owner(owner).map(|key| self.graph.storage(key));
        // An output of the current op already has a block, but is not resident yet.
        let resident =
            storage.filter(|storage| matches!(storage.residence, Residence::Resident(_)));
        match resident {
            Some(storage) if storage.pins == 0 && storage.producer.is_none() => {
                "a leaf: cannot be recomputed"
            }
            Some(storage) if storage.pins == 0 => "evictable",
            _ => "in use by this op",
        }
    }

    /// Largest holders of memory: for each, its name, its bytes, and the reason why the bytes
    /// cannot be evicted.
    pub fn holders(&self) -> Vec<(String, u64, &'static str)> {
        let held: Vec<(u64, u64)> = match self.space.arena() {
            Some(arena) => arena.report().holders.iter().map(|h| (h.owner, h.bytes)).collect(),
            None => self.largest_resident(HOLDERS),
        };
        let tell = |(owner, bytes)| (self.owner_name(owner).to_owned(), bytes, self.reason(owner));
        held.into_iter().map(tell).collect()
    }

    /// Owner's number and bytes of the largest resident storages, for a device without an arena.
    fn largest_resident(&self, most: usize) -> Vec<(u64, u64)> {
        let resident = self.graph.storages().filter_map(|(key, storage)| {
            let Residence::Resident(Held { bytes, .. }) = storage.residence else { return None };
            Some((Owner::Storage(key).number(), bytes))
        });
        let mut resident: Vec<_> = resident.collect();
        // Of equal sizes, the older storage comes first.
        resident.sort_by_key(|&(_, bytes)| std::cmp::Reverse(bytes));
        resident.truncate(most);
        resident
    }

    /// Storage with a number from [`Owner::number`]; `None` for scratch, and for a removed storage.
    fn owner(&self, number: u64) -> Option<StorageKey> {
        Owner::storage(number).filter(|&key| self.graph.storages.contains_key(key))
    }
}
