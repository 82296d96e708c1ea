//! Layer, RMS and group normalization, and their gradients. For the gradient, a forward op saves
//! only one or two statistics of each row.

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

/// Splits the shape of `x` into all dimensions except the last, and the last dimension, which is
/// the number of elements in a row.
fn rows(x: &Layout) -> Result<(Dims, usize), Fault> {
    match x.shape().split_last() {
        Some((&n, rows)) => Ok((Dims::new(rows), n)),
        None => Err(format!("x is {x} of rank 0, expected at least 1")),
    }
}

/// Inputs of the gradient of a normalization that subtracts the mean.
const GRAD_INPUTS: Inputs = Inputs::Each(&[
    Input::packed("x"),
    Input::packed("gamma"),
    Input::packed("mean"),
    Input::packed("inv_std"),
    Input::packed("dy"),
]);

/// Outputs of a gradient op: `dx`, and as many sums over rows as there are `statistics`. Each
/// statistic must have the shape `rows`.
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

/// Cuts of the operands of a gradient op that has `statistics` statistics. The rows are cut as
/// `rows` says.
fn cuts_of_grad(rows: Cut, statistics: usize) -> Cuts {
    Cuts::new(
        [rows, Cut::Whole].into_iter().chain(repeat_n(rows, statistics + 1)),
        once(Made::activations(rows)).chain(repeat_n(Made::sum(), statistics)),
    )
}

/// Shape `[outer, groups, channels, inner]` of a tensor whose rows are normalized. A row is all
/// elements of one group. Each channel of each group has its own parameter, and each row has its
/// own statistics.
#[derive(Clone, Copy, Debug)]
struct View {
    outer: usize,
    groups: usize,
    channels: usize,
    inner: usize,
}

impl View {
    /// Shape for rows along the last dimension.
    fn of_rows(x: &Dims) -> Self {
        let (&channels, rows) = x.split_last().expect("at least one dimension");
        Self { outer: rows.iter().product(), groups: 1, channels, inner: 1 }
    }

    /// Shape for rows that are groups of channels. The channels are the second dimension of `x`.
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
