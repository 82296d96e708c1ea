//! Layer, RMS and group normalization, and their gradients. They save a statistic or two of each row, and no other tensor.

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod group;
mod group_grad;
mod layer;
mod layer_grad;
mod rms;
mod second;
#[cfg(test)]
mod tests;

pub use group::GroupNorm;
pub use group_grad::GroupNormGrad;
pub use layer::LayerNorm;
pub use layer_grad::LayerNormGrad;
pub use rms::{RmsNorm, RmsNormGrad};

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

/// A tensor whose rows are normalized, as `[outer, groups, channels, inner]`: a row is a group's channels. There is a
/// parameter for each channel of each group, and a statistic for each row.
#[derive(Clone, Copy, Debug)]
struct View {
    outer: usize,
    groups: usize,
    channels: usize,
    inner: usize,
}

impl View {
    /// Rows along the last dimension.
    fn of_rows(x: &Dims) -> Self {
        let (&channels, rows) = x.split_last().expect("at least one dimension");
        Self { outer: rows.iter().product(), groups: 1, channels, inner: 1 }
    }

    /// So many groups of channels, which are the second dimension.
    fn of_groups(x: &Dims, groups: usize) -> Self {
        let inner = x[2..].iter().product();
        Self { outer: x[0], groups, channels: x[1] / groups, inner }
    }

    fn shape(self) -> [usize; 4] {
        [self.outer, self.groups, self.channels, self.inner]
    }

    fn whole(self, x: &Tensor) -> Result<Tensor, Error> {
        x.contiguous()?.reshape(&self.shape())
    }

    fn parameter(self, gamma: &Tensor) -> Result<Tensor, Error> {
        gamma.contiguous()?.reshape(&[1, self.groups, self.channels, 1])
    }

    fn statistic(self, mean: &Tensor) -> Result<Tensor, Error> {
        mean.contiguous()?.reshape(&[self.outer, self.groups, 1, 1])
    }
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
