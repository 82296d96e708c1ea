//! Replaces a value by a newly computed value, such as the running statistics of a batch norm. The
//! replacement is undone if the step fails.

use super::{Engine, Error, TensorInfo, TensorKey};
use crate::device::Device;
use crate::layout::Layout;
use crate::op::OpError;

impl<D: Device> Engine<D> {
    /// Replaces the value of `target` by `value`, which becomes a leaf. Returns the new key;
    /// afterwards, the key `target` names no tensor.
    ///
    /// `target` itself is returned, and keeps its value, if `value` is lost or cannot be restored, or
    /// if another command of the step failed. If a later command of the step fails, the new
    /// key names the old value again. A step ends with [`Engine::step`], or with
    /// [`Engine::confirm`].
    ///
    /// # Errors
    /// Fails if a key names no tensor, or if the two tensors differ in type, shape or contiguity.
    /// After an error, nothing was done.
    pub fn replace(&mut self, target: TensorKey, value: TensorKey) -> Result<TensorKey, Error> {
        self.working()?;
        let (old, new) = (self.tensor(target)?, self.tensor(value)?);
        // Do not compare offsets, because either tensor may be a part of a storage. After a skipped
        // update, a handle may be a view although its holder expects a packed value.
        let look = |layout: Layout| (layout.dtype(), *layout.shape(), layout.is_contiguous());
        if look(old.layout) != look(new.layout) || !old.layout.is_contiguous() {
            let message = format!("{} cannot replace {}", new.layout, old.layout);
            return Err(OpError::new("replace", message).into());
        }
        let known = self.reasons.get(new.storage).or(self.failures.of_stale(value));
        if let Some(error) = known.or(self.failures.of_step()).cloned() {
            self.keep_old(&[target], &error);
            return Ok(target);
        }
        if let Err(error) = self.commit_storage(new.storage) {
            self.keep_failure(&error);
            self.keep_old(&[target], &error);
            return Ok(target);
        }
        let key = self.store.graph.add_tensor(new.storage, new.layout);
        // If `target` is itself the result of a replacement in the current step, a failure must
        // restore the value from before both replacements.
        let old = match self.replaced.remove(&target) {
            Some(first) => {
                self.del(target);
                first
            }
            None => target,
        };
        self.replaced.insert(key, old);
        Ok(key)
    }

    /// Makes the replacements of the current step final.
    pub(super) fn keep_replaced(&mut self) {
        for (_, old) in std::mem::take(&mut self.replaced) {
            self.del(old);
        }
    }

    /// Undoes the replacements of the current step: the new keys name the old values again. The new
    /// keys count as stale handles because of `error`, or because of an older failure if the old
    /// keys were already stale.
    pub(super) fn take_back(&mut self, error: &Error) {
        for (key, old) in std::mem::take(&mut self.replaced) {
            let Ok(before) = self.tensor(old) else { continue };
            let why = self.failures.of_stale(old).unwrap_or(error).clone();
            self.failures.make_stale(key, &why);
            if let Some(tensor) = self.store.graph.tensors.get_mut(key) {
                let TensorInfo { storage, .. } = std::mem::replace(tensor, before);
                self.store.graph.storages[before.storage].handles += 1;
                self.store.graph.storages[storage].handles -= 1;
                self.settle(storage);
            }
            self.del(old);
        }
    }
}
