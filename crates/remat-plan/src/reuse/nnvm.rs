//! Memory planner of NNVM, the compiler from which TVM developed. The planner reuses whole blocks
//! of memory for values of similar size.
//!
//! The planner has three stages, which follow the article on memory allocation in NNVM, and the
//! source of NNVM. Names in parentheses are names in the source of NNVM. [`MemoryPlan`]
//! (`PlanMemory`) visits the nodes of an [`NnvmGraph`] in order, and counts the remaining reads of
//! each value. The first stage gives each computed value a *storage*: a numbered block of memory.
//! [`StoragePlan`] (`DecorateMemoryPlan`) adds storages for variables, and moves values that are
//! assigned to a variable into the storage of the variable. [`SharedPool`] (GraphRuntime's
//! `SetupStorage`) gives the storages addresses. Unlike NNVM's pool, a [`SharedPool`] can serve
//! several graphs that run in turn. [`Nnvm`] plans for lifetimes without a graph, by the rules of
//! the first stage.
//!
//! ```
//! use remat_plan::nnvm::{
//!     DataType, NnvmGraph, InPlace, MatchRange, MemoryPlan, OpNode, SharedPool, StoragePlan, TensorType,
//! };
//!
//! let numbers = TensorType::new(256, DataType::F32);
//! let over = InPlace { input: 0, output: 0, identity: false };
//! let mut graph = NnvmGraph::default();
//! let x = graph.variable("x", numbers)?;
//! let mut last = x;
//! for _ in 0..5 {
//!     last.node = graph.op(OpNode::new([last], [numbers]))?;
//! }
//! last.node = graph.op(OpNode::new([last], [numbers]).in_place(over))?;
//! graph.output(last)?;
//!
//! // The ops use two storages in turn. The last op needs no storage, because it overwrites its
//! // input.
//! let plan = MemoryPlan::new(&graph, MatchRange::default());
//! assert_eq!(plan.bytes(), 2 * 1024);
//! let pool = SharedPool::new(&[StoragePlan::new(plan)], 4)?;
//! assert_eq!(pool.bytes(), 3 * 1024);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod allocator;
mod assign;
mod colour;
mod graph;
mod memory;
mod pool;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::fmt;
use std::str::FromStr;

use self::allocator::Allocator;
use super::common_multiple;
use crate::{Change, Lifetimes, Limits, PlanError, Planned, Planner};

pub use self::allocator::StorageEntry;
pub use self::assign::{Assign, StoragePlan};
pub use self::graph::{
    Code, DataType, GraphError, InPlace, NnvmGraph, NodeEntry, OpNode, Pattern, StorageKind,
    TensorType,
};
pub use self::memory::MemoryPlan;
pub use self::pool::{PoolError, PoolView, SharedPool};

/// Location of an entry, which is an output of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Home {
    /// Not planned yet (storage id -1). Only variables have this value, until [`StoragePlan`] gives
    /// them a storage.
    None,
    /// The storage of this number.
    Storage(usize),
    /// Memory that the runner of the graph allocates (storage id -2).
    External,
    /// Memory that is allocated while the graph runs (storage id -3).
    Dynamic,
}

/// Range of sizes in which a free storage may be reused (`match_range`): how many times larger or
/// smaller than the request the storage may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MatchRange {
    /// The storage may be at most this many times larger or smaller. With 0, no storage is reused;
    /// with 1, only storages of exactly the requested size.
    Times(u64),
    /// The best of the ranges 1, 2, 4, 8 and 16 times, which gives the smallest plan; on a tie, the
    /// first range (`NNVM_AUTO_SEARCH_MATCH_RANGE`).
    Auto,
}

impl MatchRange {
    /// Plan with the fewest bytes among the plans for all ranges of `self`; the first on a tie.
    fn smallest<P>(self, plan: impl Fn(u64) -> P, bytes: impl Fn(&P) -> u64) -> P {
        match self {
            Self::Times(times) => plan(times),
            Self::Auto => [2, 4, 8, 16]
                .into_iter()
                .map(&plan)
                .fold(plan(1), |best, new| if bytes(&new) < bytes(&best) { new } else { best }),
        }
    }
}

impl Default for MatchRange {
    /// Range of 16 times, the default of NNVM.
    fn default() -> Self {
        Self::Times(16)
    }
}

impl fmt::Display for MatchRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Times(times) => times.fmt(f),
            Self::Auto => f.pad("auto"),
        }
    }
}

