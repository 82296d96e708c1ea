//! The graph: tensors, storages, compute paths, and the edges between them.
//!
//! ```text
//!   tensor ──┐                        ┌── tensor (a view)
//!            ▼                        ▼
//!         storage ──Use──▶ path ──▶ storage ──Use──▶ path ──▶ storage
//!                         (an op)                   (an op)
//! ```
//!
//! A tensor is a handle's view of a storage. When the handle is dropped, the tensor's slot is
//! freed. A storage and its compute path stay as long as other storages may be regenerated from
//! them.
//!
//! The graph only has tables. Evictors choose the storages to evict, and the store moves bytes. The
//! graph does not depend on the op type or the device, so an evictor, which knows neither, can read
//! the whole graph.

mod check;
mod edges;
mod foreseen;
mod future;
mod owner;

pub use foreseen::Foreseen;
pub use future::Future;
pub(crate) use future::Root;
pub(crate) use owner::Owner;

use crate::layout::Layout;
use remat_memory::Held;
use rustc_hash::FxHashSet;
use slotmap::{SlotMap, new_key_type};
use smallvec::SmallVec;
use std::sync::Arc;

/// Storages that one op reads or makes.
pub(crate) type StorageKeys = SmallVec<[StorageKey; 4]>;

new_key_type! {
    /// Key of a tensor that the engine's user holds.
    pub struct TensorKey;
    /// Key of a storage: the bytes of one or more tensors, and the unit of eviction.
    pub struct StorageKey;
    /// Key of a compute path: how storages were made.
    pub struct PathKey;
}

/// Tensor in the engine: a layout over a storage.
#[derive(Clone, Copy, Debug)]
#[doc(alias = "TensorImpl")]
pub struct TensorInfo {
    /// Storage that holds the tensor's bytes.
    pub storage: StorageKey,
    /// Layout of the tensor on the bytes of the storage.
    pub layout: Layout,
}

/// State of a storage's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residence {
    /// The op that makes the bytes has not run yet.
    Pending,
    /// The bytes are on the device.
    Resident(Held),
    /// The bytes are evicted, and the compute path can restore them. The storage has a producer.
    Evicted,
    /// The bytes are lost for good, because the op failed. The engine keeps the error for the next
    /// reader.
    Poisoned,
}

/// Bytes that are on the device or can be restored.
///
/// A storage exists if and only if it has a tensor (`handles > 0`) or a path reads it (`users` is
/// not empty).
#[derive(Debug)]
#[doc(alias = "buffer")]
pub struct Storage {
    /// Requested size in bytes. The arena may round the size up.
    pub bytes: u64,
    /// State of the bytes, such as resident or evicted.
    pub residence: Residence,
    /// Number of tensors of the storage.
    pub handles: u32,
    /// Number of pins. A storage is pinned while it is an operand of the current op, or while the
    /// host reads it. A pinned storage is never evicted.
    pub pins: u32,
    /// Number of readers still to run in the current regeneration. An awaited storage is evicted
    /// only when no other candidate is left, and is not dropped as dead.
    pub awaited: u32,
    /// Path that makes the storage; `None` for a leaf, which can never be evicted.
    pub producer: Option<PathKey>,
    /// Readers of the storage: one entry for each path input that is the storage.
    pub users: SmallVec<[Use; 2]>,
    /// Engine clock time when an op last read or made the storage.
    pub last_used: f64,
    /// Whether the storage is on the engine's list of dead storages, which are evicted before all
    /// others.
    pub(crate) lingers: bool,
    /// State of the storage as a [running value](Runs): a small value with a long history.
    pub(crate) runs: Runs,
    /// Whether the storage was a resident leaf when its last handle was dropped.
    pub(crate) left_as_leaf: bool,
    /// Number of times that the storage was recomputed.
    pub recomputed: u32,
    /// Number of the step that made the storage.
    pub born: u64,
    /// Number of the oldest step that the storage's history reaches through unheld storages. The
    /// number is valid only while no handle holds the storage.
    pub(crate) oldest: u64,
    /// Name in reports: set by the user, or copied from the op when the storage is cut from its
    /// path.
    pub label: Option<Arc<str>>,
    /// Position in the store's list of candidates. `Some` if and only if the storage is resident
    /// and has a producer.
    pub(crate) candidate: Option<u32>,
}

