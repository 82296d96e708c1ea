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

use super::Tensor;
use super::check::Fault;
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