/// `nnvm:16`, `nnvm:auto`, or any other range: NNVM's planner for lifetimes, without a graph. Plain
/// `nnvm` is `nnvm:16`.
///
/// Source: `PlanMemory` and `GraphAllocator` of NNVM, as for [`MemoryPlan`]. Lifetimes hold less
/// information than a graph. For example, lifetimes do not say which outputs may be written in
/// place.
///
/// At each instant, the buffers that end are released first, in the order of their numbers.
/// Afterwards, the buffers that begin request storages: the largest first, and buffers of equal
/// size in the order of their numbers. (In a graph, the outputs of a node request storages before
/// its inputs are released. Lifetimes express this order of requests if each input ends one instant
/// after the outputs begin. An input that ends when an output begins may give its storage to that
/// output.) Storages lie one after another, each aligned to a multiple of all alignments of its
/// buffers. Buffers of different colours never share a storage. Gaps are not supported.
///
/// Time: O(n log n) for n buffers, and five times as long for [`MatchRange::Auto`], without a limit
/// on n. The planner is weak if sizes differ much: even a large storage holds only one buffer at a
/// time. On steps of three networks, plans took 1.03 to 1.70 times the load (1.02 to 1.67 times
/// with [`MatchRange::Auto`]). On MiniMalloc's six hard instances, plans took 1.28 to 2.71 times
/// the load (1.28 to 2.50 times with [`MatchRange::Auto`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Nnvm {
    /// Range of sizes in which a free storage may be reused.
    pub range: MatchRange,
}

impl Nnvm {
    /// Offsets of the buffers, and the end of the last storage; `None` if this end is 2^64 or more.
    fn lay(changes: &[Change], lifetimes: &Lifetimes, range: u64) -> Option<(Vec<u64>, u64)> {
        let buffers = lifetimes.buffers();
        let mut allocator = Allocator::new(range);
        let mut homes = vec![0; buffers.len()];
        let mut aligns = Vec::new();
        for change in changes {
            match *change {
                Change::Free(i) => allocator.release(homes[i], buffers[i].colour),
                Change::Alloc(i) => {
                    let storage = allocator.request(0, buffers[i].colour, buffers[i].size);
                    if storage == aligns.len() {
                        aligns.push(1);
                    }
                    aligns[storage] = common_multiple(aligns[storage], buffers[i].align)?;
                    homes[i] = storage;
                }
            }
        }
        let mut top = 0;
        let mut offsets = Vec::with_capacity(aligns.len());
        for (storage, align) in allocator.into_storages().iter().zip(aligns) {
            let (offset, end) = pool::behind(top, storage.bytes, align)?;
            offsets.push(offset);
            top = end;
        }
        Some((homes.into_iter().map(|storage| offsets[storage]).collect(), top))
    }
}

impl Planner for Nnvm {
    fn name(&self) -> String {
        format!("nnvm:{}", self.range)
    }

    fn plan(&self, lifetimes: &Lifetimes, _: &Limits) -> Result<Planned, PlanError> {
        if lifetimes.has_gaps() {
            return Err(PlanError::Unknown { planner: self.name(), what: "gaps" });
        }
        let changes = largest_first(lifetimes);
        let lay = |range| Self::lay(&changes, lifetimes, range);
        let end = |laid: &Option<(_, u64)>| laid.as_ref().map_or(u64::MAX, |(_, end)| *end);
        let (offsets, _) = self.range.smallest(lay, end).ok_or(PlanError::TooLarge)?;
        Planned::new(lifetimes, offsets)
    }
}

/// Begins and ends of lives in order of time. At each instant, all ends come first. The begins
/// follow, the largest buffers first.
fn largest_first(lifetimes: &Lifetimes) -> Vec<Change> {
    let buffers = lifetimes.buffers();
    let mut changes = lifetimes.changes();
    let together = |a: &Change, b: &Change| match (*a, *b) {
        (Change::Alloc(a), Change::Alloc(b)) => buffers[a].lower == buffers[b].lower,
        _ => false,
    };
    for begin in changes.chunk_by_mut(together) {
        begin.sort_by_key(|change| match *change {
            Change::Alloc(i) | Change::Free(i) => Reverse(buffers[i].size),
        });
    }
    changes
}

impl FromStr for Nnvm {
    type Err = UnknownRange;

    /// Parses `nnvm`, `nnvm:auto`, or `nnvm:` and a number, which includes every name that
    /// [`Planner::name`] gives.
    fn from_str(name: &str) -> Result<Self, UnknownRange> {
        let unknown = || UnknownRange(name.to_owned());
        let range = match name.strip_prefix("nnvm").ok_or_else(unknown)? {
            "" => MatchRange::default(),
            ":auto" => MatchRange::Auto,
            range => {
                let times = range.strip_prefix(':').and_then(|times| times.parse().ok());
                MatchRange::Times(times.ok_or_else(unknown)?)
            }
        };
        Ok(Self { range })
    }
}

/// Error: the text is not a name of the planner [`Nnvm`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not nnvm, nnvm:auto or nnvm:N")]
pub struct UnknownRange(String);
