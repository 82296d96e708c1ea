//! Which storage to evict.
//!
//! A policy scores candidates; the engine evicts the one with the lowest score. It reads the tables
//! through a [`View`] and is notified of what the engine does, so that it can keep its own records. It never
//! changes a table and never touches memory.

mod classes;
mod expression;
mod formula;
mod kind;
mod megengine;
mod named;
mod neighbourhood;
mod none;
mod random;

pub use expression::ParseFormulaError;
pub use formula::{Around, Exponents, Formula, Ranking};
pub use kind::{ParsePolicyError, PolicyKind};
pub use megengine::MegEngine;
pub use none::NeverEvict;
pub use random::Random;

use crate::engine::{StorageKey, Table};
use crate::memory::Space;
use std::fmt;

/// What a policy may look at.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Storages, paths and the edges between them.
    pub table: &'a Table,
    /// Engine clock, in the units of the cost model.
    pub now: f64,
    pub(crate) space: &'a Space,
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

    /// Free bytes directly left and right of a resident storage: evicting it makes a hole that much
    /// larger. 0 if it is not resident, and where bytes are only counted. O(1).
    #[must_use]
    pub fn free_neighbour_bytes(&self, key: StorageKey) -> u64 {
        self.table.held(key).map_or(0, |held| self.space.free_neighbour_bytes(held))
    }
}

/// How scores change over time, so that the engine need not compute all of them at each choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Aging {
    /// In any way: every score is computed at each choice.
    #[default]
    Any,
    /// A score may rise at any time, but falls only with the candidate's own cost, or where the policy says
    /// so in [`Policy::did_regenerate`] or [`Policy::will_forget`].
    Steady,
    /// As `Steady`, and the engine divides the score, which is not below 0, by [`View::staleness`].
    Staleness,
}

/// Collects candidates whose scores have fallen.
#[derive(Debug, Default)]
pub struct Lowered {
    pub(crate) keys: Vec<StorageKey>,
    pub(crate) all: bool,
}

impl Lowered {
    /// That of `key`. It need not be a candidate.
    pub fn push(&mut self, key: StorageKey) {
        self.keys.push(key);
    }

    /// Perhaps all of them.
    pub const fn all(&mut self) {
        self.all = true;
    }
}

/// A way to choose what to evict.
pub trait Policy: fmt::Debug + Send {
    /// How much is lost by evicting `candidate` now; the lowest score goes. NaN counts as the highest.
    /// The candidate is resident, not pinned, and has a producer.
    fn score(&mut self, candidate: StorageKey, view: View<'_>) -> f64;

    /// How scores change over time. Must always return the same.
    fn aging(&self) -> Aging {
        Aging::Any
    }

    /// The score, or if that is above `enough`, any number above `enough` and not above the score.
    fn score_up_to(&mut self, candidate: StorageKey, _enough: f64, view: View<'_>) -> f64 {
        self.score(candidate, view)
    }

    /// A number that is cheaper to find than the score and never above it. Called for candidates that are
    /// new, or were reported as lowered; not used with [`Aging::Any`].
    fn floor(&mut self, candidate: StorageKey, view: View<'_>) -> f64 {
        self.score(candidate, view)
    }

    /// Whether [`Policy::floor`] is the score, so that it need not be computed again.
    fn floors_are_scores(&self) -> bool {
        false
    }

    /// Whether anything may be evicted at all. A policy that says no is told nothing. Must always return the same.
    fn evicts(&self) -> bool {
        true
    }

    /// `key` was evicted; its edges are still there.
    fn did_evict(&mut self, _key: StorageKey, _view: View<'_>) {}

    /// `key` was brought back by running its producer, whose cost is still the one of the run before.
    /// Candidates whose score is lower now are added to `lowered`.
    fn did_regenerate(&mut self, _key: StorageKey, _view: View<'_>, _lowered: &mut Lowered) {}

    /// `key`, which is evicted, is about to go from the tables, or to be cut from its producer.
    /// Candidates whose score is lower then are added to `lowered`.
    fn will_forget(&mut self, _key: StorageKey, _view: View<'_>, _lowered: &mut Lowered) {}
}
