//! Layer normalization of rows, along the last dimension, and its gradient.

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod forward;
mod grad;
#[cfg(test)]
mod tests;

pub use forward::LayerNorm;
pub use grad::LayerNormGrad;

use super::check::Fault;
use super::samples::{Draw, Operand, floats};
use super::{FLOAT, Tensor};
use crate::error::Error;
use crate::layout::{Dims, Layout};

/// The dimensions that count the rows of `x`, and how many elements a row has.
fn rows(x: &Layout) -> Result<(Dims, usize), Fault> {
    match x.shape().split_last() {
        Some((&n, rows)) => Ok((Dims::new(rows), n)),
        None => Err(format!("x is {x} of rank 0, expected at least 1")),
    }
}

/// What there is one of for each row, to lie beside the row's elements: `[..]` as `[.., 1]`.
fn beside(statistic: &Tensor) -> Result<Tensor, Error> {
    statistic.reshape(&[statistic.shape(), &[1]].concat())
}

/// Adds a term to a sum that may have none so far.
fn add(sum: &mut Option<Tensor>, term: Tensor) -> Result<(), Error> {
    *sum = Some(match sum.take() {
        Some(sum) => sum.add(&term)?,
        None => term,
    });
    Ok(())
}

/// Shapes that are worth a test: short rows and long ones, few and many, and no rows.
const SHAPES: [&[usize]; 17] = [
    &[1],
    &[7],
    &[200_003],
    &[1, 1],
    &[1, 1 << 20],
    &[3, 300_001],
    &[33, 20_000],
    &[90, 1000],
    &[1000, 1001],
    &[8, 128, 768],
    &[9000, 10],
    &[300_001, 3],
    &[1 << 19, 1],
    &[3, 5, 2, 7, 4, 6],
    &[0, 5],
    &[3, 0, 8],
    &[2, 0, 0],
];

/// A vector for the elements of a row, and a statistic of each row, of `x` of this shape.
fn parts(shape: &[usize]) -> [Dims; 2] {
    let (rows, n) = shape.split_at(shape.len().saturating_sub(1));
    [Dims::new(n), Dims::new(rows)]
}

/// `x`, `gamma`, `mean`, `inv_std` and `dy`.
fn operands(shape: &[usize]) -> [Operand; 5] {
    let [n, rows] = parts(shape);
    [floats(shape), floats(&n), floats(&rows), floats(&rows).positive(), floats(shape)]
}

/// The same, packed in one way or another.
fn draw_operands(draw: &mut Draw, shape: Dims) -> [Operand; 5] {
    let [n, rows] = parts(&shape);
    let [x, gamma, mean, inv_std, dy] = [shape, n, rows, rows, shape].map(|dims| draw.packed(dims));
    [x, gamma, mean, inv_std.positive(), dy]
}

/// `x` of an absurd shape, a vector for the elements of a row, and a statistic of each row.
fn absurd(draw: &mut Draw) -> [Layout; 3] {
    let shape = draw.absurd_dims();
    let [n, rows] = parts(&shape);
    [shape, n, rows].map(|dims| Layout::contiguous(FLOAT, dims))
}