/// State of a storage as a running value: a small value with a long history, such as a sum of
/// losses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Runs {
    #[default]
    No,
    /// A running value that could not be made a leaf so far.
    Still,
    /// A running value that was made a leaf.
    AsLeaf,
}

/// Use of a storage by a path, as input number `input`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// Path that reads the storage.
    pub path: PathKey,
    /// Position among the path's inputs.
    pub input: u32,
}

/// One input of a path.
#[derive(Clone, Copy, Debug)]
pub struct Edge {
    /// Storage that is read.
    pub storage: StorageKey,
    /// Position of the edge in the storage's list of users: `storages[storage].users[slot]` is the
    /// edge.
    slot: u32,
}

/// Producer of storages: its edges and cost. The store keeps the op itself.
///
/// A path exists if and only if at least one of its outputs exists and has not been cut from the
/// path.
#[derive(Debug, Default)]
#[doc(alias("history", "rematerialization", "checkpointing"))]
pub struct ComputePath {
    /// Inputs in order, repeats included.
    pub inputs: SmallVec<[Edge; 3]>,
    /// Outputs in order. `None` for a storage that was deleted or cut from the path; the next run
    /// discards the output.
    pub outputs: SmallVec<[Option<StorageKey>; 2]>,
    /// Cost of one run, in units of the cost model.
    pub cost: f64,
    /// Whether the path ran before.
    pub ran: bool,
    /// Number of the path, in order of creation. The inputs of a path were made by paths with lower
    /// numbers.
    pub sequence: u64,
}

/// All tables of tensors, storages and paths. The key of a deleted entry finds nothing.
#[derive(Debug, Default)]
pub struct Graph {
    pub(crate) tensors: SlotMap<TensorKey, TensorInfo>,
    pub(crate) storages: SlotMap<StorageKey, Storage>,
    pub(crate) paths: SlotMap<PathKey, ComputePath>,
    pub(crate) future: Future,
    /// Number of paths added so far.
    sequence: u64,
}

impl Graph {
    pub(crate) fn reserve(&mut self, tensors: usize) {
        self.tensors.reserve(tensors);
        self.storages.reserve(tensors);
        self.paths.reserve(tensors);
    }

    /// The tensor with the key `key`.
    #[must_use]
    pub fn tensor(&self, key: TensorKey) -> Option<&TensorInfo> {
        self.tensors.get(key)
    }

    /// The storage with the key `key`.
    ///
    /// # Panics
    /// If the storage was deleted.
    #[must_use]
    #[inline]
    pub fn storage(&self, key: StorageKey) -> &Storage {
        &self.storages[key]
    }

    /// Whether a storage exists, resident or not.
    #[must_use]
    pub fn contains(&self, key: StorageKey) -> bool {
        self.storages.contains_key(key)
    }

    /// The path with the key `key`.
    ///
    /// # Panics
    /// If the path was removed.
    #[must_use]
    #[inline]
    pub fn path(&self, key: PathKey) -> &ComputePath {
        &self.paths[key]
    }

    /// Uses of storages by admitted commands that have not run yet.
    #[must_use]
    pub const fn future(&self) -> &Future {
        &self.future
    }

    /// All storages, in no particular order.
    pub fn storages(&self) -> impl Iterator<Item = (StorageKey, &Storage)> {
        self.storages.iter()
    }

    /// Number of tensors, storages and paths.
    #[must_use]
    pub fn counts(&self) -> (usize, usize, usize) {
        (self.tensors.len(), self.storages.len(), self.paths.len())
    }

    /// Cost of one run of the producer of `key`; 0 for a leaf.
    #[must_use]
    pub fn own_cost(&self, key: StorageKey) -> f64 {
        self.storages[key].producer.map_or(0.0, |path| self.paths[path].cost)
    }

    /// Whether the bytes can be evicted now: the storage is resident, has a producer, and is not
    /// pinned.
    #[must_use]
    #[inline]
    pub fn is_evictable(&self, key: StorageKey) -> bool {
        let storage = &self.storages[key];
        storage.candidate.is_some() && storage.pins == 0
    }

