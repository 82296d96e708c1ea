//! Replacing a value by another one that was computed beside it, such as the running statistics of a batch
//! norm; and taking that back when the step fails.

use super::{Engine, Error, TensorInfo, TensorKey};
use crate::device::Device;
use crate::layout::Layout;
use crate::op::OpError;

impl<D: Device> Engine<D> {
    /// From now on `target` stands for `value`, which becomes a leaf. Returns the key for it; `target` is
    /// stale then.
    ///
    /// If `value` is lost or cannot be brought back, or something else of this step failed, nothing is
    /// replaced: the key is still `target`. If something fails later in this step, the new key stands for the
    /// old value again. A step ends with [`Engine::step`], or with the order to read or run what the next one needs.
    ///
    /// # Errors
    /// If a key is stale, or the two do not look alike: same type, same shape, contiguous. Nothing was done
    /// then.
    pub fn replace(&mut self, target: TensorKey, value: TensorKey) -> Result<TensorKey, Error> {
        self.working()?;
        let (old, new) = (self.tensor(target)?, self.tensor(value)?);
        // Either may be a part of a storage: of a view whose update was skipped, whoever holds it takes it for packed.
        let look = |layout: Layout| (layout.dtype(), *layout.shape(), layout.is_contiguous());
        if look(old.layout) != look(new.layout) || !old.layout.is_contiguous() {
            let message = format!("{} cannot take the place of {}", new.layout, old.layout);
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
        // Replaced twice in a step: it is the first value that would be taken back.
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

    /// What was replaced stays so.
    pub(super) fn keep_replaced(&mut self) {
        for (_, old) in std::mem::take(&mut self.replaced) {
            self.del(old);
        }
    }

    /// Keys that stand for new values stand for the old ones again, and are stale for this failure; or, if the old ones
    /// were stale before, for the failure of those.
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
