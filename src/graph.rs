//! The graph: tensors, storages, compute paths, and the edges between them.
//!
//! ```text
//!   tensor ──┐                        ┌── tensor (a view)
//!            ▼                        ▼
//!         storage ──Use──▶ path ──▶ storage ──Use──▶ path ──▶ storage
//!                         (an op)                   (an op)
//! ```
//!
//! A tensor is a handle's view of a storage: its slot goes when the handle goes. What stays as long
//! as it may be needed again is the storage, and the compute path that makes it.
//!
//! Tables without opinions: what is worth keeping is for an evictor to say, and what happens to bytes is up to the
//! store. Nothing in here knows the op type or the device, so an evictor can read all of it.

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
use crate::memory::Held;
use slotmap::{SlotMap, new_key_type};
use smallvec::SmallVec;
use std::sync::Arc;

/// Storages that one op reads or makes.
pub(crate) type StorageKeys = SmallVec<[StorageKey; 4]>;

new_key_type! {
    /// A tensor the engine's user holds.
    pub struct TensorKey;
    /// The bytes that one or more tensors look at. What is evicted.
    pub struct StorageKey;
    /// How storages were made.
    pub struct PathKey;
}

/// What the engine knows of a tensor: a layout over a storage.
#[derive(Clone, Copy, Debug)]
#[doc(alias = "TensorImpl")]
pub struct TensorInfo {
    /// Whose bytes it looks at.
    pub storage: StorageKey,
    /// How it looks at them.
    pub layout: Layout,
}

/// Where the bytes of a storage are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residence {
    /// Its op has not run yet.
    Pending,
    /// On the device.
    Resident(Held),
    /// Nowhere; its compute path can bring them back. Implies that there is a producer.
    Evicted,
    /// Nowhere, for good: making them failed, and the error was kept for whoever asks.
    Poisoned,
}

/// Bytes on the device, or the promise to bring them back.
///
/// A storage exists iff a tensor looks at it (`handles > 0`) or a path reads it (`users` is not
/// empty).
#[derive(Debug)]
#[doc(alias = "buffer")]
pub struct Storage {
    /// Size asked for; the arena may round it up.
    pub bytes: u64,
    /// Where the bytes are.
    pub residence: Residence,
    /// Number of tensors that look at it.
    pub handles: u32,
    /// While above 0, the storage is an input or output of the op at hand, or being read: it is
    /// resident and not evicted.
    pub pins: u32,
    /// Runs of the regeneration at hand that are still to come and read it. While above 0, it is
    /// evicted only when nothing else is left, and not dropped as dead.
    pub awaited: u32,
    /// The path that makes it; `None` for a leaf, which can never be evicted.
    pub producer: Option<PathKey>,
    /// One entry for each time a path reads it.
    pub users: SmallVec<[Use; 2]>,
    /// Engine clock when an op last read or made it.
    pub last_used: f64,
    /// Whether the engine has it on the list of what goes first.
    pub(crate) lingers: bool,
    /// Whether it is a running value.
    pub(crate) runs: Runs,
    /// Whether it was a leaf when its last handle went.
    pub(crate) left_as_leaf: bool,
    /// How often it was brought back.
    pub recomputed: u32,
    /// The step it was made in.
    pub born: u64,
    /// While nobody holds it: the first step in which it, or what it is made from without being held, was made.
    pub(crate) oldest: u64,
    /// What to call it in reports once its path is gone.
    pub label: Option<Arc<str>>,
    /// Position among the store's candidates. `Some` iff it is resident and has a producer.
    pub(crate) candidate: Option<u32>,
}

/// Whether a storage is a running value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Runs {
    #[default]
    No,
    /// It could not be made a leaf.
    Still,
    /// It was made a leaf.
    AsLeaf,
}

/// A path reads a storage as its input number `input`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// The reader.
    pub path: PathKey,
    /// Position among its inputs.
    pub input: u32,
}

/// One input of a path.
#[derive(Clone, Copy, Debug)]
pub struct Edge {
    /// What is read.
    pub storage: StorageKey,
    /// `storages[storage].users[slot]` is this edge.
    slot: u32,
}

/// How storages were made: the edges and the cost. The op itself is kept by the engine.
///
/// A path exists iff at least one of its outputs does and has not been cut from it.
#[derive(Debug, Default)]
#[doc(alias("history", "rematerialization", "checkpointing"))]
pub struct ComputePath {
    /// What it reads, in order, repeats included.
    pub inputs: SmallVec<[Edge; 3]>,
    /// What it makes, in order. `None` where the storage is gone or was cut loose: running the path
    /// again must throw that output away.
    pub outputs: SmallVec<[Option<StorageKey>; 2]>,
    /// Cost of running it, in the units of the cost model.
    pub cost: f64,
    /// Whether it ran before.
    pub ran: bool,
    /// Counts up from path to path: what a path reads was made by paths with lower numbers.
    pub sequence: u64,
}

