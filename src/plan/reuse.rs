//! Planners that let buffers share memory, one file each, faithful to their sources.

mod best_fit;
mod gaps;
pub mod nnvm;
mod pushdown;
#[cfg(test)]
mod tests;

pub use best_fit::BestFit;
pub use gaps::{First, Gaps};
pub use pushdown::Pushdown;

use super::{Lifetimes, PlanError, Planner};

/// Sizes rounded up to the largest alignment, at whose multiples all buffers lie then.
fn rounded(lifetimes: &Lifetimes) -> Result<Vec<u64>, PlanError> {
    let align = lifetimes.buffers().iter().map(|buffer| buffer.align).max().unwrap_or(1);
    let mut total = 0_u64;
    let sizes = lifetimes.buffers().iter().map(|buffer| {
        let size = buffer.size.checked_next_multiple_of(align).ok_or(PlanError::TooLarge)?;
        total = total.checked_add(size).ok_or(PlanError::TooLarge)?;
        Ok(size)
    });
    sizes.collect()
}

/// Fails if there is more than one colour.
fn one_colour(planner: &impl Planner, lifetimes: &Lifetimes) -> Result<(), PlanError> {
    let mut colours = lifetimes.buffers().iter().map(|buffer| buffer.colour);
    let first = colours.next();
    match colours.all(|colour| Some(colour) == first) {
        true => Ok(()),
        false => Err(PlanError::Unknown { planner: planner.name(), what: "colours" }),
    }
}
