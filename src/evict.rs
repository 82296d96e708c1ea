//! Which storage to evict next.
//!
//! An [`Evictor`] decides: it is asked when memory is short, and told what happens meanwhile. It reads graph and memory
//! through a [`View`], and changes neither. Most evictors go by scores: a [`Policy`] scores a candidate, and the
//! [`ByScore`] evictor finds the lowest.

mod belady;
mod by_score;
mod by_step;
mod candidates;
mod classes;
mod coop;
mod expression;
mod forest;
mod formula;
mod hubs;
mod kind;
pub mod learned;
mod megengine;
mod megengine_article;
mod named;
mod neighbourhood;
mod none;
mod parameters;
mod policy;
mod random;
mod search;

pub use belady::Belady;
pub use by_score::ByScore;
pub use by_step::ByStep;
pub(crate) use candidates::Candidates;
pub use candidates::Tier;
pub use coop::Coop;
pub use expression::ParseFormulaError;
pub use formula::{Around, Exponents, Formula, Ranking};
pub use hubs::LockHubs;
pub use kind::{ParsePolicyError, PolicyKind};
pub use learned::{Clock, Forecast, ForecastError, Foresight, Learn, Learned, Setting};
pub use megengine::MegEngine;
pub use megengine_article::{ArticleConstants, MegEngineArticle};
pub use none::NeverEvict;
pub use policy::{Aging, Floors, Lowered, Policy};
pub use random::EvictAtRandom;

use crate::event::{Event, Hears};
use crate::graph::{Graph, StorageKey};
use crate::memory::Space;
use std::fmt;

/// Decides which storage goes next.
///
/// ```
/// use remat::evict::{Evictor, Victim, View, Want};
///
/// /// Evicts what was used longest ago.
/// #[derive(Debug)]
/// struct Oldest;
///
/// impl Evictor for Oldest {
///     fn next(&mut self, want: Want, view: View<'_>) -> Option<Victim> {
///         let used = |key| view.graph.storage(key).last_used;
///         let oldest = view.evictable(want).min_by(|&a, &b| used(a).total_cmp(&used(b)));
///         oldest.map(Victim::new)
///     }
/// }
///
/// let runtime = remat::Runtime::builder().budget("1MiB").evictor(Oldest).cpu()?;
/// # Ok::<(), remat::Error>(())
/// ```
pub trait Evictor: fmt::Debug + Send {
    /// What to evict next: one of [`View::evictable`]; anything else is an error. `None`: nothing that is worth it, or
    /// nothing at all where `want` says that something must go. Asked again until there is room.
    fn next(&mut self, want: Want, view: View<'_>) -> Option<Victim>;

    /// Something happened that it [hears](Self::hears). See [`Event`] for when each is told.
    fn on(&mut self, _event: &Event, _view: View<'_>) {}

    /// The part that goes by the known step, of an evictor that has one. A runtime recognizes steps for it. Must always
    /// be there, or never. Default: none.
    fn by_step(&mut self) -> Option<&mut dyn ByStep> {
        None
    }

    /// Whether anything may be evicted at all. An evictor that says no is asked and told nothing. Must always return
    /// the same.
    fn evicts(&self) -> bool {
        true
    }

    /// What it wants to be told of: to tell it of what it does not listen to takes time. Must always return the same.
    fn hears(&self) -> Hears {
        Hears::ALL
    }

    /// Which of the crate's policies it is, so that a recording can name it. Default: one of your own.
    fn kind(&self) -> Option<PolicyKind> {
        None
    }

    /// Scores computed so far, for [`Stats::score_evaluations`](crate::Stats::score_evaluations).
    fn score_evaluations(&self) -> u64 {
        0
    }
}

/// Why something is to be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// How far it may go.
    pub need: Need,
    /// Bytes that are still missing.
    pub bytes: u64,
}

/// How far an eviction may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Memory is above the threshold, or blocks could be moved instead: only what is worth it, [`Tier::Free`].
    Wish,
    /// An allocation does not fit: whatever is left, up to [`Tier::Awaited`], so that neither `min_evict_bytes` nor
    /// what a regeneration is about to read makes a feasible program fail.
    Must,
}

impl Need {
    /// The tiers to choose from, each when nothing is left in those before.
    #[must_use]
    pub const fn tiers(self) -> &'static [Tier] {
        match self {
            Self::Wish => &[Tier::Free],
            Self::Must => &[Tier::Free, Tier::Small, Tier::Awaited],
        }
    }
}

/// What an evictor chose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Victim {
    /// What goes.
    pub storage: StorageKey,
    /// Its score, if the evictor goes by scores.
    pub score: Option<f64>,
}

impl Victim {
    /// A storage without a score.
    #[must_use]
    pub const fn new(storage: StorageKey) -> Self {
        Self { storage, score: None }
    }
}

/// What an evictor may look at.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Storages, paths and the edges between them.
    pub graph: &'a Graph,
    /// Engine clock, in the units of the cost model.
    pub now: f64,
    pub(crate) candidates: &'a Candidates,
    pub(crate) space: &'a Space,
}

impl<'a> View<'a> {
    /// The storages that may go, of the first of the tiers of [`Need::tiers`] that has any. O(candidates).
    pub fn evictable(self, want: Want) -> impl Iterator<Item = StorageKey> + 'a {
        let Self { candidates, .. } = self;
        let all = 0..candidates.keys().len();
        let best = all.clone().map(|at| candidates.tier(at)).min();
        let tier = best.filter(|tier| want.need.tiers().contains(tier));
        all.filter(move |&at| Some(candidates.tier(at)) == tier)
            .map(move |at| candidates.keys()[at])
    }

    /// How long a storage is spared; `None` if it could not be evicted: it is not resident, or a leaf.
    #[must_use]
    pub fn tier(&self, key: StorageKey) -> Option<Tier> {
        let position = self.graph.storage(key).candidate?;
        Some(self.candidates.tier(position as usize))
    }

    /// Bytes in use now: all that is resident, and what the run at hand has taken beside.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.space.used()
    }

    /// Size of a storage in MiB, never 0.
    #[must_use]
    pub fn mebibytes(&self, key: StorageKey) -> f64 {
        self.graph.storage(key).bytes.max(1) as f64 / f64::from(1 << 20)
    }

    /// Clock time since an op last read or made it, never 0.
    #[must_use]
    pub fn staleness(&self, key: StorageKey) -> f64 {
        (self.now - self.graph.storage(key).last_used).max(f64::MIN_POSITIVE)
    }

    /// Free bytes directly left and right of a resident storage: evicting it makes a hole that much
    /// larger. 0 if it is not resident, and where bytes are only counted. O(1).
    #[must_use]
    pub fn free_neighbour_bytes(&self, key: StorageKey) -> u64 {
        self.graph.held(key).map_or(0, |held| self.space.free_neighbour_bytes(held))
    }
}
