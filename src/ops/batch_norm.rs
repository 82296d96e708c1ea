//! Batch normalization, by the statistics of a batch or by given ones, and its gradient.

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod grad;
mod infer;
mod train;

pub use grad::BatchNormGrad;
pub use infer::BatchNormInfer;
pub use train::{BatchNorm, BatchNormOutput};

use super::check::{Fault, shaped};
use super::{FLOAT, Tensor};
use crate::error::Error;
use crate::layout::{Dims, Layout};

/// What a batch normalization knows of each channel: `[c]` each.
#[derive(Clone, Copy, Debug)]
pub struct BatchNormParameters<'a> {
    /// Factor.
    pub gamma: &'a Tensor,
    /// Summand.
    pub beta: &'a Tensor,
    /// Mean of the batches so far.
    pub running_mean: &'a Tensor,
    /// Variance of the batches so far.
    pub running_var: &'a Tensor,
}

impl<'a> BatchNormParameters<'a> {
    /// The inputs of [`BatchNorm`] and [`BatchNormInfer`].
    const fn beside(&self, x: &'a Tensor) -> [&'a Tensor; 5] {
        [x, self.gamma, self.beta, self.running_mean, self.running_var]
    }
}

/// The number of channels of `x`, if all of `vectors` have an element for each.
fn channels(x: &Layout, roles: &[&str], vectors: &[Layout]) -> Result<usize, Fault> {
    let &[_, c, ..] = &**x.shape() else {
        return Err(format!("x is {x} of rank {}, expected at least 2", x.rank()));
    };
    roles.iter().zip(vectors).try_for_each(|(role, vector)| shaped(vector, role, FLOAT, &[c]))?;
    Ok(c)
}

/// `x` as the kernels of the processor see it.
fn seen(x: &Layout) -> cpu::Channels {
    let shape = x.shape();
    cpu::Channels { n: shape[0], c: shape[1], inner: shape[2..].iter().product() }
}

/// A vector with an element for each channel, to lie beside `x`, which has `rank` dimensions: `[1, c, 1, ..]`.
fn beside(vector: &Tensor, rank: usize) -> Result<Tensor, Error> {
    vector.reshape(&Dims::new(&vec![1; rank]).with(1, vector.layout().elements()))
}

/// All axes but that of the channels.
fn others(rank: usize) -> Vec<usize> {
    (0..rank).filter(|&axis| axis != 1).collect()
}
