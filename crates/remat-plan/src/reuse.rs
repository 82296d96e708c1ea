//! Planners that let buffers share memory. Each planner has its own file, and follows the source
//! that the file names.

mod best_fit;
mod binary_block;
mod blocks;
mod exact;
mod gaps;
mod hints;
mod interval_move;
mod max_block;
pub mod nnvm;
mod portfolio;
mod pushdown;
#[cfg(test)]
mod tests;
mod two_level;

pub use best_fit::BestFit;
pub use binary_block::BinaryBlock;
pub use blocks::Take;
pub use exact::Exact;
pub use gaps::{First, Gaps};
pub use interval_move::IntervalMove;
pub use max_block::MaxBlock;
pub use portfolio::{Answer, Portfolio};
pub use pushdown::Pushdown;
pub use two_level::TwoLevel;

use super::{Lifetimes, PlanError, Planner};

/// Support of a planner for gaps. A planner that calls [`Knows::check`] supports only one colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Knows {
    /// No gaps are supported: every buffer keeps all its bytes for its whole life.
    NoGaps,
    /// Only gaps in which a buffer keeps no bytes are supported.
    Gaps,
    /// All gaps are supported, including gaps in which a buffer keeps some of its bytes.
    KeptBytes,
}

impl Knows {
    /// Fails if the buffers have more than one colour, or gaps or kept bytes that the planner does
    /// not support.
    fn check(self, planner: &impl Planner, lifetimes: &Lifetimes) -> Result<(), PlanError> {
        let buffers = lifetimes.buffers();
        let what = if buffers.iter().any(|buffer| buffer.colour != buffers[0].colour) {
            "colours"
        } else if self < Self::Gaps && lifetimes.has_gaps() {
            "gaps"
        } else if self < Self::KeptBytes && lifetimes.has_kept_bytes() {
            "bytes that are kept in gaps"
        } else {
            return Ok(());
        };
        Err(PlanError::Unknown { planner: planner.name(), what })
    }
}

/// Sizes rounded up to the least common multiple of all alignments. Buffers of the rounded sizes
/// are aligned if they lie one after the other from address 0 on.
fn rounded(lifetimes: &Lifetimes) -> Result<Vec<u64>, PlanError> {
    rounded_to(1, lifetimes)
}

/// Sizes rounded up to a multiple of `round` (0 counts as 1), and then as [`rounded`] rounds them.
fn rounded_to(round: u64, lifetimes: &Lifetimes) -> Result<Vec<u64>, PlanError> {
    let buffers = lifetimes.buffers();
    let mut aligns = buffers.iter().map(|buffer| buffer.align);
    let align = aligns.clone().max().unwrap_or(1);
    // The computation begins with the largest alignment. If all alignments are powers of two, the
    // largest one is already the result.
    let align = aligns.try_fold(align, common_multiple);
    let align = align.ok_or(PlanError::TooLarge)?;
    let mut total = 0_u64;
    let sizes = buffers.iter().map(|buffer| {
        let size = buffer.size.checked_next_multiple_of(round.max(1));
        let size = size.and_then(|size| size.checked_next_multiple_of(align));
        total = size.and_then(|size| total.checked_add(size)).ok_or(PlanError::TooLarge)?;
        size.ok_or(PlanError::TooLarge)
    });
    sizes.collect()
}

/// Least common multiple; `None` on overflow.
fn common_multiple(a: u64, b: u64) -> Option<u64> {
    a.checked_mul(b / gcd(a, b))
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Times `[lower, upper)` in which a buffer takes memory, sorted and disjoint.
type Life = Vec<(u64, u64)>;

/// Buffer -> its life.
fn lives(lifetimes: &Lifetimes) -> Vec<Life> {
    let mut lives = vec![Life::new(); lifetimes.len()];
    for part in lifetimes.parts() {
        lives[part.buffer].push((part.lower, part.upper));
    }
    lives
}

/// Whether two lives have an instant in common. For each interval of the life with fewer intervals,
/// a binary search finds the next interval of the other life.
fn meet<T: Ord + Copy>(a: &[(T, T)], b: &[(T, T)]) -> bool {
    let (short, mut long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    short.iter().any(|&(lower, upper)| {
        long = &long[long.partition_point(|&(_, end)| end <= lower)..];
        long.first().is_some_and(|&(begin, _)| begin < upper)
    })
}
