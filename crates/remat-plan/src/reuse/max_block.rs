//! CANN's simplest reuse: while buffers are placed, all blocks are as large as the largest buffer.

use super::blocks::{ROUND, Take, chain, in_a_row};
use super::{Knows, rounded_to};
use crate::{Lifetimes, Limits, PlanError, Planned, Planner};

/// `max-block`, `max-block:oldest`: lets every buffer use any free block, because all blocks are as
/// large as the largest buffer. When all buffers have a block, each block shrinks to the size of
/// the largest buffer in it.
///
/// Source: the article on memory reuse in CANN, and `MaxBlockMemAssigner` of open-source GE.
/// Buffers get their blocks in order of time. At each instant, the buffers that end release their
/// blocks first; then the buffers that begin follow in the order of their numbers. The planner
/// supports neither gaps nor colours. All blocks are aligned to a multiple of all alignments.
///
/// Time: O(n log n) for n buffers, without a limit on n. The planner is weak if buffers have
/// different sizes: a large block often holds only small buffers. On steps of three networks,
/// placements took 1.81 to 5.6 times the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MaxBlock {
    /// Choice among the free blocks.
    pub take: Take,
    /// Sizes of blocks are rounded up to a multiple of this number of bytes: 512 as in CANN, or 1
    /// to waste no bytes. The name of the planner does not contain this number.
    pub round: u64,
}

impl Default for MaxBlock {
    fn default() -> Self {
        Self { take: Take::default(), round: ROUND }
    }
}

impl Planner for MaxBlock {
    fn name(&self) -> String {
        self.take.name("max-block")
    }

    fn plan(&self, lifetimes: &Lifetimes, _: &Limits) -> Result<Planned, PlanError> {
        Knows::NoGaps.check(self, lifetimes)?;
        let sizes = rounded_to(self.round, lifetimes)?;
        let blocks = chain(lifetimes, &sizes, |_| (), self.take);
        Planned::new(lifetimes, in_a_row(&blocks, sizes.len()))
    }
}
