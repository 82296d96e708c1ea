//! Leaves that give way: a leaf without a handle is deleted, and values computed from it become
//! leaves instead.
//!
//! ```text
//! 2 MB ──gelu'──▶ 2 MB ──matmul──▶ 500 KB
//! leaf, dropped   dropped          held: becomes a leaf, and nothing needs the other two any more
//! ```
//!
//! A leaf cannot be evicted. After its last handle is dropped, a leaf stays in memory as long as a
//! held value may have to be regenerated from the leaf. Such leaves are common in backward passes:
//! an update in place makes leaves of gradients that are still on their way (`in_place.rs`).
//!
//! Held values that together are no larger than the dropped leaf become leaves themselves, and the
//! dropped leaf is deleted. The total size of leaves therefore never grows.
//!
//! No leaf gives way between two steps. Otherwise, a value that is kept for a few steps would
//! become a leaf, and plans would fit the memory of only these steps.

use super::{Engine, StorageKey};
use crate::device::Device;

/// Limit on the number of edges visited to find the values computed from a leaf. A leaf with more
/// edges stays.
const NEAR: usize = 64;

impl<D: Device> Engine<D> {
    /// Deletes a leaf without a handle, if resident values that are no larger can become leaves in
    /// its place. Returns whether the leaf was deleted.
    pub(super) fn gives_way(&mut self, leaf: StorageKey) -> bool {
        let graph = &self.store.graph;
        let is_leaf = graph.storage(leaf).producer.is_none() && graph.is_resident(leaf);
        if !is_leaf || self.is_between_steps() {
            return false;
        }
        let (held, edges) = graph.heirs(leaf, NEAR);
        if edges == NEAR {
            return false;
        }
        let bytes = |key: StorageKey| self.store.space.at_most(self.store.graph.storage(key).bytes);
        if held.iter().map(|&key| bytes(key)).fold(0, u64::saturating_add) > bytes(leaf) {
            return false;
        }
        let are_resident = held.iter().all(|&key| self.store.graph.is_resident(key));
        let gives_way = match &mut self.store.script {
            // The script decides, because a value that was evicted then may be resident now.
            Some(script) => script.gives_way.pop_front().unwrap_or(false) && are_resident,
            None => {
                if let Some(tape) = &mut self.store.tape {
                    tape.gives_way.push(are_resident);
                }
                are_resident
            }
        };
        if !gives_way {
            return false;
        }
        self.make_leaf_of_each(&held);
        debug_assert!(!self.store.graph.contains(leaf), "nothing needs the leaf any more");
        true
    }
}
