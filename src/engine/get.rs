//! Reading a value.

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
        let block = self.table.held(tensor.storage).expect("just made resident");
        let place = Place { storage: self.space.offset(block), layout: tensor.layout };
        let host = guarded("get", || self.device.read(place));
        self.release_pins(&[tensor.storage]);
        host
    }
}
