//! CANN's reuse among buffers of about one size: classes by powers of two.

use super::super::{Lifetimes, Limits, PlanError, Planned, Planner};
use super::blocks::{ROUND, Take, chain, in_a_row};
use super::{Knows, rounded_to};

/// A class whose largest member is of 8 MiB or more stays, however few there are, if there are two.
const LARGE: u64 = 8 << 20;

/// `binary-block`, `binary-block:oldest`: a buffer may use a free block of its class. Classes double in size, and one with
/// few members is joined to the next. When all buffers have a block, each shrinks to the largest that is in it.
///
/// Source: the article on memory reuse in CANN, and `BinaryBlockMemAssigner` of open-source GE; classes as in
/// [`BinaryBlock::sizes`]. Buffers come in order of time, those of one instant in the order of their numbers, after all
/// that end there have been released. Buffers of more than one colour or with gaps are refused; all blocks are aligned to a
/// multiple of all alignments.
///
/// Takes n log n time for n buffers and has no limit in size. It is weak where small buffers could share what a large one
/// has left: those of different classes never do. On steps of three networks it took 1.11 to 2.08 times the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BinaryBlock {
    /// Which free block is used again.
    pub take: Take,
    /// Blocks are multiples of this, in bytes: 512 as in CANN, 1 to waste nothing. It is no part of the name.
    pub round: u64,
}

impl Default for BinaryBlock {
    fn default() -> Self {
        Self { take: Take::default(), round: ROUND }
    }
}

impl BinaryBlock {
    /// The largest size in each class, rising: a buffer belongs to the first that is not smaller.
    ///
    /// The first class takes what has up to twice 512 bytes, or twice the smallest size if no buffer has more than 512
    /// bytes, and each further class twice as much. Of n classes for m buffers, one that has fewer than m / n members,
    /// rounded down, is joined to the next, unless it is the last or has two members or more, of which the largest has
    /// 8 MiB or more. (GE looks at the smallest there. That comes to 1.103 instead of 1.114 times the load on ResNet-50 and
    /// to the same on the other two; the figures that are known are those of the largest.)
    ///
    /// # Errors
    ///
    /// More than one colour, gaps, or sizes that add up to 2^64 bytes or more when they are rounded up.
    pub fn sizes(&self, lifetimes: &Lifetimes) -> Result<Vec<u64>, PlanError> {
        Knows::NoGaps.check(self, lifetimes)?;
        Ok(classes(rounded_to(self.round, lifetimes)?))
    }
}

/// The largest size in each class of these, rising.
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
    // Where the class begins that is being made.
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
