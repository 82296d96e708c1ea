//! Adding and removing paths, with their edges.

use super::{ComputePath, Edge, Graph, PathKey, Residence, StorageKey, Use};
use remat_memory::Held;

impl Graph {
    /// Adds a path that makes `outputs` from `inputs`. The outputs must have no producer yet.
    pub(crate) fn add_path(
        &mut self,
        inputs: impl Iterator<Item = StorageKey>,
        outputs: impl Iterator<Item = StorageKey>,
    ) -> PathKey {
        self.sequence += 1;
        let path = ComputePath { sequence: self.sequence, ..ComputePath::default() };
        let key = self.paths.insert(path);
        let path = &mut self.paths[key];
        for (input, storage) in inputs.enumerate() {
            let users = &mut self.storages[storage].users;
            path.inputs.push(Edge { storage, slot: users.len() as u32 });
            users.push(Use { path: key, input: input as u32 });
        }
        for storage in outputs {
            path.outputs.push(Some(storage));
            self.storages[storage].producer = Some(key);
        }
        key
    }

    /// Cuts a storage from its producer. Returns the path of the producer if it has no outputs left
    /// and is therefore unneeded.
    pub(crate) fn cut(&mut self, key: StorageKey) -> Option<PathKey> {
        let path = self.storages[key].producer.take()?;
        self.lose_output(path, key).then_some(path)
    }

    /// Removes an unneeded storage. Returns the storage's block, and the storage's path if the path
    /// has no outputs left.
    pub(crate) fn remove_storage(&mut self, key: StorageKey) -> (Option<Held>, Option<PathKey>) {
        let storage = self.storages.remove(key).expect("a storage is removed once");
        let held = match storage.residence {
            Residence::Resident(held) => Some(held),
            _ => None,
        };
        (held, storage.producer.filter(|&path| self.lose_output(path, key)))
    }

    /// Removes `key` from the outputs of `path`. Returns whether the path has no outputs left.
    fn lose_output(&mut self, path: PathKey, key: StorageKey) -> bool {
        let mut is_last = true;
        for output in &mut self.paths[path].outputs {
            if *output == Some(key) {
                *output = None;
            }
            is_last &= output.is_none();
        }
        is_last
    }

    /// Removes a path without outputs. Calls `unneeded` for each input that has no handle and no
    /// other reader.
    #[inline]
    pub(crate) fn remove_path(&mut self, key: PathKey, mut unneeded: impl FnMut(StorageKey)) {
        let mut path = self.paths.remove(key).expect("a path is removed once");
        debug_assert!(path.outputs.iter().all(Option::is_none), "a path goes after its outputs");
        for i in 0..path.inputs.len() {
            let Edge { storage, slot } = path.inputs[i];
            let users = &mut self.storages[storage].users;
            users.swap_remove(slot as usize);
            if let Some(moved) = users.get(slot as usize) {
                let inputs = if moved.path == key {
                    &mut path.inputs
                } else {
                    &mut self.paths[moved.path].inputs
                };
                inputs[moved.input as usize].slot = slot;
            }
            if !self.is_needed(storage) {
                unneeded(storage);
            }
        }
    }
}
