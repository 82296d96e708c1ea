//! Layer, RMS and group normalization, and their gradients. They save a statistic or two of each row, and no other tensor.

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod gradients;
mod group;
mod group_grad;
mod layer;
mod layer_grad;
mod rms;
#[cfg(test)]
mod tests;

pub use group::GroupNorm;
pub use group_grad::GroupNormGrad;
pub use layer::LayerNorm;
pub use layer_grad::LayerNormGrad;
pub use rms::{RmsNorm, RmsNormGrad};

use super::bf16::{Cut, Cuts, Made};
use super::check::{Fault, fresh, shaped};
use super::definition::{Input, Inputs};
use super::{FLOAT, Tensor};
use crate::error::Error;
use crate::layout::{Dims, Layout};
use crate::op::Outputs;
use std::iter::{once, repeat_n};

/// The dimensions that count the rows of `x`, and how many elements a row has.
fn rows(x: &Layout) -> Result<(Dims, usize), Fault> {
    match x.shape().split_last() {
        Some((&n, rows)) => Ok((Dims::new(rows), n)),
        None => Err(format!("x is {x} of rank 0, expected at least 1")),
    }
}

/// The inputs of a gradient where a mean was taken.
const GRAD_INPUTS: Inputs = Inputs::Each(&[
    Input::packed("x"),
    Input::packed("gamma"),
    Input::packed("mean"),
    Input::packed("inv_std"),
    Input::packed("dy"),
]);

/// The outputs of a gradient: `dx`, and a sum for each statistic, which are named. Each of these has the shape `rows`.
fn infer_grad(
    inputs: &[Layout],
    channels: usize,
    statistics: &[&str],
    rows: &[usize],
) -> Result<Outputs, Fault> {
    let x = &inputs[0];
    shaped(&inputs[1], "gamma", FLOAT, &[channels])?;
    let mut given = statistics.iter().zip(&inputs[2..]);
    given.try_for_each(|(role, given)| shaped(given, role, FLOAT, rows))?;
    shaped(&inputs[2 + statistics.len()], "dy", FLOAT, x.shape())?;
    let (dx, sum) = (fresh(FLOAT, *x.shape())?, fresh(FLOAT, [channels])?);
    Ok(Outputs::fresh(once(dx).chain(repeat_n(sum, statistics.len()))))
}

/// How a gradient with so many statistics is cut, whose rows are cut so.
fn cuts_of_grad(rows: Cut, statistics: usize) -> Cuts {
    Cuts::new(
        [rows, Cut::Whole].into_iter().chain(repeat_n(rows, statistics + 1)),
        once(Made::activations(rows)).chain(repeat_n(Made::sum(), statistics)),
    )
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

    /// Rows that are groups of channels, which are the second dimension.
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
