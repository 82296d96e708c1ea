//! CANN's reuse among buffers of similar size: classes by powers of two.

use super::super::{Lifetimes, Limits, PlanError, Planned, Planner};
use super::blocks::{ROUND, Take, chain, in_a_row};
use super::{Knows, rounded_to};

/// Size in bytes: 8 MiB. A class of at least two members stays, however few, if its largest member
/// has this size or more.
const LARGE: u64 = 8 << 20;

/// `binary-block`, `binary-block:oldest`: lets a buffer use a free block of its class. Classes
/// double in size, and a class with few members is joined to the next. When all buffers have a
/// block, each block shrinks to its largest buffer.
///
/// Source: the article on memory reuse in CANN, and `BinaryBlockMemAssigner` of open-source GE;
/// classes as in [`BinaryBlock::sizes`]. Buffers come in order of time; at one instant, all buffers
/// that end are released first, and the others follow in the order of their numbers. Buffers of
/// more than one colour or with gaps are refused. All blocks are aligned to a multiple of all
/// alignments.
///
/// Time: O(n log n) for n buffers, without a limit in size. The planner is weak where small buffers
/// could share the bytes of a large one: buffers of different classes never share. On steps of
/// three networks it took 1.11 to 2.08 times the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BinaryBlock {
    /// Choice among the free blocks.
    pub take: Take,
    /// Granule of blocks in bytes: 512 as in CANN, 1 to waste nothing. Not part of the name.
    pub round: u64,
}

impl Default for BinaryBlock {
    fn default() -> Self {
        Self { take: Take::default(), round: ROUND }
    }
}

impl BinaryBlock {
    /// Largest size in each class, rising. A buffer belongs to the first class whose largest size
    /// is not smaller.
    ///
    /// The first class goes up to twice 512 bytes; if no buffer has more than 512 bytes, it goes up
    /// to twice the smallest size. Each further class goes twice as far. With n classes for m
    /// buffers, a class with fewer than m / n members, rounded down, is joined to the next.
    /// Exceptions: the last class, and a class with two members or more whose largest has 8 MiB or
    /// more. (GE looks at the smallest member there. That gives 1.103 instead of 1.114 times the
    /// load on ResNet-50, and the same on the other two networks. The known figures are those
    /// of the largest.)
    ///
    /// # Errors
    ///
    /// [`PlanError`] if there is more than one colour, if there are gaps, or if the rounded sizes
    /// add up to 2^64 bytes or more.
    pub fn sizes(&self, lifetimes: &Lifetimes) -> Result<Vec<u64>, PlanError> {
        Knows::NoGaps.check(self, lifetimes)?;
        Ok(classes(rounded_to(self.round, lifetimes)?))
    }
}

/// Largest size in each class of these sizes, rising.
fn classes(mut sizes: Vec<u64>) -> Vec<u64> {
    sizes.retain(|&size| size > 0);
    sizes.sort_unstable();
    let (Some(&smallest), Some(&largest)) = (sizes.first(), sizes.last()) else {
        return Vec::new();
    };
    let least = if largest > ROUND { ROUND } else { smallest };
    let mut bounds = vec![least.saturating_mul(2)];
    while bounds[bounds.len() - 1] < largest {
        bounds.push(bounds[bounds.len() - 1].saturating_mul(2));
    }
    let few = sizes.len() / bounds.len();
    let mut classes = Vec::new();
    // Begin of the class that is being made.
    let mut begin = 0;
    for bound in bounds {
        let end = sizes.partition_point(|&size| size <= bound);
        let members = end - begin;
        if members == 0 {
            continue;
        }
        let top = sizes[end - 1];
        if members >= few || end == sizes.len() || (members >= 2 && top >= LARGE) {
            classes.push(top);
            begin = end;
        }
    }
    classes
}

impl Planner for BinaryBlock {
    fn name(&self) -> String {
        self.take.name("binary-block")
    }

    fn plan(&self, lifetimes: &Lifetimes, _: &Limits) -> Result<Planned, PlanError> {
        Knows::NoGaps.check(self, lifetimes)?;
        let sizes = rounded_to(self.round, lifetimes)?;
        let classes = classes(sizes.clone());
        let class = |size| classes.partition_point(|&largest| largest < size);
        let blocks = chain(lifetimes, &sizes, class, self.take);
        Planned::new(lifetimes, in_a_row(&blocks, sizes.len()))
    }
}
