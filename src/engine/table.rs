//! The tables: tensors, storages, compute paths, and the edges between them.
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
//! Nothing in here knows the op type or the device, so a policy can read all of it.

use super::candidates::{Candidates, Tier};
use crate::layout::Layout;
use crate::memory::Held;
use slotmap::{SlotMap, new_key_type};
use smallvec::SmallVec;
use std::sync::Arc;

/// Storages that one op reads or makes.
pub(super) type StorageKeys = SmallVec<[StorageKey; 4]>;

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
    /// How often it was brought back.
    pub recomputed: u32,
    /// The step it was made in.
    pub born: u64,
    /// While nobody holds it: the first step in which it, or what it is made from without being held, was made.
    pub(super) oldest: u64,
    /// What to call it in reports once its path is gone.
    pub label: Option<Arc<str>>,
    /// Position in `Table::candidates`, if it is there.
    candidate: Option<u32>,
}

impl Storage {
    /// Position among the candidates and bytes held, if it is one.
    fn candidacy(&self) -> Option<(u32, u64)> {
        match (self.candidate, self.residence) {
            (Some(position), Residence::Resident(held)) => Some((position, held.bytes)),
            _ => None,
        }
    }

    /// How long it is spared, were it a candidate.
    fn tier(&self, min_evict_bytes: u64) -> Tier {
        match self.residence {
            _ if self.pins > 0 => Tier::Pinned,
            Residence::Resident(Held { bytes: 0, .. }) => Tier::Worthless,
            _ if self.awaited > 0 => Tier::Awaited,
            _ if self.bytes < min_evict_bytes => Tier::Small,
            _ => Tier::Free,
        }
    }
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
pub struct Table {
    pub(super) tensors: SlotMap<TensorKey, TensorInfo>,
    pub(super) storages: SlotMap<StorageKey, Storage>,
    pub(super) paths: SlotMap<PathKey, ComputePath>,
    /// Exactly the storages that are resident and have a producer, pinned or not.
    pub(super) candidates: Candidates,
    /// Bytes that the candidates that are not pinned take up.
    evictable_bytes: u64,
    /// Smaller storages are evicted only when nothing else is left.
    min_evict_bytes: u64,
    /// Paths ever added.
    sequence: u64,
}

impl Table {
    /// Empty tables.
    pub(super) fn new(min_evict_bytes: u64) -> Self {
        Self { min_evict_bytes, ..Self::default() }
    }

