//! Memory planner of NNVM, the compiler that TVM grew out of: whole blocks, reused for values of
//! similar size.
//!
//! The planner has three stages, as described in the article on memory allocation in NNVM and by
//! the open source. [`MemoryPlan`] (`PlanMemory`) walks through an [`NnvmGraph`] with reference
//! counts, and gives computed values *storages*, by number. [`StoragePlan`] (`DecorateMemoryPlan`)
//! adds the variables, and moves values that are assigned to a variable into its storage.
//! [`SharedPool`] (GraphRuntime's `SetupStorage`) puts bytes behind the storages, here also for
//! several graphs that take turns. [`Nnvm`] plans for plain lifetimes, by the rules of the first
//! stage.
//!
//! ```
//! use remat::plan::nnvm::{
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
//! // Two storages by turns, and nothing for the last op.
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
use super::super::{Change, Lifetimes, Limits, PlanError, Planned, Planner};
use super::common_multiple;

pub use self::allocator::StorageEntry;
pub use self::assign::{Assign, StoragePlan};
pub use self::graph::{
    Code, DataType, GraphError, InPlace, NnvmGraph, NodeEntry, OpNode, Pattern, StorageKind,
    TensorType,
};
pub use self::memory::MemoryPlan;
pub use self::pool::{PoolError, PoolView, SharedPool};

/// Place of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Home {
    /// No place so far: a variable before [`StoragePlan`] (storage id -1).
    None,
    /// The storage of this number.
    Storage(usize),
    /// A place chosen by the runner of the graph (storage id -2).
    External,
    /// A place chosen as the graph runs (storage id -3).
    Dynamic,
}

/// Range of sizes in which a free storage may be reused (`match_range`): at most this many times
/// larger or smaller than the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MatchRange {
    /// This many times. With 0 no storage is reused, with 1 only storages of exactly the size.
    Times(u64),
    /// The best of 1, 2, 4, 8 and 16 times: the smallest plan, the first on a tie
    /// (`NNVM_AUTO_SEARCH_MATCH_RANGE`).
    Auto,
}

impl MatchRange {
    /// Smallest plan over the ranges, the first on a tie.
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
    /// 16 times, NNVM's default.
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
/// Source: `PlanMemory` and `GraphAllocator` of NNVM, as for [`MemoryPlan`]. Properties of a graph
/// beyond lifetimes are not known here, such as which outputs may be written in place.
///
/// At one instant, buffers that end are released first, in the order of their numbers. Then buffers
/// that begin are requested, the largest first, equal ones in the order of their numbers. (In a
/// graph, the outputs of a node are requested before its inputs are released. Half-open lifetimes
/// can say so: such an input ends an instant after the output begins. An input whose end is the
/// output's begin need not be apart from the output.) Storages lie one behind another, each at a
/// multiple of all alignments of its buffers. Buffers of different colours never share a storage.
/// Gaps are refused.
///
/// Time: O(n log n) for n buffers, five times as much for [`MatchRange::Auto`], without a limit in
/// size. The planner is weak where sizes differ much: a storage holds one buffer at a time, however
/// small. On steps of three networks it took 1.03 to 1.70 times the load (with auto 1.02 to 1.67),
/// on MiniMalloc's six hard instances 1.28 to 2.71 (1.28 to 2.50).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Nnvm {
    /// Range of reusable storages.
    pub range: MatchRange,
}

impl Nnvm {
    /// Offsets of the buffers, and the end of the last storage; `None` if the end is beyond all
    /// addresses.
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

/// Begins and ends in order of time. At each instant ends come first, then begins, the largest
/// first.
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

/// Error: the name is none of this planner's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not nnvm, nnvm:auto or nnvm: and a number")]
pub struct UnknownRange(String);
