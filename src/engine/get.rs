//! Reading and evicting at the user's word.

use super::guard::guarded;
use super::{Engine, Error, TensorKey};
use crate::device::{Device, Place};

impl<D: Device> Engine<D> {
    /// The value of a tensor: regenerated if it was evicted, pinned while it is copied.
    ///
    /// # Errors
    /// If the key is stale, the tensor is poisoned, regenerating it does not fit, or the copy failed.
    /// Except when it was poisoned already, the tensor is as it was.
    pub fn get(&mut self, key: TensorKey) -> Result<D::Host, Error> {
        let tensor = self.tensor(key)?;
        if let Some(reason) = self.reasons.get(tensor.storage) {
            // Whoever asked is told now.
            self.failures.retain(|failure| !failure.is(reason));
            return Err(reason.clone());
        }
        self.ensure(&[tensor.storage])?;
        let block = self.table.block(tensor.storage).expect("just made resident");
        let place = Place { storage: self.arena.offset(block), layout: tensor.layout };
        let host = guarded("get", || self.device.read(place));
        self.release_pins(&[tensor.storage]);
        host
    }

    /// A wish to evict a tensor's storage now. Returns whether its bytes went: they stay if it is a
    /// leaf, or gone already.
    ///
    /// # Errors
    /// If the key is stale.
    pub fn drop_now(&mut self, key: TensorKey) -> Result<bool, Error> {
        let storage = self.tensor(key)?.storage;
        let evictable =
            self.table.block(storage).is_some() && self.table.storage(storage).producer.is_some();
        if evictable {
            self.stats.evictions += 1;
            self.stats.evicted_bytes += self.table.storage(storage).bytes;
            self.evict(storage);
        }
        Ok(evictable)
    }
}
