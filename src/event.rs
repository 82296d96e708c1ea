//! Events of an engine. Each event is sent once, to statistics, `tracing`, recordings, evictors and
//! tests.

use crate::error::FailureKey;
use crate::graph::{PathKey, StorageKey};

/// Event in an engine. Sizes are in bytes, and costs in the unit of the cost model.
///
/// The thread that drives the engine sends each event when it happens. A
/// [`Listener`](crate::Listener) receives all events in the order in which they happen. Keys are
/// valid in the [`View`](crate::evict::View) that is sent with the event, except the key of
/// [`Event::DidDelete`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// An evictor chose a storage that is about to be evicted. [`Event::DidEvict`] comes next, with
    /// [`Cause::Room`] or [`Cause::Threshold`]. Evictions for other causes have no `WillEvict`.
    WillEvict {
        /// Storage to be evicted.
        storage: StorageKey,
        /// Score of the storage, if the evictor uses scores.
        score: Option<f64>,
    },
    /// A storage was evicted. The bytes are no longer in use, and can be restored. The storage
    /// stays in the graph, with its edges.
    DidEvict {
        /// Storage that was evicted.
        storage: StorageKey,
        /// Size of the storage.
        bytes: u64,
        /// Reason of the eviction.
        cause: Cause,
    },
    /// A regeneration found an evicted storage that it needs. The path of the storage runs once its
    /// inputs are resident. The event is not sent for storages that a schedule restores; see
    /// [`Event::DidSchedule`].
    WillRegenerate {
        /// Storage to be restored.
        storage: StorageKey,
        /// Number of paths that wait for one another, the path of the storage included.
        depth: usize,
    },
    /// An evicted storage was restored. The event follows the [`Event::DidRun`] of the run that
    /// restored the storage, once for each restored output. During the event, the path still has
    /// the cost of its previous run.
    DidRegenerate {
        /// Storage that was restored.
        storage: StorageKey,
        /// Size of the storage.
        bytes: u64,
        /// Cost of the run that made all outputs of the path.
        cost: f64,
    },
    /// An op, an upload or an update ran; views do not run. During the event, the outputs are not
    /// resident yet.
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
    /// A path ran again, and its cost has changed. The event follows the [`Event::DidRegenerate`]
    /// of each storage that the run restored.
    DidChangeCost {
        /// Path that ran.
        path: PathKey,
    },
    /// A storage is used: the next run reads it, or the host reads it. If the storage is evicted,
    /// it is restored next.
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
        /// Size of the required hole.
        wanted: u64,
    },
    /// The budget was changed.
    DidSetBudget {
        /// New budget.
        bytes: u64,
    },
    /// A resident storage was cut from its path, and is now a leaf that cannot be evicted. Storages
    /// that only the cut path needed were deleted before the event.
    DidCommit {
        /// Storage that is now a leaf.
        storage: StorageKey,
    },
    /// An evicted storage is about to be deleted, or to be cut from its path because it is lost to
    /// a failure. During the event, the edges of the storage still exist.
    WillForget {
        /// Storage that will be deleted or lost.
        storage: StorageKey,
    },
    /// An unneeded storage was deleted, and its bytes, if any, were freed. The storage's key no
    /// longer finds anything. `DidDelete` is the last event of a storage.
    DidDelete {
        /// Storage that was deleted.
        storage: StorageKey,
    },
    /// A step ended. The event comes after all other events that the end of the step caused.
    DidStep {
        /// Number of the step, counted from 1.
        step: u64,
        /// Bytes in use.
        used: u64,
    },
    /// A step ran by plan ([`Plan`](crate::program::Plan)). The ops of the step have no events of
    /// their own.
    DidReplay {
        /// Number of ops that ran for the first time. Uploads and updates count; views do not.
        ops: u64,
        /// Cost of the ops that `ops` counts, as known when the step was planned.
        cost: f64,
        /// Additional work because memory is short: recomputations, evictions and moves.
        for_room: ForRoom,
    },
    /// A regeneration continues by a schedule, in which all runs and evictions are decided in
    /// advance. The engine uses a schedule if a regeneration repeats runs, or if memory is too
    /// short for it.
    DidSchedule {
        /// Number of runs in the schedule.
        runs: usize,
        /// Number of paths that the regeneration needs.
        paths: usize,
    },
    /// The recomputation in a step now costs several times the step's own work. The event is sent
    /// once per step, after the run that exceeded the limit.
    Thrash {
        /// Number of the step, counted from 1. Runs at the end of a step that make leaves belong to
        /// the next step.
        step: u64,
        /// Path of the run that exceeded the limit.
        path: PathKey,
        /// Cost of the recomputed ops, divided by the cost of the step's own work.
        times: f64,
        /// Setting that the user should raise: `budget` or `eviction threshold`.
        raise: &'static str,
    },
    /// An op failed. No event is sent for values that are lost to an earlier failure.
    DidFail {
        /// Key of the error.
        failure: FailureKey,
    },
    /// The user requested the eviction of a resident leaf. The storage stays resident.
    DidKeepLeaf {
        /// Storage that stays resident.
        storage: StorageKey,
        /// Size of the storage.
        bytes: u64,
    },
    /// Before a run, the bytes that cannot be evicted exceed the eviction threshold. The event is
    /// sent only once.
    AboveThreshold {
        /// Eviction threshold.
        threshold: u64,
        /// Bytes that cannot be evicted.
        kept: u64,
    },
    /// A step ended, and storages keep a history from earlier steps, because they cannot be made
    /// leaves now. The event names the first of them. It is sent again only after a step whose end
    /// made leaves of all.
    KeepsHistory {
        /// First storage with such a history.
        storage: StorageKey,
    },
    /// Most values are kept only as sources of other values, and no end of a step was marked. The
    /// event is sent only once.
    HistoryGrows {
        /// Number of storages in the graph.
        storages: usize,
        /// Number of tensors in the graph.
        tensors: usize,
    },
}

/// Set of kinds of events that an evictor or a policy receives.
///
/// ```
/// use remat::unstable::event::Hears;
/// assert_eq!(Hears::RUNS.and(Hears::USES), Hears::USES.and(Hears::RUNS));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hears(u8);

impl Hears {
    /// No events.
    pub const NOTHING: Self = Self(0);
    /// [`Event::DidUse`], the most frequent event. Staleness does not need `DidUse`: the graph
    /// stores when an op last used a storage.
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
    /// All events.
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
    /// An allocation did not fit.
    Room,
    /// Memory was above the eviction threshold.
    Threshold,
    /// The user requested the eviction.
    Wish,
    /// The last handle was dropped, and the storage is kept only to recompute other storages (a
    /// fake delete).
    Unheld,
    /// The storage was restored only to recompute other storages, and no later run of the
    /// regeneration reads it.
    Dead,
    /// A failed run may have written over part of the storage.
    Failed,
    /// The storage was already evicted when the evictor was set. Only the new evictor receives the
    /// event.
    Before,
    /// The storage was never made. Memory did not suffice for the first run of the storage's
    /// compute path, so the run was postponed.
    Postponed,
}

/// Additional work of a step by plan because memory is short.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ForRoom {
    /// Number of runs of ops that had run before.
    pub ops: u64,
    /// Total size of the outputs of the runs that `ops` counts.
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
    /// Whether the evictor or the user chose the eviction.
    /// [`Stats::evictions`](crate::Stats::evictions) counts chosen evictions.
    #[must_use]
    pub const fn is_chosen(self) -> bool {
        matches!(self, Self::Room | Self::Threshold | Self::Wish)
    }
}
