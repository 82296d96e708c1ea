//! What storages and blocks are called in reports and events.

use super::Store;
use crate::device::Device;
use crate::graph::{Owner, PathKey, Residence, StorageKey};
use crate::memory::Snapshot;
use slotmap::Key as _;
use std::borrow::Cow;

impl<D: Device> Store<D> {
    /// What a storage is called in reports.
    pub fn name_of(&self, key: StorageKey) -> &str {
        self.graph.storage(key).label.as_deref().unwrap_or_else(|| self.op_of(key))
    }

    /// The op that makes a storage.
    pub fn op_of(&self, key: StorageKey) -> &str {
        self.graph.storage(key).producer.map_or("leaf", |path| self.op_of_path(path))
    }

    /// The op of a path.
    pub fn op_of_path(&self, path: PathKey) -> &str {
        match self.bodies.get(path) {
            Some(body) => body.work.name(),
            // It is away while it runs.
            None if self.running.is_empty() => "the op at hand",
            None => &self.running,
        }
    }

    /// What a storage is called in events: its label, or its number.
    pub fn tensor_name(&self, key: StorageKey) -> Cow<'_, str> {
        match &self.graph.storage(key).label {
            Some(label) => Cow::Borrowed(label),
            None => Cow::Owned(format!("{:?}", key.data())),
        }
    }

    /// Every chunk of the arena, with what the storages in it are called.
    pub fn snapshot(&self) -> Snapshot {
        self.space.snapshot(|owner| self.owner_name(owner).to_owned())
    }

    /// The same as text.
    pub fn memory_map(&self) -> String {
        let name = |owner| self.owner_name(owner).to_owned();
        self.space.arena().map_or_else(String::new, |arena| arena.dump(0, name))
    }

    /// What the owner of a block is called in reports.
    pub fn owner_name(&self, owner: u64) -> &str {
        self.owner(owner).map_or("scratch", |key| self.name_of(key))
    }

    /// Why the owner of a block holds it.
    pub fn reason(&self, owner: u64) -> &'static str {
        let storage = self.owner(owner).map(|key| self.graph.storage(key));
        // An output of the op at hand is placed before it is resident.
        let resident =
            storage.filter(|storage| matches!(storage.residence, Residence::Resident(_)));
        match resident {
            Some(storage) if storage.pins == 0 && storage.producer.is_none() => {
                "a leaf: cannot be recomputed"
            }
            Some(storage) if storage.pins == 0 => "evictable",
            _ => "in use by the op at hand",
        }
    }

    /// Whom [`Owner::number`] gave that number; `None` if it is scratch.
    fn owner(&self, number: u64) -> Option<StorageKey> {
        Owner::storage(number).filter(|&key| self.graph.storages.contains_key(key))
    }
}
