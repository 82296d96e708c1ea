//! CANN's simplest reuse: all blocks are as large as the largest buffer, until the end.

use super::super::{Lifetimes, Limits, PlanError, Planned, Planner};
use super::blocks::{ROUND, Take, chain, in_a_row};
use super::{Knows, rounded_to};

/// `max-block`, `max-block:oldest`: every buffer may use any free block, since all are as large as the largest buffer.
/// When all have one, each block shrinks to the largest that is in it.
///
/// Source: the article on memory reuse in CANN, and `MaxBlockMemAssigner` of open-source GE. Buffers come in order of time,
/// those of one instant in the order of their numbers, after all that end there have been released. Buffers of more than
/// one colour or with gaps are refused; all blocks are aligned to a multiple of all alignments.
///
/// Takes n log n time for n buffers and has no limit in size. It is weak wherever sizes differ: what is small is often all
/// that a large block holds. On steps of three networks it took 1.81 to 5.6 times the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MaxBlock {
    /// Which free block is used again.
    pub take: Take,
    /// Blocks are multiples of this, in bytes: 512 as in CANN, 1 to waste nothing. It is no part of the name.
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