    pub(super) fn reserve(&mut self, tensors: usize) {
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
    pub fn storage(&self, key: StorageKey) -> &Storage {
        &self.storages[key]
    }

    /// The path behind a key.
    ///
    /// # Panics
    /// If it is gone.
    #[must_use]
    pub fn path(&self, key: PathKey) -> &ComputePath {
        &self.paths[key]
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

    /// The storages that could be evicted were they not pinned. A policy that is asked about one of them by
    /// the search for the lowest score sees none here: the search has them.
    #[must_use]
    pub fn candidates(&self) -> &[StorageKey] {
        self.candidates.keys()
    }

    /// Bytes that evicting everything evictable would give back.
    #[must_use]
    pub const fn evictable_bytes(&self) -> u64 {
        self.evictable_bytes
    }

    /// Cost of bringing `key` back when all that its path reads is there; 0 for a leaf.
    #[must_use]
    pub fn own_cost(&self, key: StorageKey) -> f64 {
        self.storages[key].producer.map_or(0.0, |path| self.paths[path].cost)
    }

    /// Whether the bytes could go now: resident, with a producer to bring them back, and not pinned.
    #[must_use]
    pub fn is_evictable(&self, key: StorageKey) -> bool {
        let storage = &self.storages[key];
        storage.candidate.is_some() && storage.pins == 0
    }

    /// Whether the bytes were evicted and can be brought back.
    #[must_use]
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
    pub(super) fn is_needed(&self, key: StorageKey) -> bool {
        let storage = &self.storages[key];
        storage.handles > 0 || !storage.users.is_empty()
    }

    /// A storage that no tensor looks at yet.
    pub(super) fn add_storage(&mut self, bytes: u64, now: f64, born: u64) -> StorageKey {
        self.storages.insert(Storage {
            bytes,
            residence: Residence::Pending,
            handles: 0,
            pins: 0,
            awaited: 0,
            producer: None,
            users: SmallVec::new(),
            last_used: now,
            recomputed: 0,
            born,
            oldest: born,
            label: None,
            candidate: None,
        })
    }

    /// One more look at a storage.
    pub(super) fn add_tensor(&mut self, storage: StorageKey, layout: Layout) -> TensorKey {
        self.storages[storage].handles += 1;
        self.tensors.insert(TensorInfo { storage, layout })
    }

    /// What a path reads, repeats included.
    pub(super) fn inputs_of(&self, path: PathKey) -> StorageKeys {
        // One by one: collecting costs several times as much, and this is done for each op.
        let mut inputs = StorageKeys::new();
        self.paths[path].inputs.iter().for_each(|edge| inputs.push(edge.storage));
        inputs
    }

    /// What is left of what a path makes.
    pub(super) fn outputs_of(&self, path: PathKey) -> StorageKeys {
        self.paths[path].outputs.iter().flatten().copied().collect()
    }

    /// A path that makes `outputs` from `inputs`. The outputs have no producer yet.
    pub(super) fn add_path(
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

    /// Cuts a storage from its producer: it becomes a leaf. Returns the path if that was its last
    /// output, so that nobody needs it any more.
    pub(super) fn cut(&mut self, key: StorageKey) -> Option<PathKey> {
        self.remove_candidate(key);
        let path = self.storages[key].producer.take()?;
        self.lose_output(path, key).then_some(path)
    }

    /// Removes a storage that nobody needs. Returns what it held, and its path if that was its last output.
    pub(super) fn remove_storage(&mut self, key: StorageKey) -> (Option<Held>, Option<PathKey>) {
        self.remove_candidate(key);
        let storage = self.storages.remove(key).expect("a storage is removed once");
        let held = match storage.residence {
            Residence::Resident(held) => Some(held),
            _ => None,
        };
        (held, storage.producer.filter(|&path| self.lose_output(path, key)))
    }

    /// A path makes `key` no more. Returns whether nothing is left of what it makes.
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

    /// Removes a path without outputs, and calls `unneeded` for each storage whose last reason it was.
    pub(super) fn remove_path(&mut self, key: PathKey, mut unneeded: impl FnMut(StorageKey)) {
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

    /// The bytes of `key` are there now.
    pub(super) fn set_resident(&mut self, key: StorageKey, held: Held) {
        let storage = &mut self.storages[key];
        debug_assert!(
            !matches!(storage.residence, Residence::Resident(_)),
            "a storage is placed once"
        );
        storage.residence = Residence::Resident(held);
        if storage.producer.is_some() {
            let tier = storage.tier(self.min_evict_bytes);
            storage.candidate = Some(self.candidates.push(key, tier, storage.last_used));
            if storage.pins == 0 {
                self.evictable_bytes += held.bytes;
            }
        }
    }

    /// The bytes of `key` are about to go: returns what to free.
    pub(super) fn set_absent(&mut self, key: StorageKey, why: Residence) -> Option<Held> {
        self.remove_candidate(key);
        match std::mem::replace(&mut self.storages[key].residence, why) {
            Residence::Resident(held) => Some(held),
            _ => None,
        }
    }

    /// What a resident storage holds.
    pub(crate) fn held(&self, key: StorageKey) -> Option<Held> {
        match self.storages[key].residence {
            Residence::Resident(held) => Some(held),
            _ => None,
        }
    }

    /// Whether the bytes are on the device now.
    #[must_use]
    pub fn is_resident(&self, key: StorageKey) -> bool {
        matches!(self.storages[key].residence, Residence::Resident(_))
    }

    /// An op reads or makes it now.
    pub(super) fn touch(&mut self, key: StorageKey, now: f64) {
        let storage = &mut self.storages[key];
        storage.last_used = now;
        if let Some(position) = storage.candidate {
            self.candidates.touch(position, now);
        }
    }

    pub(super) fn pin(&mut self, key: StorageKey) {
        let storage = &mut self.storages[key];
        storage.pins += 1;
        if storage.pins == 1
            && let Some((position, bytes)) = storage.candidacy()
        {
            self.evictable_bytes -= bytes;
            self.candidates.set_tier(position, Tier::Pinned);
        }
    }

    /// Returns whether that was the last pin.
    pub(super) fn unpin(&mut self, key: StorageKey) -> bool {
        let storage = &mut self.storages[key];
        storage.pins -= 1;
        if storage.pins == 0
            && let Some((position, bytes)) = storage.candidacy()
        {
            self.evictable_bytes += bytes;
            self.candidates.set_tier(position, storage.tier(self.min_evict_bytes));
        }
        storage.pins == 0
    }

    /// A run of `path` is to come.
    pub(super) fn await_inputs(&mut self, path: PathKey) {
        for edge in &self.paths[path].inputs {
            let storage = &mut self.storages[edge.storage];
            storage.awaited += 1;
            if let Some(position) = storage.candidate {
                self.candidates.set_tier(position, storage.tier(self.min_evict_bytes));
            }
        }
    }

    /// That run came, or will not.
    pub(super) fn stop_awaiting_inputs(&mut self, path: PathKey) {
        for edge in &self.paths[path].inputs {
            let storage = &mut self.storages[edge.storage];
            storage.awaited -= 1;
            if let Some(position) = storage.candidate {
                self.candidates.set_tier(position, storage.tier(self.min_evict_bytes));
            }
        }
    }

    /// The score of `key` may be lower than it was.
    pub(super) fn lower(&mut self, key: StorageKey) {
        if let Some(position) = self.storages.get(key).and_then(|storage| storage.candidate) {
            self.candidates.lower(position);
        }
    }

    fn remove_candidate(&mut self, key: StorageKey) {
        let storage = &mut self.storages[key];
        let Some((position, bytes)) = storage.candidacy() else { return };
        storage.candidate = None;
        if storage.pins == 0 {
            self.evictable_bytes -= bytes;
        }
        if let Some(moved) = self.candidates.remove(position) {
            self.storages[moved].candidate = Some(position);
        }
    }

    /// Panics if the tables contradict themselves or the arena. For tests and debug builds.
    pub(super) fn check(&self) {
        let mut evictable = 0;
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
                Residence::Resident(held) => {
                    assert_eq!(storage.candidate.is_some(), storage.producer.is_some());
                    if storage.producer.is_some() && storage.pins == 0 {
                        evictable += held.bytes;
                    }
                }
                Residence::Evicted => assert!(storage.producer.is_some(), "{key:?} is lost"),
                Residence::Pending | Residence::Poisoned => {}
            }
            if let Some(position) = storage.candidate {
                assert_eq!(self.candidates.keys()[position as usize], key);
            }
        }
        assert_eq!(evictable, self.evictable_bytes, "evictable bytes");
        for (key, path) in &self.paths {
            assert!(
                path.outputs.iter().any(Option::is_some),
                "{key:?} is kept though nobody needs it"
            );
        }
    }
}
