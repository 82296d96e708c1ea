//! Leaves: values without a history.

use super::{Engine, Error, StorageKey, TensorKey};
use crate::device::Device;

impl<D: Device> Engine<D> {
    /// Makes a tensor a leaf: resident, its compute path cut, its history free to go. It cannot be
    /// evicted any more.
    ///
    /// # Errors
    /// If the key is stale, the tensor is poisoned, or regenerating it does not fit.
    pub fn commit(&mut self, key: TensorKey) -> Result<(), Error> {
        let storage = self.tensor(key)?.storage;
        self.commit_storage(storage)
    }

    pub(super) fn commit_storage(&mut self, storage: StorageKey) -> Result<(), Error> {
        self.ensure(&[storage])?;
        self.make_leaf(storage);
        self.release_pins(&[storage]);
        Ok(())
    }

    /// Cuts a resident storage from its producer.
    pub(super) fn make_leaf(&mut self, storage: StorageKey) {
        if self.table.storage(storage).producer.is_some() {
            let name = self.name_of(storage).into();
            self.table.storages[storage].label.get_or_insert(name);
            self.cut_producer(storage);
        }
    }

    /// What to call a tensor's storage in reports.
    ///
    /// # Errors
    /// If the key is stale.
    pub fn label(&mut self, key: TensorKey, label: &str) -> Result<(), Error> {
        let storage = self.tensor(key)?.storage;
        self.table.storages[storage].label = Some(label.into());
        Ok(())
    }
}
