//! What happens in an engine, said once: statistics, `tracing`, recordings, evictors and tests all listen to it.

use crate::error::FailureKey;
use crate::graph::{PathKey, StorageKey};

/// Something that happens in an engine. Sizes are in bytes, costs in the unit of the cost model.
///
/// Each is told when it happens, by the thread that drives the engine; a [`Listener`](crate::Listener) hears them in
/// that order. A key is valid in the [`View`](crate::evict::View) that comes along, but for that of
/// [`Event::DidDelete`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// An evictor chose a storage, whose bytes are about to go: [`Event::DidEvict`] comes next, with
    /// [`Cause::Room`] or [`Cause::Threshold`]. What goes for another cause is not announced.
    WillEvict {
        /// What goes.
        storage: StorageKey,
        /// Its score, if the evictor goes by scores.
        score: Option<f64>,
    },
    /// The bytes of a storage went, and can be brought back. They are not in use any more; its edges are still
    /// there.
    DidEvict {
        /// What went.
        storage: StorageKey,
        /// Its size.
        bytes: u64,
        /// Why.
        cause: Cause,
    },
    /// A regeneration comes upon an evicted storage: its path will run once all that the path reads is there. Not
    /// told of what a schedule brings back; see [`Event::DidSchedule`].
    WillRegenerate {
        /// What will be brought back.
        storage: StorageKey,
        /// Paths that wait for one another, this one included.
        depth: usize,
    },
    /// An evicted storage is back: its path ran, which [`Event::DidRun`] told just before. One for each output of that
    /// run that was evicted. The cost of the path is still the one of its run before.
    DidRegenerate {
        /// What is back.
        storage: StorageKey,
        /// Its size.
        bytes: u64,
        /// What this run cost, all its outputs together.
        cost: f64,
    },
    /// An op, an upload or an update ran; not views. What it made is not resident yet.
    DidRun {
        /// The path; `None` for an update, and for an op without outputs.
        path: Option<PathKey>,
        /// Whether it ran before.
        again: bool,
        /// Size of all it made, wanted or not.
        bytes: u64,
        /// What the run cost.
        cost: f64,
    },
    /// A path ran again, and its cost is another one now. What the run brought back was told before.
    DidChangeCost {
        /// Which.
        path: PathKey,
    },
    /// A run that reads this is the next thing to do, or the host reads it. It need not be resident: if it is
    /// evicted, it is brought back next.
    DidUse {
        /// What is read.
        storage: StorageKey,
    },
    /// Blocks were moved to make a hole: bytes enough were free, but not in one piece.
    DidMove {
        /// How many.
        moves: usize,
        /// Their size together.
        bytes: u64,
        /// How large the hole had to be.
        wanted: u64,
    },
    /// The budget was changed.
    DidSetBudget {
        /// The new one.
        bytes: u64,
    },
    /// A storage was cut from its path, and is a leaf now: resident for good. What only its path needed was deleted
    /// before.
    DidCommit {
        /// Which.
        storage: StorageKey,
    },
    /// An evicted storage is about to be deleted, or cut from its path since it is lost to a failure. Its edges are
    /// still there.
    WillForget {
        /// Which.
        storage: StorageKey,
    },
    /// Nothing needed a storage any more, and it left the graph with its bytes, if it had any: its key is stale. The
    /// last event of a storage.
    DidDelete {
        /// Which.
        storage: StorageKey,
    },
    /// A step ended, and all that ends with it was told.
    DidStep {
        /// Its number, from 1 on.
        step: u64,
        /// Bytes in use.
        used: u64,
    },
    /// A step ran by plan ([`Plan`](crate::program::Plan)). Of its ops, none was told by itself.
    DidReplay {
        /// Ops that ran, uploads and updates included; views not.
        ops: u64,
        /// What they cost when the step was planned.
        cost: f64,
        /// What was recomputed beside, evicted and moved.
        for_room: ForRoom,
    },
    /// A regeneration repeats itself, or memory is too short for it, and it goes on by a schedule.
    DidSchedule {
        /// Runs in the schedule.
        runs: usize,
        /// Paths that the regeneration needs.
        paths: usize,
    },
    /// A step began to recompute several times its own work; once a step, after the run that was too many.
    Thrash {
        /// Number of the step, from 1 on. What the end of a step runs to make leaves is work of the next one.
        step: u64,
        /// The path that ran last.
        path: PathKey,
        /// Cost of what was recomputed over the cost of the work.
        times: f64,
        /// What should be raised: `budget` or `eviction threshold`.
        raise: &'static str,
    },
    /// An op failed, and it was not known before why: what is lost to a failure that was told is not told again.
    DidFail {
        /// The key of the error.
        failure: FailureKey,
    },
    /// The user wanted a storage to be evicted that is resident and a leaf: it stays.
    DidKeepLeaf {
        /// Which.
        storage: StorageKey,
        /// Its size.
        bytes: u64,
    },
    /// Before a run, what cannot be evicted is above the eviction threshold; told once.
    AboveThreshold {
        /// The threshold.
        threshold: u64,
        /// What cannot be evicted.
        kept: u64,
    },
    /// A step ends, and a storage keeps its history, which reaches back beyond the step: it cannot be made a leaf
    /// now. Told again at the end of the next step, if it is still so.
    KeepsHistory {
        /// Which.
        storage: StorageKey,
    },
    /// Most values are kept only because others are made from them, and no end of a step was marked; told once.
    HistoryGrows {
        /// Storages in the graph.
        storages: usize,
        /// Tensors in the graph.
        tensors: usize,
    },
}

