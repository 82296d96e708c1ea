//! CANN's reuse among buffers of similar size: classes by powers of two.

use super::blocks::{ROUND, Take, chain, in_a_row};
use super::{Knows, rounded_to};
use crate::{Lifetimes, Limits, PlanError, Planned, Planner};

/// Size of a large buffer, in bytes: 8 MiB. A class of two members or more stays separate if its
/// largest member has this size or more.
const LARGE: u64 = 8 << 20;

/// `binary-block`, `binary-block:oldest`: divides buffers into classes by size, and lets a buffer
/// use any free block of its class. The limit of a class is twice the limit of the class before. A
/// class with few members is joined to the next class. When all buffers have a block, each block
/// shrinks to the size of its largest buffer.
///
/// Source: the article on memory reuse in CANN, and `BinaryBlockMemAssigner` of open-source GE;
/// [`BinaryBlock::sizes`] describes the classes. Buffers get their blocks in order of time. At each
/// instant, the buffers that end release their blocks first; then the buffers that begin follow in
/// the order of their numbers. The planner supports neither gaps nor colours. All blocks are
/// aligned to a multiple of all alignments.
///
/// Time: O(n log n) for n buffers, without a limit on n. The planner is weak if small buffers could
/// use the bytes of a large buffer: buffers of different classes never share a block. On steps of
/// three networks, placements took 1.11 to 2.08 times the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BinaryBlock {
    /// Choice among the free blocks.
    pub take: Take,
    /// Sizes of blocks are rounded up to a multiple of this number of bytes: 512 as in CANN, or 1
    /// to waste no bytes. The name of the planner does not contain this number.
    pub round: u64,
}

impl Default for BinaryBlock {
    fn default() -> Self {
        Self { take: Take::default(), round: ROUND }
    }
}

impl BinaryBlock {
    /// Largest size in each class, in rising order. A buffer belongs to the first class whose
    /// largest size is at least the size of the buffer.
    ///
    /// The limit of the first class is twice 512 bytes; if no buffer has more than 512 bytes, the
    /// limit is twice the smallest size. The limit of each further class is twice the limit of the
    /// class before. With n classes for m buffers, a class with fewer than m / n members, rounded
    /// down, is joined to the next class. Two classes are never joined to the next: the last class,
    /// and a class with two members or more whose largest member has 8 MiB or more. (GE compares
    /// the smallest member with 8 MiB instead. GE's rule gives 1.103 instead of 1.114 times the
    /// load on ResNet-50, and equal results on the other two networks. The ratios in the tests come
    /// from the rule with the largest member.)
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

/// Divides sizes into classes, and returns the largest size in each class, in rising order.
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
    // Index of the first size in the current class.
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
