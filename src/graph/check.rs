//! Check of the graph's invariants.

use super::{Graph, Residence, StorageKey};

impl Graph {
    /// Checks that the tables agree with one another. Walks all tables.
    ///
    /// # Panics
    /// If an invariant is violated.
    pub(crate) fn check(&self) {
        let mut handles = slotmap::SecondaryMap::<StorageKey, u32>::new();
        for tensor in self.tensors.values() {
            *handles.entry(tensor.storage).expect("a tensor's storage exists").or_insert(0) += 1;
        }
        for (key, storage) in &self.storages {
            assert_eq!(
                storage.handles,
                handles.get(key).copied().unwrap_or(0),
                "handles of {key:?}"
            );
            assert!(self.is_needed(key), "{key:?} is kept though nobody needs it");
            for (slot, user) in storage.users.iter().enumerate() {
                let edge = self.paths[user.path].inputs[user.input as usize];
                assert_eq!(
                    (edge.storage, edge.slot as usize),
                    (key, slot),
                    "an edge is known at both ends"
                );
            }
            if let Some(path) = storage.producer {
                assert!(
                    self.paths[path].outputs.contains(&Some(key)),
                    "{key:?} and its producer disagree"
                );
            }
            match storage.residence {
                Residence::Resident(_) => {
                    assert_eq!(storage.candidate.is_some(), storage.producer.is_some());
                }
                Residence::Evicted => assert!(storage.producer.is_some(), "{key:?} is lost"),
                Residence::Pending | Residence::Poisoned => {}
            }
        }
        for (key, path) in &self.paths {
            assert!(
                path.outputs.iter().any(Option::is_some),
                "{key:?} is kept though nobody needs it"
            );
        }
    }
}