/// Kinds of events: those that an evictor or a policy wants to hear.
///
/// ```
/// use remat::event::Hears;
/// assert_eq!(Hears::RUNS.and(Hears::USES), Hears::USES.and(Hears::RUNS));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hears(u8);

impl Hears {
    /// No event.
    pub const NOTHING: Self = Self(0);
    /// [`Event::DidUse`], the most frequent of all. When an op last used a storage can be read in the graph, too.
    pub const USES: Self = Self(1);
    /// [`Event::DidRun`].
    pub const RUNS: Self = Self(1 << 1);
    /// [`Event::DidEvict`], [`Event::DidRegenerate`] and [`Event::WillForget`]: what an evicted storage is from its
    /// first to its last moment.
    pub const EVICTIONS: Self = Self(1 << 2);
    /// [`Event::WillEvict`] and [`Event::WillRegenerate`].
    pub const CHOICES: Self = Self(1 << 3);
    /// [`Event::DidDelete`].
    pub const DELETIONS: Self = Self(1 << 4);
    /// All others, which are rare.
    pub const RARE: Self = Self(1 << 5);
    /// Every event.
    pub const ALL: Self = Self((1 << 6) - 1);

    /// These and those.
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
    /// Which kind of event it is.
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

/// Why bytes went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Cause {
    /// An allocation did not fit.
    Room,
    /// Memory was above the eviction threshold.
    Threshold,
    /// The user wanted it.
    Wish,
    /// Its last handle went, and it is kept only to recompute others: a fake delete.
    Unheld,
    /// It was brought back only as a step on the way, and no run to come reads it.
    Dead,
    /// A run failed that may have written over it in part.
    Failed,
    /// It was evicted before this evictor took over; no other listener is told.
    Before,
    /// It never was there: no room was found for its first run, which was put off.
    Postponed,
}

/// What a step that ran by plan did for want of room.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ForRoom {
    /// Ops run again.
    pub ops: u64,
    /// Bytes that those made.
    pub bytes: u64,
    /// Their cost when the step was planned.
    pub cost: f64,
    /// Storages evicted.
    pub evictions: u64,
    /// Their bytes.
    pub evicted_bytes: u64,
    /// Times that blocks were moved to make a hole.
    pub compactions: u64,
    /// Bytes moved in doing so.
    pub moved_bytes: u64,
}

impl Cause {
    /// Whether somebody chose it: such evictions are counted by [`Stats::evictions`](crate::Stats::evictions).
    #[must_use]
    pub const fn is_chosen(self) -> bool {
        matches!(self, Self::Room | Self::Threshold | Self::Wish)
    }
}
