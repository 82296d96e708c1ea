//! Events of an engine, each told once. Statistics, `tracing`, recordings, evictors and tests all
//! listen to them.

use crate::error::FailureKey;
use crate::graph::{PathKey, StorageKey};

/// Event in an engine. Sizes are in bytes, costs in the unit of the cost model.
///
/// Each event is told when it happens, by the thread that drives the engine. A
/// [`Listener`](crate::Listener) hears all events in that order. Keys are valid in the
/// [`View`](crate::evict::View) that comes along, except the key of [`Event::DidDelete`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// An evictor chose a storage that is about to be evicted. [`Event::DidEvict`] comes next, with
    /// [`Cause::Room`] or [`Cause::Threshold`]. Evictions for other causes are not announced.
    WillEvict {
        /// Storage to be evicted.
        storage: StorageKey,
        /// Score of the storage, if the evictor uses scores.
        score: Option<f64>,
    },
    /// A storage was evicted. The bytes are no longer in use, and can be restored. The edges of the
    /// storage still exist.
    DidEvict {
        /// Storage that was evicted.
        storage: StorageKey,
        /// Size of the storage.
        bytes: u64,
        /// Reason of the eviction.
        cause: Cause,
    },
    /// A regeneration came upon an evicted storage. The path of the storage runs once its inputs
    /// are resident. Not told for storages that a schedule restores; see [`Event::DidSchedule`].
    WillRegenerate {
        /// Storage to be restored.
        storage: StorageKey,
        /// Number of paths waiting for one another, this path included.
        depth: usize,
    },
    /// An evicted storage was restored. The path of the storage ran, as [`Event::DidRun`] told just
    /// before. Told once for each evicted output of that run. The path still has the cost of its
    /// previous run.
    DidRegenerate {
        /// Storage that was restored.
        storage: StorageKey,
        /// Size of the storage.
        bytes: u64,
        /// Cost of the run, with all its outputs.
        cost: f64,
    },
    /// An op, an upload or an update ran. Not told for views. The outputs are not resident yet.
    DidRun {
        /// Path that ran; `None` for an update, and for an op without outputs.
        path: Option<PathKey>,
        /// Whether the path ran before.
        again: bool,
        /// Size of all outputs, including outputs that are not needed.
        bytes: u64,
        /// Cost of the run.
        cost: f64,
    },
    /// A path ran again, and its cost has changed. [`Event::DidRegenerate`] was told before for
    /// each storage that the run restored.
    DidChangeCost {
        /// Path that ran.
        path: PathKey,
    },
    /// A storage is used: the run that reads it comes next, or the host reads it. If the storage is
    /// evicted, it is restored next.
    DidUse {
        /// Storage that is read.
        storage: StorageKey,
    },
    /// Blocks were moved to make a hole: enough bytes were free, but not in one piece.
    DidMove {
        /// Number of moves.
        moves: usize,
        /// Total size of the moved blocks.
        bytes: u64,
        /// Size of the hole needed.
        wanted: u64,
    },
    /// The budget was changed.
    DidSetBudget {
        /// New budget.
        bytes: u64,
    },
    /// A resident storage was cut from its path, and is now a leaf that cannot be evicted. Storages
    /// that only its path needed were deleted before.
    DidCommit {
        /// Storage that is now a leaf.
        storage: StorageKey,
    },
    /// An evicted storage is about to be deleted, or to be cut from its path because it is lost to
    /// a failure. The edges of the storage still exist.
    WillForget {
        /// Storage that will be gone or lost.
        storage: StorageKey,
    },
    /// An unneeded storage was deleted, with its bytes if it had any. The storage's key is stale
    /// now. The last event of a storage.
    DidDelete {
        /// Storage that was deleted.
        storage: StorageKey,
    },
    /// A step ended. All events that the end of the step caused were told before.
    DidStep {
        /// Number of the step, from 1 on.
        step: u64,
        /// Bytes in use.
        used: u64,
    },
    /// A step ran by plan ([`Plan`](crate::program::Plan)). The ops of the step were not told one
    /// by one.
    DidReplay {
        /// Ops that ran for the first time. Uploads and updates count, views do not.
        ops: u64,
        /// Cost of the ops that `ops` counts, as known when the step was planned.
        cost: f64,
        /// Additional work for lack of room: recomputations, evictions and moves.
        for_room: ForRoom,
    },
    /// A regeneration goes on by a schedule, in which all runs and evictions are decided in
    /// advance. The reason is that the regeneration repeats itself, or memory is too short for it.
    DidSchedule {
        /// Number of runs in the schedule.
        runs: usize,
        /// Number of paths that the regeneration needs.
        paths: usize,
    },
    /// The recomputation in a step now costs several times the step's own work. Told once a step,
    /// after the run that passed the limit.
    Thrash {
        /// Number of the step, from 1 on. Runs at the end of a step to make leaves belong to the
        /// next step.
        step: u64,
        /// Path of the run that passed the limit.
        path: PathKey,
        /// Cost of the recomputed ops over the cost of the step's own work.
        times: f64,
        /// Setting to raise: `budget` or `eviction threshold`.
        raise: &'static str,
    },
    /// An op failed for a new reason. Values lost to a failure that was told before are not told
    /// again.
    DidFail {
        /// Key of the error.
        failure: FailureKey,
    },
    /// The user wanted to evict a resident leaf: the storage stays.
    DidKeepLeaf {
        /// Storage that stays.
        storage: StorageKey,
        /// Size of the storage.
        bytes: u64,
    },
    /// Before a run, the bytes that cannot be evicted are above the eviction threshold. Told once.
    AboveThreshold {
        /// Eviction threshold.
        threshold: u64,
        /// Bytes that cannot be evicted.
        kept: u64,
    },
    /// A step ended, and a storage keeps a history from earlier steps: it cannot be made a leaf
    /// now. Told again at the end of the next step, if the storage still cannot be made a leaf.
    KeepsHistory {
        /// Storage with the history.
        storage: StorageKey,
    },
    /// Most values are kept only as sources of other values, and no end of a step was marked. Told
    /// once.
    HistoryGrows {
        /// Number of storages in the graph.
        storages: usize,
        /// Number of tensors in the graph.
        tensors: usize,
    },
}

