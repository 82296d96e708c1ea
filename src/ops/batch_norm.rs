//! Batch normalization and its gradient. In training, the op computes the statistics from the
//! batch; in inference, the statistics are inputs of the op.

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod deferred;
mod grad;
mod infer;
mod train;

pub(crate) use deferred::{ApplyStatistics, Deferred};
pub use grad::BatchNormGrad;
pub use infer::BatchNormInfer;
pub use train::{BatchNorm, BatchNormOutput};

use super::check::{Fault, shaped};
use super::{FLOAT, Tensor};
use crate::error::Error;
use crate::layout::{Dims, Layout};

/// Parameters and running statistics of a batch normalization: vectors `[c]` with one element for
/// each channel.
///
/// ```
/// # use remat::prelude::*;
/// use remat::ops::BatchNormParameters;
///
/// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
/// let [zeros, ones] = [runtime.zeros(&[1])?, runtime.ones(&[1])?];
/// let with = BatchNormParameters {
///     gamma: &ones,
///     beta: &zeros,
///     running_mean: &zeros,
///     running_var: &ones,
/// };
/// let x = runtime.tensor(&[2, 1], vec![5.0, 7.0])?;
/// // Mean 0 and variance 1 change nothing.
/// assert_eq!(x.batch_norm_infer(&with, 0.0)?.to_vec::<f32>()?, [5.0, 7.0]);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct BatchNormParameters<'a> {
    /// Factors of the normalized elements.
    pub gamma: &'a Tensor,
    /// Terms added after the multiplication by `gamma`.
    pub beta: &'a Tensor,
    /// Running mean of each channel over the batches so far.
    pub running_mean: &'a Tensor,
    /// Running variance of each channel over the batches so far.
    pub running_var: &'a Tensor,
}

impl<'a> BatchNormParameters<'a> {
    /// Inputs of [`BatchNorm`] and [`BatchNormInfer`], in order.
    const fn beside(&self, x: &'a Tensor) -> [&'a Tensor; 5] {
        [x, self.gamma, self.beta, self.running_mean, self.running_var]
    }
}

/// Number of channels of `x`; an error unless each of `vectors` has one element for each channel.
fn channels(x: &Layout, roles: &[&str], vectors: &[Layout]) -> Result<usize, Fault> {
    let &[_, c, ..] = &**x.shape() else {
        return Err(format!("x is {x} of rank {}, expected at least 2", x.rank()));
    };
    roles.iter().zip(vectors).try_for_each(|(role, vector)| shaped(vector, role, FLOAT, &[c]))?;
    Ok(c)
}

/// Sizes of `x` for the CPU kernels, with all dimensions after the channels merged: `[n, c,
/// inner]`.
fn seen(x: &Layout) -> cpu::ChannelSizes {
    let shape = x.shape();
    cpu::ChannelSizes { n: shape[0], c: shape[1], inner: shape[2..].iter().product() }
}

/// Reshapes a vector with an element for each channel to `[1, c, 1, ..]` of `rank` dimensions, so
/// that it broadcasts to `x`.
fn beside(vector: &Tensor, rank: usize) -> Result<Tensor, Error> {
    vector.reshape(&Dims::new(&vec![1; rank]).with(1, vector.layout().elements()))
}

/// All axes except axis 1, the axis of the channels.
fn others(rank: usize) -> Vec<usize> {
    (0..rank).filter(|&axis| axis != 1).collect()
}
