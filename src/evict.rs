//! Evictors and policies, which choose the storage to evict next.
//!
//! The engine calls an [`Evictor`] when memory is short, and sends it events at other times. An
//! evictor reads the graph and the memory through a [`View`], and cannot change them. Most evictors
//! rank candidates by scores: a [`Policy`] scores a candidate, and the [`ByScore`] evictor finds
//! the lowest score.

mod belady;
mod by_score;
mod by_step;
mod candidates;
mod classes;
mod coop;
mod cover;
mod expression;
mod forest;
mod formula;
mod hubs;
mod kind;
#[doc(hidden)]
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

pub use by_score::ByScore;
pub(crate) use candidates::Candidates;
pub use candidates::Tier;
pub use expression::ParseFormulaError;
pub use formula::Exponents;
pub use kind::{ParsePolicyError, PolicyKind};
pub use learned::Learn;
pub use megengine_article::ArticleConstants;
pub use policy::Policy;

// Documented in `unstable`.
#[doc(hidden)]
pub use {
    belady::Belady,
    by_step::ByStep,
    coop::Coop,
    formula::{Around, Formula, Ranking},
    hubs::LockHubs,
    learned::{Clock, Forecast, ForecastError, Foresight, Learned, Setting},
    megengine::MegEngine,
    megengine_article::MegEngineArticle,
    none::NeverEvict,
    policy::{Aging, Floors, Lowered},
    random::EvictAtRandom,
};

use crate::event::{Event, Hears};
use crate::graph::{Graph, StorageKey};
use remat_memory::Space;
use std::fmt;

/// Chooses the next storage to evict.
///
/// ```
/// use remat::evict::{Evictor, Victim, View, Want};
///
/// /// Evicts the storage that was used longest ago.
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
    /// The storage to evict next. Returning a storage that is not one of [`View::evictable`] is an
    /// error. Under [`Need::Wish`], `None` means that no eviction is worth its cost. Under
    /// [`Need::Must`], `None` means that no eviction is possible. The engine calls `next` once for
    /// each eviction, until enough bytes are free.
    fn next(&mut self, want: Want, view: View<'_>) -> Option<Victim>;

    /// Receives an event of a kind that [`Evictor::hears`] names. [`Event`] says when each kind is
    /// sent.
    fn on(&mut self, _event: &Event, _view: View<'_>) {}

    /// The part of the evictor that uses the known step; `None` if the evictor has no such part.
    /// A runtime recognizes steps only if the answer is `Some`. An evictor must return `Some` either
    /// always or never. Default: `None`.
    fn by_step(&mut self) -> Option<&mut dyn ByStep> {
        None
    }

    /// Whether the evictor ever evicts. If false, none of its other methods is called, and it
    /// receives no events. An evictor must always return the same value.
    fn evicts(&self) -> bool {
        true
    }

    /// Kinds of events to receive. Receiving fewer kinds saves time. An evictor must always return
    /// the same kinds.
    fn hears(&self) -> Hears {
        Hears::ALL
    }

    /// The crate's policy that the evictor follows, for recordings. Default: `None`, for a custom
    /// evictor.
    fn kind(&self) -> Option<PolicyKind> {
        None
    }

    /// Number of scores computed so far, for
    /// [`Stats::score_evaluations`](crate::Stats::score_evaluations).
    fn score_evaluations(&self) -> u64 {
        0
    }
}

/// Request for an eviction: its urgency and the missing bytes.
///
/// ```
/// use remat::evict::{Evictor, Victim, View, Want};
///
/// /// Evicts the smallest storage that is large enough, or else any.
/// #[derive(Debug)]
/// struct Enough;
///
/// impl Evictor for Enough {
///     fn next(&mut self, want: Want, view: View<'_>) -> Option<Victim> {
///         let bytes = |key| view.graph.storage(key).bytes;
///         let enough = view.evictable(want).filter(|&key| bytes(key) >= want.bytes);
///         let found = enough.min_by_key(|&key| bytes(key));
///         found.or_else(|| view.evictable(want).next()).map(Victim::new)
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// Urgency, which determines the tiers to evict from.
    pub need: Need,
    /// Number of missing bytes.
    pub bytes: u64,
}

/// Urgency of an eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Evict only from [`Tier::Free`]. The engine wishes for an eviction when memory is above the
    /// eviction threshold, or when it could move blocks instead.
    Wish,
    /// Evict from any tier up to [`Tier::Awaited`]. The engine needs an eviction when an allocation
    /// does not fit. Because all tiers are used, `min_evict_bytes` never makes a feasible program
    /// fail. Nor does a regeneration that awaits all other candidates.
    Must,
}

