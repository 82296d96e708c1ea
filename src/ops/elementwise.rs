//! Elementwise ops of one tensor, elementwise ops of two or three tensors with broadcasting, and
//! accumulation in place. Operands may have any strides.
//!
//! To add an elementwise function, add a row to the table in `unary.rs` or `binary.rs`, or in
//! `with_numbers.rs` if the function has attributes. No other file needs to change.

mod accumulate;
mod binary;
mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod unary;
mod where_cond;
mod with_numbers;

pub use accumulate::Accumulate;
pub use binary::Binary;
pub use unary::Unary;
pub use where_cond::Where;
pub use with_numbers::{Affine, Clamp, LeakyRelu, Powf};

use super::FLOAT;
use super::check::{Fault, fresh, walkable_as};
use crate::layout::{Layout, broadcast_shapes};
use crate::op::Outputs;

/// One fresh output with the shape of the input.
fn like_input(inputs: &[Layout]) -> Result<Outputs, Fault> {
    let x = &inputs[0];
    walkable_as(x.shape(), [("x", x)])?;
    Ok(Outputs::fresh([fresh(FLOAT, *x.shape())?]))
}

/// One fresh output with the shape to which both inputs broadcast.
fn like_both(inputs: &[Layout]) -> Result<Outputs, Fault> {
    let [a, b] = [&inputs[0], &inputs[1]];
    let shape = broadcast_shapes(a.shape(), b.shape())
        .ok_or_else(|| format!("a {} and b {} do not broadcast", a.shape(), b.shape()))?;
    walkable_as(&shape, [("a", a), ("b", b)])?;
    Ok(Outputs::fresh([fresh(FLOAT, shape)?]))
}
