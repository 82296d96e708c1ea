//! Leaves: values without a compute path.

use super::{Engine, Error, StorageKey, TensorKey};
use crate::device::Device;
use crate::event::Event;

impl<D: Device> Engine<D> {
    /// Makes a tensor a leaf: regenerates the tensor if it is evicted, and cuts its compute path.
    /// Values that were kept only to restore the tensor are deleted. A leaf cannot be evicted.
    ///
    /// # Errors
    /// Fails if the key names no tensor, the tensor was lost to a failure, or memory does not suffice
    /// to regenerate the tensor.
    pub fn commit(&mut self, key: TensorKey) -> Result<(), Error> {
        self.working()?;
        let storage = self.tensor(key)?.storage;
        self.commit_storage(storage)
    }

    pub(super) fn commit_storage(&mut self, storage: StorageKey) -> Result<(), Error> {
        self.ensure(&[storage])?;
        self.make_leaf(storage);
        self.release_pins(&[storage]);
        Ok(())
    }

    /// Whether the budget can hold all of `storages` as leaves, together with all other bytes that
    /// cannot be evicted.
    pub(crate) fn fit_as_leaves(&mut self, storages: &[StorageKey]) -> bool {
        self.would_fit_as_leaves(storages)
            || self.take_back_kept() && self.would_fit_as_leaves(storages)
    }

    fn would_fit_as_leaves(&self, storages: &[StorageKey]) -> bool {
        let evictable = |key: &StorageKey| {
            let storage = self.store.graph.storage(*key);
            storage.producer.is_some() && (storage.pins == 0 || !self.store.graph.is_resident(*key))
        };
        let bytes = storages
            .iter()
            .filter(|key| evictable(key))
            .map(|&key| self.store.space.at_most(self.store.graph.storage(key).bytes));
        let leaves = self.store.space.used() - self.store.evictable_bytes();
        leaves.saturating_add(bytes.fold(0, u64::saturating_add)) <= self.store.space.capacity()
    }

    /// Makes leaves of resident storages: cuts them from their compute paths.
    #[inline(never)]
    pub(super) fn make_leaf_of_each(&mut self, storages: &[StorageKey]) {
        storages.iter().for_each(|&storage| self.make_leaf(storage));
    }

    /// Makes a leaf of a resident storage: cuts it from its compute path.
    pub(super) fn make_leaf(&mut self, storage: StorageKey) {
        if self.store.graph.storage(storage).producer.is_some() {
            let name = self.store.name_of(storage).into();
            self.store.graph.storages[storage].label.get_or_insert(name);
            self.cut_producer(storage);
            self.tell(Event::DidCommit { storage });
        }
    }

    /// Sets the name of a tensor's storage in reports.
    ///
    /// # Errors
    /// Fails if the key names no tensor.
    pub fn label(&mut self, key: TensorKey, label: &str) -> Result<(), Error> {
        let storage = self.tensor(key)?.storage;
        self.store.graph.storages[storage].label = Some(label.into());
        Ok(())
    }
}
