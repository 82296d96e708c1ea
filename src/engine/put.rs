//! Values from host memory.

use super::{Body, Engine, LastRun, TensorKey, Work};
use crate::device::Device;
use std::sync::Arc;

impl<D: Device> Engine<D> {
    /// A tensor with the value `host`. The host copy is shared, and kept while it may be needed, so
    /// the tensor can be evicted like any other: its compute path is the upload.
    ///
    /// If there is no memory for it, the tensor is poisoned; see [`Engine::take_failure`].
    pub fn put(&mut self, host: Arc<D::Host>) -> TensorKey {
        self.last_run = LastRun::default();
        let layout = D::layout_of(&host);
        let storage = self.table.add_storage(layout.bytes(), self.now, self.step);
        let tensor = self.table.add_tensor(storage, layout);
        let path = self.table.add_path(std::iter::empty(), std::iter::once(storage));
        let body = Body::new(Work::Upload(host), Vec::new(), std::iter::once(layout));
        self.bodies.insert(path, body);
        if let Err(error) = self.run_path(path, false) {
            self.poison(&[storage], &error);
        }
        tensor
    }
}