/// All tables. Slots are reached by key; a stale key finds nothing.
#[derive(Debug, Default)]
pub struct Graph {
    pub(crate) tensors: SlotMap<TensorKey, TensorInfo>,
    pub(crate) storages: SlotMap<StorageKey, Storage>,
    pub(crate) paths: SlotMap<PathKey, ComputePath>,
    pub(crate) future: Future,
    /// Paths ever added.
    sequence: u64,
}

impl Graph {
    pub(crate) fn reserve(&mut self, tensors: usize) {
        self.tensors.reserve(tensors);
        self.storages.reserve(tensors);
        self.paths.reserve(tensors);
    }

    /// The tensor behind a key.
    #[must_use]
    pub fn tensor(&self, key: TensorKey) -> Option<&TensorInfo> {
        self.tensors.get(key)
    }

    /// The storage behind a key.
    ///
    /// # Panics
    /// If it is gone.
    #[must_use]
    #[inline]
    pub fn storage(&self, key: StorageKey) -> &Storage {
        &self.storages[key]
    }

    /// Whether a storage is still there, be it evicted or not.
    #[must_use]
    pub fn contains(&self, key: StorageKey) -> bool {
        self.storages.contains_key(key)
    }

    /// The path behind a key.
    ///
    /// # Panics
    /// If it is gone.
    #[must_use]
    #[inline]
    pub fn path(&self, key: PathKey) -> &ComputePath {
        &self.paths[key]
    }

    /// What waiting commands will do, as far as they are admitted.
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

    /// Cost of bringing `key` back when all that its path reads is there; 0 for a leaf.
    #[must_use]
    pub fn own_cost(&self, key: StorageKey) -> f64 {
        self.storages[key].producer.map_or(0.0, |path| self.paths[path].cost)
    }

    /// Whether the bytes could go now: resident, with a producer to bring them back, and not pinned.
    #[must_use]
    #[inline]
    pub fn is_evictable(&self, key: StorageKey) -> bool {
        let storage = &self.storages[key];
        storage.candidate.is_some() && storage.pins == 0
    }

    /// Whether the bytes were evicted and can be brought back.
    #[must_use]
    #[inline]
    pub fn is_evicted(&self, key: StorageKey) -> bool {
        self.storages[key].residence == Residence::Evicted
    }

    /// What the producer of `key` reads, repeats included.
    pub fn sources(&self, key: StorageKey) -> impl Iterator<Item = StorageKey> {
        self.storages[key]
            .producer
            .into_iter()
            .flat_map(|path| self.paths[path].inputs.iter().map(|e| e.storage))
    }

    /// The other outputs of the producer of `key`.
    pub fn siblings(&self, key: StorageKey) -> impl Iterator<Item = StorageKey> {
        let producer = self.storages[key].producer;
        producer
            .into_iter()
            .flat_map(|path| self.paths[path].outputs.iter().flatten().copied())
            .filter(move |&other| other != key)
    }

    /// The outputs of all paths that read `key`, repeats included.
    pub fn dependents(&self, key: StorageKey) -> impl Iterator<Item = StorageKey> {
        self.storages[key]
            .users
            .iter()
            .flat_map(|u| self.paths[u.path].outputs.iter().flatten().copied())
    }

    /// Whether a tensor looks at it or a path reads it.
    #[inline]
    pub(crate) fn is_needed(&self, key: StorageKey) -> bool {
        let storage = &self.storages[key];
        storage.handles > 0 || !storage.users.is_empty()
    }

    /// A storage that no tensor looks at yet.
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

    /// One more look at a storage.
    #[inline]
    pub(crate) fn add_tensor(&mut self, storage: StorageKey, layout: Layout) -> TensorKey {
        self.storages[storage].handles += 1;
        self.tensors.insert(TensorInfo { storage, layout })
    }

    /// What a path reads, repeats included.
    #[inline]
    pub(crate) fn inputs_of(&self, path: PathKey) -> StorageKeys {
        // One by one: collecting costs several times as much, and this is done for each op.
        let mut inputs = StorageKeys::new();
        self.paths[path].inputs.iter().for_each(|edge| inputs.push(edge.storage));
        inputs
    }

    /// What is left of what a path makes.
    pub(crate) fn outputs_of(&self, path: PathKey) -> StorageKeys {
        self.paths[path].outputs.iter().flatten().copied().collect()
    }

    /// What a resident storage holds.
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
