//! Planners that let buffers share memory, one file each, faithful to their sources.

mod best_fit;
mod exact;
mod gaps;
mod interval_move;
pub mod nnvm;
mod portfolio;
mod pushdown;
#[cfg(test)]
mod tests;

pub use best_fit::BestFit;
pub use exact::Exact;
pub use gaps::{First, Gaps};
pub use interval_move::IntervalMove;
pub use portfolio::{Answer, Portfolio};
pub use pushdown::Pushdown;

use super::{Lifetimes, PlanError, Planner};

/// What planners begin with that know no colours: sizes rounded up to the largest alignment, at whose multiples all buffers
/// lie then. Fails if there is more than one colour.
fn rounded(planner: &impl Planner, lifetimes: &Lifetimes) -> Result<Vec<u64>, PlanError> {
    let buffers = lifetimes.buffers();
    if buffers.iter().any(|buffer| buffer.colour != buffers[0].colour) {
        return Err(PlanError::Unknown { planner: planner.name(), what: "colours" });
    }
    let align = buffers.iter().map(|buffer| buffer.align).max().unwrap_or(1);
    let mut total = 0_u64;
    let sizes = buffers.iter().map(|buffer| {
        let size = buffer.size.checked_next_multiple_of(align).ok_or(PlanError::TooLarge)?;
        total = total.checked_add(size).ok_or(PlanError::TooLarge)?;
        Ok(size)
    });
    sizes.collect()
}
