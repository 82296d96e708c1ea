//! Planners that let buffers share memory, one file each, faithful to their sources.

mod best_fit;
mod binary_block;
mod blocks;
mod exact;
mod gaps;
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

/// What planners begin with that know no colours: sizes rounded up to the largest alignment, at whose multiples all buffers
/// lie then. Fails if there is more than one colour.
fn rounded(planner: &impl Planner, lifetimes: &Lifetimes) -> Result<Vec<u64>, PlanError> {
    rounded_to(1, planner, lifetimes)
}

/// As [`rounded`], with sizes that are rounded up to a multiple of `round` before; 0 is like 1.
fn rounded_to(
    round: u64,
    planner: &impl Planner,
    lifetimes: &Lifetimes,
) -> Result<Vec<u64>, PlanError> {
    let buffers = lifetimes.buffers();
    if buffers.iter().any(|buffer| buffer.colour != buffers[0].colour) {
        return Err(PlanError::Unknown { planner: planner.name(), what: "colours" });
    }
    let align = buffers.iter().map(|buffer| buffer.align).max().unwrap_or(1);
    let mut total = 0_u64;
    let sizes = buffers.iter().map(|buffer| {
        let size = buffer.size.checked_next_multiple_of(round.max(1));
        let size = size.and_then(|size| size.checked_next_multiple_of(align));
        total = size.and_then(|size| total.checked_add(size)).ok_or(PlanError::TooLarge)?;
        size.ok_or(PlanError::TooLarge)
    });
    sizes.collect()
}
