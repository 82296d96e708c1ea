//! Live tensors between two turns.
//!
//! Each live tensor has a slot in a table. At a step mark, only the changed slots are updated, so a
//! mark takes the same time however many unchanged tensors are held.

use crate::command::TensorId;
use crate::graph::{Graph, StorageKey, TensorInfo};
use remat_rng::mix;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};

/// Fingerprint of all live tensors between two turns: their number, and one hash of slots, layouts,
/// and sharing of storages. Two boundaries are equal if their numbers of tensors and their hashes
/// are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Boundary {
    pub tensors: usize,
    hash: Sum,
}

/// Table with a slot for each live tensor.
#[derive(Debug, Default)]
pub(super) struct Slots {
    all: Vec<Option<Look>>,
    of: FxHashMap<TensorId, u32>,
    free: BTreeSet<u32>,
    /// Size in bytes of each live storage, and the sum of its tensors' hashes.
    storages: FxHashMap<StorageKey, (u64, Sum)>,
    /// Pairs of a storage and the slot of a tensor that uses the storage.
    looks: BTreeSet<(StorageKey, u32)>,
    /// Sum of the hashes of all storages.
    hash: Sum,
    /// Number of slots that were filled, emptied, or checked for a change, so that tests can
    /// measure the work.
    #[cfg(test)]
    pub changed: u64,
}

/// Entry of a slot: its tensor.
#[derive(Clone, Copy, Debug)]
struct Look {
    tensor: TensorId,
    storage: StorageKey,
    hash: Sum,
}

/// Capacity above which a table with few entries is shrunk.
const LARGE: usize = 1 << 12;

impl Slots {
    /// The slot of a tensor.
    #[inline]
    pub fn of(&self, tensor: TensorId) -> Option<u32> {
        self.of.get(&tensor).copied()
    }

    /// The tensor in a slot.
    #[inline]
    pub fn tensor(&self, slot: u32) -> Option<TensorId> {
        self.look(slot).map(|look| look.tensor)
    }

    /// The storage of the tensor in a slot.
    pub fn storage(&self, slot: u32) -> Option<StorageKey> {
        self.look(slot).map(|look| look.storage)
    }

    /// The lowest slot whose tensor uses a storage.
    pub fn of_storage(&self, storage: StorageKey) -> Option<u32> {
        let (first, slot) = self.looks.range((storage, 0)..).next()?;
        (*first == storage).then_some(*slot)
    }

    #[inline]
    fn look(&self, slot: u32) -> Option<&Look> {
        self.all.get(slot as usize)?.as_ref()
    }

    /// The lowest free slot.
    pub fn lowest_free(&self) -> u32 {
        self.free.first().copied().unwrap_or(self.all.len() as u32)
    }

    /// The fingerprint of the tensors that are live now.
    pub fn boundary(&self) -> Boundary {
        Boundary { tensors: self.of.len(), hash: self.hash }
    }

    /// Puts a tensor into a free slot.
    pub fn fill(&mut self, slot: u32, tensor: TensorId, info: &TensorInfo, graph: &Graph) {
        while self.all.len() <= slot as usize {
            self.free.insert(self.all.len() as u32);
            self.all.push(None);
        }
        self.free.remove(&slot);
        let hash = Sum::of(&(slot, info.layout));
        let storage = info.storage;
        self.all[slot as usize] = Some(Look { tensor, storage, hash });
        self.of.insert(tensor, slot);
        self.looks.insert((storage, slot));
        let known = self.storages.get(&storage).copied();
        let (bytes, mut sum) =
            known.unwrap_or_else(|| (graph.storage(storage).bytes, Sum::default()));
        if known.is_some() {
            self.hash.less(sum.mixed(bytes));
        }
        sum.more(hash);
        self.hash.more(sum.mixed(bytes));
        self.storages.insert(storage, (bytes, sum));
        self.count();
    }

    /// Empties a slot. Returns the storage of its tensor.
    pub fn leave(&mut self, slot: u32) -> Option<StorageKey> {
        let Look { tensor, storage, hash } = self.all.get_mut(slot as usize)?.take()?;
        self.of.remove(&tensor);
        self.looks.remove(&(storage, slot));
        self.free.insert(slot);
        let (bytes, sum) = self.storages.get_mut(&storage)?;
        self.hash.less(sum.mixed(*bytes));
        sum.less(hash);
        let rest = sum.mixed(*bytes);
        if self.of_storage(storage).is_some() {
            self.hash.more(rest);
        } else {
            self.storages.remove(&storage);
        }
        while self.all.pop_if(|last| last.is_none()).is_some() {
            self.free.remove(&(self.all.len() as u32));
        }
        self.shrink();
        self.count();
        Some(storage)
    }

    /// Replaces the tensor number in a slot. Returns the previous number.
    pub fn rename(&mut self, slot: u32, tensor: TensorId) -> Option<TensorId> {
        let look = self.all.get_mut(slot as usize)?.as_mut()?;
        let before = std::mem::replace(&mut look.tensor, tensor);
        self.of.remove(&before);
        self.of.insert(tensor, slot);
        Some(before)
    }

    fn shrink(&mut self) {
        if self.all.capacity() > LARGE.max(8 * self.all.len()) {
            self.all.shrink_to(2 * self.all.len());
        }
        if self.of.capacity() > LARGE.max(8 * self.of.len()) {
            self.of.shrink_to(2 * self.of.len());
        }
        if self.storages.capacity() > LARGE.max(8 * self.storages.len()) {
            self.storages.shrink_to(2 * self.storages.len());
        }
    }

    #[inline]
    fn count(&mut self) {
        #[cfg(test)]
        {
            self.changed += 1;
        }
    }
}

/// A hash of 128 bits. Hashes can be added and subtracted in any order. Collisions are assumed not
/// to occur.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum(u64, u64);

impl Sum {
    fn of(value: &impl Hash) -> Self {
        let mut sum = Self(1, 2);
        value.hash(&mut sum);
        sum
    }

    fn more(&mut self, other: Self) {
        *self = Self(self.0.wrapping_add(other.0), self.1.wrapping_add(other.1));
    }

    fn less(&mut self, other: Self) {
        *self = Self(self.0.wrapping_sub(other.0), self.1.wrapping_sub(other.1));
    }

    /// Mixes a number into the hash. From a mixed hash, parts of the sum can no longer be
    /// subtracted.
    const fn mixed(self, number: u64) -> Self {
        Self(mix(mix(self.0, self.1), number), mix(mix(self.1, !number), self.0))
    }
}

impl Hasher for Sum {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        *self = Self(mix(self.0, word), mix(self.1, word));
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests;