/// Set of kinds of events that an evictor or a policy wants to hear.
///
/// ```
/// use remat::unstable::event::Hears;
/// assert_eq!(Hears::RUNS.and(Hears::USES), Hears::USES.and(Hears::RUNS));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hears(u8);

impl Hears {
    /// No event.
    pub const NOTHING: Self = Self(0);
    /// [`Event::DidUse`], the most frequent of all. The graph also knows when an op last used a
    /// storage.
    pub const USES: Self = Self(1);
    /// [`Event::DidRun`].
    pub const RUNS: Self = Self(1 << 1);
    /// [`Event::DidEvict`], [`Event::DidRegenerate`] and [`Event::WillForget`]: all changes to the
    /// set of evicted storages.
    pub const EVICTIONS: Self = Self(1 << 2);
    /// [`Event::WillEvict`] and [`Event::WillRegenerate`].
    pub const CHOICES: Self = Self(1 << 3);
    /// [`Event::DidDelete`].
    pub const DELETIONS: Self = Self(1 << 4);
    /// All remaining events, which are rare.
    pub const RARE: Self = Self(1 << 5);
    /// Every event.
    pub const ALL: Self = Self((1 << 6) - 1);

    /// Union of two sets.
    #[must_use]
    pub const fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    #[inline(always)]
    pub(crate) const fn has(self, kind: Self) -> bool {
        self.0 & kind.0 != 0
    }
}

impl Event {
    /// Kind of the event.
    #[inline(always)]
    pub(crate) const fn kind(&self) -> Hears {
        match self {
            Self::DidUse { .. } => Hears::USES,
            Self::DidRun { .. } => Hears::RUNS,
            Self::DidEvict { .. } | Self::DidRegenerate { .. } | Self::WillForget { .. } => {
                Hears::EVICTIONS
            }
            Self::WillEvict { .. } | Self::WillRegenerate { .. } => Hears::CHOICES,
            Self::DidDelete { .. } => Hears::DELETIONS,
            _ => Hears::RARE,
        }
    }
}

/// Reason of an eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Cause {
    /// There was no room for an allocation.
    Room,
    /// Memory was above the eviction threshold.
    Threshold,
    /// The user asked for the eviction.
    Wish,
    /// The last handle was dropped, and the storage is kept only to recompute others: a fake
    /// delete.
    Unheld,
    /// The storage was restored only for others, and no run to come reads it.
    Dead,
    /// A failed run may have written over part of the storage.
    Failed,
    /// The storage was evicted before this evictor took over. No other listener is told.
    Before,
    /// The storage was never made: its first run found no room, and was postponed.
    Postponed,
}

/// Additional work of a step by plan for lack of room.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ForRoom {
    /// Runs of ops that had run before.
    pub ops: u64,
    /// Total size of the outputs of the ops that `ops` counts.
    pub bytes: u64,
    /// Cost of the ops that `ops` counts, as known when the step was planned.
    pub cost: f64,
    /// Number of evicted storages.
    pub evictions: u64,
    /// Bytes of the evicted storages.
    pub evicted_bytes: u64,
    /// Number of compactions: times that blocks were moved to make a hole.
    pub compactions: u64,
    /// Bytes moved by compactions.
    pub moved_bytes: u64,
}

impl Cause {
    /// Whether the eviction was a choice. [`Stats::evictions`](crate::Stats::evictions) counts such
    /// evictions.
    #[must_use]
    pub const fn is_chosen(self) -> bool {
        matches!(self, Self::Room | Self::Threshold | Self::Wish)
    }
}