impl Need {
    /// Tiers to choose from, in order: a tier is used only when all tiers before it are empty.
    ///
    /// ```
    /// use remat::evict::{Need, Tier};
    ///
    /// assert_eq!(Need::Wish.tiers(), [Tier::Free]);
    /// assert_eq!(Need::Must.tiers().len(), 3);
    /// ```
    #[must_use]
    pub const fn tiers(self) -> &'static [Tier] {
        match self {
            Self::Wish => &[Tier::Free],
            Self::Must => &[Tier::Free, Tier::Small, Tier::Awaited],
        }
    }
}

/// Choice of an evictor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Victim {
    /// Storage to evict.
    pub storage: StorageKey,
    /// Score of the storage, if the evictor ranks by scores.
    pub score: Option<f64>,
}

impl Victim {
    /// Makes a choice without a score.
    #[must_use]
    pub const fn new(storage: StorageKey) -> Self {
        Self { storage, score: None }
    }
}

/// Read access for evictors: graph, memory and clock.
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
    /// All candidates of the first tier that is not empty. Empty if [`Need::tiers`] does not
    /// include the first tier that is not empty. O(candidates).
    ///
    /// ```
    /// use remat::evict::{Evictor, Victim, View, Want};
    /// use remat::prelude::*;
    ///
    /// /// Evicts any storage.
    /// #[derive(Debug)]
    /// struct Any;
    ///
    /// impl Evictor for Any {
    ///     fn next(&mut self, want: Want, view: View<'_>) -> Option<Victim> {
    ///         view.evictable(want).next().map(Victim::new)
    ///     }
    /// }
    ///
    /// let runtime = Runtime::builder().budget("8KiB").evictor(Any).cpu()?;
    /// let x = runtime.ones(&[1024])?;
    /// let (y, z) = (x.square()?, x.sin()?);
    /// assert_eq!(y.to_vec::<f32>()?, vec![1.0; 1024]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn evictable(self, want: Want) -> impl Iterator<Item = StorageKey> + 'a {
        let Self { candidates, .. } = self;
        let all = 0..candidates.keys().len();
        let best = all.clone().map(|at| candidates.tier(at)).min();
        let tier = best.filter(|tier| want.need.tiers().contains(tier));
        all.filter(move |&at| Some(candidates.tier(at)) == tier)
            .map(move |at| candidates.keys()[at])
    }

    /// Tier of a storage; `None` if the storage is not resident or is a leaf.
    #[must_use]
    pub fn tier(&self, key: StorageKey) -> Option<Tier> {
        let position = self.graph.storage(key).candidate?;
        Some(self.candidates.tier(position as usize))
    }

    /// Bytes in use, workspaces and other blocks of the current run included.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.space.used()
    }

    /// Size of a storage in MiB, never 0.
    #[must_use]
    pub fn mebibytes(&self, key: StorageKey) -> f64 {
        self.graph.storage(key).bytes.max(1) as f64 / f64::from(1 << 20)
    }

    /// Clock time since an op last read or made the storage. Never 0.
    ///
    /// ```
    /// use remat::evict::{Policy, View};
    /// use remat::unstable::graph::StorageKey;
    /// use remat::prelude::*;
    ///
    /// /// Large storages that were not used for long go first.
    /// #[derive(Debug)]
    /// struct LargeAndOld;
    ///
    /// impl Policy for LargeAndOld {
    ///     fn score(&mut self, candidate: StorageKey, view: View<'_>) -> f64 {
    ///         1.0 / (view.mebibytes(candidate) * view.staleness(candidate))
    ///     }
    /// }
    ///
    /// let runtime = Runtime::builder().budget("8KiB").policy(LargeAndOld).cpu()?;
    /// let x = runtime.ones(&[1024])?;
    /// let (y, z) = (x.square()?, x.sin()?);
    /// assert_eq!(y.to_vec::<f32>()?, vec![1.0; 1024]);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn staleness(&self, key: StorageKey) -> f64 {
        (self.now - self.graph.storage(key).last_used).max(f64::MIN_POSITIVE)
    }

    /// Number of free bytes directly before and after a resident storage. Evicting the storage
    /// makes one hole of the storage and the free bytes beside it. 0 if the storage is not
    /// resident, or if the device only counts bytes. O(1).
    #[must_use]
    pub fn free_neighbour_bytes(&self, key: StorageKey) -> u64 {
        self.graph.held(key).map_or(0, |held| self.space.free_neighbour_bytes(held))
    }
}
