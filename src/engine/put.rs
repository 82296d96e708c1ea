//! Values from host memory.

use super::{Engine, Error, LastRun, PathKey, Residence, TensorKey};
use crate::device::Device;
use crate::store::{Body, Work};
use std::sync::Arc;

impl<D: Device> Engine<D> {
    /// Makes a tensor with the value `host`. The engine shares the host copy with the caller, and
    /// keeps it while the upload may have to run again. With the host copy, the tensor can be
    /// evicted like any other tensor; its compute path is the upload.
    /// [`Stats::host_bytes`](super::Stats::host_bytes) counts the host copies. [`Engine::commit`]
    /// frees the host copy of a tensor.
    ///
    /// If memory does not suffice, the value is uploaded when the tensor is read. If the upload
    /// fails, the tensor is lost; see [`Engine::take_failure`].
    pub fn put(&mut self, host: Arc<D::Host>) -> TensorKey {
        self.last_run = LastRun::default();
        let layout = D::layout_of(&host);
        let storage = self.add_storage(&layout);
        let tensor = self.store.graph.add_tensor(storage, layout);
        let path = self.store.graph.add_path(std::iter::empty(), std::iter::once(storage));
        let body = Body::new(Work::Upload(host), Vec::new(), std::iter::once(layout));
        self.store.host_bytes += layout.bytes();
        let result = self.run_path_of(path, &body, &[]).map_err(|failed| failed.error);
        self.store.bodies.insert(path, body);
        match result {
            Ok(()) => {}
            Err(Error::OutOfMemory(_)) => self.postpone(path),
            Err(error) => self.poison(&[storage], &error),
        }
        if !self.enabled {
            self.leaves_to_be.push(storage);
            self.make_leaves();
        }
        tensor
    }

    /// Makes a tensor with the value `host` that is a leaf from the start. A leaf cannot be
    /// evicted, so no host copy is kept. If memory does not suffice, the upload is postponed, and
    /// the tensor becomes a leaf with the upload.
    pub fn put_leaf(&mut self, host: Arc<D::Host>) -> TensorKey {
        let tensor = self.put(host);
        let storage = self.store.graph.tensors[tensor].storage;
        self.leaves_to_be.push(storage);
        self.make_leaves();
        tensor
    }

    /// Makes leaves of storages whose postponed upload has run since.
    pub(super) fn make_leaves(&mut self) {
        for key in std::mem::take(&mut self.leaves_to_be) {
            match self.store.graph.storages.get(key).map(|storage| storage.residence) {
                Some(Residence::Resident(_)) => self.make_leaf(key),
                Some(Residence::Evicted) => self.leaves_to_be.push(key),
                _ => {}
            }
        }
    }

    /// Postpones the first run of a path without inputs until an output is needed, because memory
    /// does not suffice.
    pub(super) fn postpone(&mut self, path: PathKey) {
        let body = self.store.bodies.remove(path).expect("a path has a body");
        self.last_run = self.expect_body(&body);
        self.store.graph.paths[path].cost = self.last_run.cost;
        self.store.bodies.insert(path, body);
        self.evict_unmade(path);
    }
}
