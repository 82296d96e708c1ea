//! Which storage to evict.
//!
//! A policy scores candidates; the engine evicts the one with the lowest score. It reads the tables
//! through a [`View`] and is told what the engine did, so that it can keep books of its own. It never
//! changes a table and never touches memory.

mod classes;
mod dtr;
mod dtr_eq;
mod dtr_local;
mod kind;
mod largest;
mod lru;
mod megengine;
mod msps;
mod neighbourhood;
mod none;
mod random;

pub use dtr::Dtr;
pub use dtr_eq::DtrEq;
pub use dtr_local::DtrLocal;
pub use kind::{ParsePolicyError, PolicyKind};
pub use largest::Largest;
pub use lru::Lru;
pub use megengine::{Exponents, MegEngine};
pub use msps::Msps;
pub use none::NeverEvict;
pub use random::Random;

use crate::engine::{StorageKey, Table};
use crate::memory::Arena;
use std::fmt;

/// What a policy may look at.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Storages, paths and the edges between them.
    pub table: &'a Table,
    /// Engine clock, in the units of the cost model.
    pub now: f64,
    pub(crate) arena: &'a Arena,
}

impl View<'_> {
    /// Size of a storage in MiB, never 0.
    #[must_use]
    pub fn mebibytes(&self, key: StorageKey) -> f64 {
        self.table.storage(key).bytes.max(1) as f64 / f64::from(1 << 20)
    }

    /// Clock time since an op last read or made it, never 0.
    #[must_use]
    pub fn staleness(&self, key: StorageKey) -> f64 {
        (self.now - self.table.storage(key).last_used).max(f64::MIN_POSITIVE)
    }

    /// `(own cost + around) / (MiB * staleness)`: the form that all of h_DTR has (Kirisame et al., ICLR
    /// 2021), whatever is taken for the cost of the evicted storages around.
    #[must_use]
    pub fn h_dtr(&self, key: StorageKey, around: f64) -> f64 {
        (self.table.own_cost(key) + around) / (self.mebibytes(key) * self.staleness(key))
    }

    /// Free bytes directly left and right of a resident storage: evicting it makes a hole that much
    /// larger. 0 if it is not resident. O(1).
    #[must_use]
    pub fn free_neighbour_bytes(&self, key: StorageKey) -> u64 {
        self.table.block(key).map_or(0, |block| {
            let free = self.arena.free_neighbors(block);
            free.left + free.right
        })
    }
}

/// A way to choose what to evict.
pub trait Policy: fmt::Debug + Send {
    /// How much is lost by evicting `candidate` now; the lowest score goes. NaN counts as the highest.
    /// The candidate is resident, not pinned, and has a producer.
    fn score(&mut self, candidate: StorageKey, view: View<'_>) -> f64;

    /// Whether anything may be evicted at all.
    fn evicts(&self) -> bool {
        true
    }

    /// `key` was evicted; its edges are still there.
    fn did_evict(&mut self, _key: StorageKey, _view: View<'_>) {}

    /// `key` was brought back by running its producer.
    fn did_regenerate(&mut self, _key: StorageKey, _view: View<'_>) {}

    /// `key` is gone from the tables, or was cut from its producer while evicted.
    fn did_forget(&mut self, _key: StorageKey) {}
}
