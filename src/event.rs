//! What happens in an engine, said once: statistics, `tracing`, recordings, evictors and tests all listen to it.

use crate::error::FailureKey;
use crate::graph::{PathKey, StorageKey};
use std::fmt;

/// Something that happens in an engine. Sizes are in bytes, costs in the unit of the cost model.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// An evictor chose a storage, whose bytes are about to go.
    WillEvict {
        /// What goes.
        storage: StorageKey,
        /// Its score, if the evictor goes by scores.
        score: Option<f64>,
    },
    /// The bytes of a storage went, and can be brought back. Its edges are still there.
    DidEvict {
        /// What went.
        storage: StorageKey,
        /// Its size.
        bytes: u64,
        /// Why.
        cause: Cause,
    },
    /// A regeneration comes upon an evicted storage: its path will run once all that the path reads is there.
    WillRegenerate {
        /// What will be brought back.
        storage: StorageKey,
        /// Paths that wait for one another, this one included.
        depth: usize,
    },
    /// An evicted storage is back: its path ran. The cost of the path is still the one of its run before.
    DidRegenerate {
        /// What is back.
        storage: StorageKey,
        /// Its size.
        bytes: u64,
        /// What this run cost.
        cost: f64,
    },
    /// An op, an upload or an update ran; not views. What it made is not resident yet.
    DidRun {
        /// The path; `None` for an update.
        path: Option<PathKey>,
        /// Whether it ran before.
        again: bool,
        /// Size of all it made, wanted or not.
        bytes: u64,
        /// What the run cost.
        cost: f64,
    },
    /// A path ran again, and its cost is another one now.
    DidChangeCost {
        /// Which.
        path: PathKey,
    },
    /// A run that reads this comes up, or the host reads it.
    DidUse {
        /// What is read.
        storage: StorageKey,
    },
    /// Blocks were moved to make a hole.
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
    /// A storage was cut from its path, and is a leaf now.
    DidCommit {
        /// Which.
        storage: StorageKey,
    },
    /// An evicted storage is about to be deleted, or cut from its path. Its edges are still there.
    WillForget {
        /// Which.
        storage: StorageKey,
    },
    /// Nothing needed a storage any more, and it left the graph: its key is stale.
    DidDelete {
        /// Which.
        storage: StorageKey,
    },
    /// A step ended.
    DidStep {
        /// Its number, from 1 on.
        step: u64,
        /// Bytes in use.
        used: u64,
    },
    /// A regeneration repeats itself, and goes on by a schedule.
    DidSchedule {
        /// Runs in the schedule.
        runs: usize,
        /// Paths that the regeneration needs.
        paths: usize,
    },
    /// A step began to recompute several times its own work; once a step.
    Thrash {
        /// Number of the step, from 1 on.
        step: u64,
        /// The path that ran last.
        path: PathKey,
        /// Cost of what was recomputed over the cost of the work.
        times: f64,
        /// What should be raised: `budget` or `eviction threshold`.
        raise: &'static str,
    },
    /// An op failed, and it was not known before why.
    DidFail {
        /// The key of the error.
        failure: FailureKey,
    },
    /// The user wanted a storage to be evicted that is a leaf.
    DidKeepLeaf {
        /// Which.
        storage: StorageKey,
        /// Its size.
        bytes: u64,
    },
    /// What cannot be evicted is above the eviction threshold; told once.
    AboveThreshold {
        /// The threshold.
        threshold: u64,
        /// What cannot be evicted.
        kept: u64,
    },
    /// A storage keeps its history across the end of a step, for it cannot be brought back now.
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

/// Why bytes went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

impl Cause {
    /// Whether somebody chose it: such evictions are counted by [`Stats::evictions`](crate::Stats::evictions).
    #[must_use]
    pub const fn is_chosen(self) -> bool {
        matches!(self, Self::Room | Self::Threshold | Self::Wish)
    }
}

/// Hears every event, on the thread that drives the engine.
pub trait Listener: fmt::Debug + Send {
    /// Something happened.
    fn on(&mut self, event: &Event);
}
