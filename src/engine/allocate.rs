//! Making room: the one place where memory runs short.

use super::evict::Need;
use super::guard::guarded;
use super::{Engine, Error, OutOfMemory, Residence, StorageKey};
use crate::device::Device;
use crate::layout::Layout;
use crate::memory::{Held, Move, Snapshot};
use slotmap::Key as _;

/// Moving this many times the bytes wanted is taken to be worth an eviction: each byte moved is read and
/// written once, and bringing a storage back reads and writes several times its size.
const WORTH_MOVING: u64 = 4;

/// Who a block belongs to, as the arena knows it: a storage's key, or scratch.
#[derive(Clone, Copy)]
pub(super) enum Owner {
    Storage(StorageKey),
    Scratch,
}

impl Owner {
    fn number(self) -> u64 {
        match self {
            Self::Storage(key) => key.data().as_ffi(),
            Self::Scratch => StorageKey::null().data().as_ffi(),
        }
    }
}

impl<D: Device> Engine<D> {
    /// A block of at least `bytes` bytes. If there is none: evicts where free bytes do not suffice, and
    /// moves blocks where they do but no hole is large enough. Where that would move far more than is
    /// wanted, evicting goes on as long as there is something worth it, and moving is the last resort.
    ///
    /// `None` if even evicting everything would not be enough; nothing is evicted then, so that a
    /// hopeless request does not empty the cache on its way to the error.
    pub(super) fn allocate(&mut self, bytes: u64, owner: Owner) -> Result<Option<Held>, Error> {
        let number = owner.number();
        if let Some(held) = self.space.alloc(bytes, number) {
            return Ok(Some(held));
        }
        let size = self.space.round(bytes);
        if !self.may_have(size) {
            return Ok(None);
        }
        loop {
            if self.space.free_bytes() < size {
                if !self.evict_one(Need::Must)? {
                    return Ok(None);
                }
                self.work.did_evict(false);
            } else {
                // Pinned blocks may move as well: offsets are looked up when an op is launched, and the
                // device works in order. So there is a plan whenever free bytes suffice.
                let moves = self.space.plan_compaction(bytes).expect("all blocks may move");
                let moved: u64 = moves.iter().map(|m| m.bytes).sum();
                if moved <= WORTH_MOVING * size || !self.evict_one(Need::Wish)? {
                    self.compact(&moves, bytes, moved)?;
                }
            }
            if let Some(held) = self.space.alloc(bytes, number) {
                return Ok(Some(held));
            }
        }
    }

    /// Whether evicting everything would leave so much free.
    pub(super) fn may_have(&self, bytes: u64) -> bool {
        let evictable = if self.evicts { self.table.evictable_bytes() } else { 0 };
        self.space.free_bytes() + evictable >= bytes
    }

    /// Moves blocks, on the device and in the books.
    fn compact(&mut self, moves: &[Move], wanted: u64, moved: u64) -> Result<(), Error> {
        for m in moves {
            guarded("moving a block", || self.device.copy(m.from, m.to, m.bytes))?;
            // At once, so that the books are right should the next one fail.
            self.space.apply_move(m);
        }
        self.stats.compactions += 1;
        self.stats.moved_bytes += moved;
        tracing::debug!(target: "remat", wanted, moves = moves.len(), moved, "did compact");
        Ok(())
    }

    /// The error for a request of `bytes` bytes of the arena by `op` that cannot be met.
    #[cold]
    pub(super) fn out_of_memory(&self, op: &str, inputs: &[Layout], bytes: u64) -> Error {
        let mut error = OutOfMemory {
            op: op.to_owned(),
            inputs: inputs.iter().map(Layout::to_string).collect(),
            wanted: bytes,
            budget: self.settings.budget,
            used: self.space.used(),
            free: self.space.free_bytes(),
            largest_free: self.space.largest_free(),
            fragmentation: self.space.fragmentation(),
            pinned: 0,
            leaves: 0,
            evictable: self.table.evictable_bytes(),
            holders: Vec::new(),
        };
        let mut named = 0;
        for (_, storage) in self.table.storages() {
            let Residence::Resident(Held { bytes, .. }) = storage.residence else { continue };
            named += bytes;
            if storage.pins > 0 {
                error.pinned += bytes;
            } else if storage.producer.is_none() {
                error.leaves += bytes;
            }
        }
        // Outputs and scratch placed for the op at hand before this request failed.
        error.pinned += self.space.used() - named;
        let holders = self.space.holders().into_iter();
        error.holders = holders
            .map(|holder| (self.owner_name(holder.owner), holder.bytes, self.reason(holder.owner)))
            .collect();
        error.into()
    }

    /// Every chunk of the arena, with what the storages in it are called: a memory map for tools.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.space.snapshot(|owner| self.owner_name(owner))
    }

    /// Whom [`Owner::number`] gave that number; `None` if it is scratch.
    fn owner(&self, number: u64) -> Option<StorageKey> {
        let key = StorageKey::from(slotmap::KeyData::from_ffi(number));
        self.table.storages.contains_key(key).then_some(key)
    }

    /// What the owner of a block is called in reports.
    fn owner_name(&self, owner: u64) -> String {
        self.owner(owner).map_or("scratch", |key| self.name_of(key)).to_owned()
    }

    /// Why the owner of a block holds it.
    fn reason(&self, owner: u64) -> &'static str {
        let storage = self.owner(owner).map(|key| self.table.storage(key));
        // An output of the op at hand is placed before it is resident.
        let resident =
            storage.filter(|storage| matches!(storage.residence, Residence::Resident(_)));
        match resident {
            Some(storage) if storage.pins == 0 && storage.producer.is_none() => {
                "a leaf: cannot be recomputed"
            }
            Some(storage) if storage.pins == 0 => "evictable",
            _ => "in use by the op at hand",
        }
    }
}
