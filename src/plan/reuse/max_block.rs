//! CANN's simplest reuse: all blocks are as large as the largest buffer until the end.

use super::super::{Lifetimes, Limits, PlanError, Planned, Planner};
use super::blocks::{ROUND, Take, chain, in_a_row};
use super::{Knows, rounded_to};

/// `max-block`, `max-block:oldest`: lets every buffer use any free block, since all blocks are as
/// large as the largest buffer. When all buffers have a block, each block shrinks to its largest
/// buffer.
///
/// Source: the article on memory reuse in CANN, and `MaxBlockMemAssigner` of open-source GE.
/// Buffers come in order of time; at one instant, all buffers that end are released first, and the
/// others follow in the order of their numbers. Buffers of more than one colour or with gaps are
/// refused. All blocks are aligned to a multiple of all alignments.
///
/// Time: O(n log n) for n buffers, without a limit in size. The planner is weak wherever sizes
/// differ: a large block often holds only small buffers. On steps of three networks it took 1.81 to
/// 5.6 times the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MaxBlock {
    /// Choice among the free blocks.
    pub take: Take,
    /// Granule of blocks in bytes: 512 as in CANN, 1 to waste nothing. Not part of the name.
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