    /// Whether the bytes are evicted and can be restored.
    #[must_use]
    #[inline]
    pub fn is_evicted(&self, key: StorageKey) -> bool {
        self.storages[key].residence == Residence::Evicted
    }

    /// Inputs of the producer of `key`, repeats included.
    pub fn sources(&self, key: StorageKey) -> impl Iterator<Item = StorageKey> {
        self.storages[key]
            .producer
            .into_iter()
            .flat_map(|path| self.paths[path].inputs.iter().map(|e| e.storage))
    }

    /// Outputs of the producer of `key`, without `key` itself.
    pub fn siblings(&self, key: StorageKey) -> impl Iterator<Item = StorageKey> {
        let producer = self.storages[key].producer;
        producer
            .into_iter()
            .flat_map(|path| self.paths[path].outputs.iter().flatten().copied())
            .filter(move |&other| other != key)
    }

    /// Outputs of all paths that read `key`, repeats included.
    pub fn dependents(&self, key: StorageKey) -> impl Iterator<Item = StorageKey> {
        self.storages[key]
            .users
            .iter()
            .flat_map(|u| self.paths[u.path].outputs.iter().flatten().copied())
    }

    /// Held storages that are computed from `source` through unheld storages only, and the number of
    /// edges visited. Visits at most `most` edges, so storages may be missing if that many were
    /// visited.
    pub(crate) fn heirs(&self, source: StorageKey, most: usize) -> (StorageKeys, usize) {
        let mut heirs = StorageKeys::new();
        let mut seen = FxHashSet::default();
        let mut stack: StorageKeys = self.dependents(source).take(most).collect();
        let mut edges = stack.len();
        while let Some(key) = stack.pop() {
            if !seen.insert(key) {
                continue;
            }
            if self.storages[key].handles > 0 {
                heirs.push(key);
            } else {
                let known = stack.len();
                stack.extend(self.dependents(key).take(most - edges));
                edges += stack.len() - known;
            }
        }
        (heirs, edges)
    }

    /// Whether the storage has a tensor, or a path reads it.
    #[inline]
    pub(crate) fn is_needed(&self, key: StorageKey) -> bool {
        let storage = &self.storages[key];
        storage.handles > 0 || !storage.users.is_empty()
    }

    /// Adds a storage that has no tensors yet, as [`Residence::Pending`], because the op that makes
    /// its bytes has not run.
    #[inline]
    pub(crate) fn add_storage(&mut self, bytes: u64, now: f64, born: u64) -> StorageKey {
        self.storages.insert(Storage {
            bytes,
            residence: Residence::Pending,
            handles: 0,
            pins: 0,
            awaited: 0,
            producer: None,
            users: SmallVec::new(),
            last_used: now,
            lingers: false,
            runs: Runs::No,
            left_as_leaf: false,
            recomputed: 0,
            born,
            oldest: born,
            label: None,
            candidate: None,
        })
    }

    /// Adds a tensor of `storage`.
    #[inline]
    pub(crate) fn add_tensor(&mut self, storage: StorageKey, layout: Layout) -> TensorKey {
        self.storages[storage].handles += 1;
        self.tensors.insert(TensorInfo { storage, layout })
    }

    /// Inputs of a path, repeats included.
    #[inline]
    pub(crate) fn inputs_of(&self, path: PathKey) -> StorageKeys {
        // Use a loop, because this code runs for every op, and `collect` takes several times as
        // long.
        let mut inputs = StorageKeys::new();
        self.paths[path].inputs.iter().for_each(|edge| inputs.push(edge.storage));
        inputs
    }

    /// Outputs of a path that still exist and were not cut from the path.
    pub(crate) fn outputs_of(&self, path: PathKey) -> StorageKeys {
        self.paths[path].outputs.iter().flatten().copied().collect()
    }

    /// Block of a resident storage; `None` if the storage is not resident.
    #[inline]
    pub(crate) fn held(&self, key: StorageKey) -> Option<Held> {
        match self.storages[key].residence {
            Residence::Resident(held) => Some(held),
            _ => None,
        }
    }

    /// Whether the bytes are on the device now.
    #[must_use]
    #[inline]
    pub fn is_resident(&self, key: StorageKey) -> bool {
        matches!(self.storages[key].residence, Residence::Resident(_))
    }
}
