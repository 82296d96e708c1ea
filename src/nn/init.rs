//! Functions that draw initial weights, under their usual names, such as `kaiming_normal`.
//!
//! Each function takes the shape of a layer's weight: `[outputs, inputs]`, followed by the
//! dimensions of the kernel if the layer has one. The fan-in is the number of inputs times the size
//! of the kernel. The fan-out is the number of outputs times the size of the kernel.

use crate::error::Error;
use crate::ops::{Distribution, Tensor};
use crate::runtime::Runtime;

/// Choice of the fan-in or the fan-out to scale initial weights, so that a layer preserves
/// variance.
///
/// ```
/// use remat::nn::init::{self, Fan};
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("1MiB").cpu()?;
/// // Gradients keep their variance in the backward pass.
/// let weight = init::kaiming_normal(&runtime, &[64, 3, 3, 3], Fan::Out, 2f32.sqrt())?;
/// assert_eq!(weight.shape(), [64, 3, 3, 3]);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fan {
    /// Fan-in: keeps the variance of activations in the forward pass.
    In,
    /// Fan-out: keeps the variance of gradients in the backward pass.
    Out,
}

/// Fan-in and fan-out of a shape.
fn fans(shape: &[usize]) -> [f64; 2] {
    let kernel: f64 = shape.iter().skip(2).map(|&size| size as f64).product();
    let of = |axis: usize| shape.get(axis).map_or(1.0, |&size| size as f64 * kernel).max(1.0);
    [of(1), of(0)]
}

/// Zeros.
///
/// ```
/// use remat::nn::init;
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("1MiB").cpu()?;
/// assert_eq!(init::zeros(&runtime, &[2])?.to_vec::<f32>()?, [0.0, 0.0]);
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// [`Error::Op`] if a tensor would have more than `isize::MAX` bytes.
pub fn zeros(runtime: &Runtime, shape: &[usize]) -> Result<Tensor, Error> {
    runtime.zeros(shape)
}

/// Ones.
///
/// ```
/// use remat::nn::init;
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("1MiB").cpu()?;
/// assert_eq!(init::ones(&runtime, &[2])?.to_vec::<f32>()?, [1.0, 1.0]);
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// [`Error::Op`] if a tensor would have more than `isize::MAX` bytes.
pub fn ones(runtime: &Runtime, shape: &[usize]) -> Result<Tensor, Error> {
    runtime.ones(shape)
}

/// Elements that are all `value`.
///
/// ```
/// use remat::nn::init;
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("1MiB").cpu()?;
/// assert_eq!(init::constant(&runtime, &[2], 0.5)?.to_vec::<f32>()?, [0.5, 0.5]);
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// [`Error::Op`] if a tensor would have more than `isize::MAX` bytes.
pub fn constant(runtime: &Runtime, shape: &[usize], value: f32) -> Result<Tensor, Error> {
    runtime.full(shape, value)
}

/// Elements drawn uniformly from `low` to `high`.
///
/// ```
/// use remat::nn::init;
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("1MiB").cpu()?;
/// let weight = init::uniform(&runtime, &[8, 4], -0.5, 0.5)?.to_vec::<f32>()?;
/// assert!(weight.iter().all(|x| (-0.5..0.5).contains(x)));
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// [`Error::Op`] if a tensor would have more than `isize::MAX` bytes, or `high` is less than `low`.
pub fn uniform(runtime: &Runtime, shape: &[usize], low: f32, high: f32) -> Result<Tensor, Error> {
    runtime.random(shape, Distribution::Uniform { low, high })
}

/// Gaussian elements.
///
/// ```
/// use remat::nn::init;
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("1MiB").cpu()?;
/// let weight = init::normal(&runtime, &[64, 64], 0.0, 1.0)?;
/// assert!(weight.mean()?.item()?.abs() < 0.2);
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// [`Error::Op`] if a tensor would have more than `isize::MAX` bytes, or `std` is negative.
pub fn normal(runtime: &Runtime, shape: &[usize], mean: f32, std: f32) -> Result<Tensor, Error> {
    runtime.normal(shape, mean, std)
}

/// Gaussian elements with mean 0, truncated at two standard deviations. `std` is the standard
/// deviation before the truncation.
///
/// ```
/// use remat::nn::init;
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("1MiB").cpu()?;
/// let weight = init::trunc_normal(&runtime, &[8, 4], 0.5)?.to_vec::<f32>()?;
/// assert!(weight.iter().all(|x| (-1.0..=1.0).contains(x)));
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// [`Error::Op`] if a tensor would have more than `isize::MAX` bytes, or `std` is negative.
pub fn trunc_normal(runtime: &Runtime, shape: &[usize], std: f32) -> Result<Tensor, Error> {
    // Draw quantiles within two standard deviations, and map them to a Gaussian by the inverse of
    // the error function.
    let bound = 0.954_499_7;
    let quantiles = uniform(runtime, shape, -bound, bound)?;
    let z = erf_inv(&quantiles)?.affine(std * std::f32::consts::SQRT_2, 0.0)?;
    z.clamp(-2.0 * std, 2.0 * std)
}

/// Inverse of the error function, by Newton's method. The first guess has an error of a few
/// thousandths (Winitzki, 2008).
fn erf_inv(y: &Tensor) -> Result<Tensor, Error> {
    const A: f32 = 0.147;
    let log = y.square()?.affine(-1.0, 1.0)?.log()?;
    let half = log.affine(0.5, 2.0 / (std::f32::consts::PI * A))?;
    let guess = half.square()?.sub(&log.affine(1.0 / A, 0.0)?)?.sqrt()?.sub(&half)?;
    let mut x = guess.relu()?.sqrt()?.mul(&y.sign()?)?;
    for _ in 0..2 {
        let slope = x.square()?.neg()?.exp()?.affine(std::f32::consts::FRAC_2_SQRT_PI, 0.0)?;
        x = x.sub(&x.erf()?.sub(y)?.div(&slope)?)?;
    }
    Ok(x)
}

/// Elements drawn uniformly from `±gain * sqrt(6 / (fan_in + fan_out))` (Glorot and Bengio, AISTATS
/// 2010).
///
/// ```
/// use remat::nn::init;
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("1MiB").cpu()?;
/// // sqrt(6 / (4 + 2)) = 1
/// let weight = init::xavier_uniform(&runtime, &[2, 4], 1.0)?.to_vec::<f32>()?;
/// assert!(weight.iter().all(|x| (-1.0..1.0).contains(x)));
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// [`Error::Op`] if a tensor would have more than `isize::MAX` bytes.
pub fn xavier_uniform(runtime: &Runtime, shape: &[usize], gain: f32) -> Result<Tensor, Error> {
    let [inputs, outputs] = fans(shape);
    let bound = (f64::from(gain) * (6.0 / (inputs + outputs)).sqrt()) as f32;
    uniform(runtime, shape, -bound, bound)
}

/// Gaussian elements with standard deviation `gain * sqrt(2 / (fan_in + fan_out))` (Glorot and
/// Bengio, AISTATS 2010).
///
/// ```
/// use remat::nn::init;
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("1MiB").cpu()?;
/// let weight = init::xavier_normal(&runtime, &[2, 4], 1.0)?;
/// assert_eq!(weight.shape(), [2, 4]);
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// [`Error::Op`] if a tensor would have more than `isize::MAX` bytes.
pub fn xavier_normal(runtime: &Runtime, shape: &[usize], gain: f32) -> Result<Tensor, Error> {
    let [inputs, outputs] = fans(shape);
    let std = f64::from(gain) * (2.0 / (inputs + outputs)).sqrt();
    normal(runtime, shape, 0.0, std as f32)
}

/// Elements drawn uniformly from `±gain * sqrt(3 / fan)` (He et al., ICCV 2015); `gain` is
/// `sqrt(2)` before a relu.
///
/// ```
/// use remat::nn::init::{self, Fan};
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("1MiB").cpu()?;
/// // sqrt(3 / 3) = 1
/// let weight = init::kaiming_uniform(&runtime, &[8, 3], Fan::In, 1.0)?.to_vec::<f32>()?;
/// assert!(weight.iter().all(|x| (-1.0..1.0).contains(x)));
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// [`Error::Op`] if a tensor would have more than `isize::MAX` bytes.
pub fn kaiming_uniform(
    runtime: &Runtime,
    shape: &[usize],
    fan: Fan,
    gain: f32,
) -> Result<Tensor, Error> {
    let bound = (f64::from(gain) * (3.0 / fan.of(shape)).sqrt()) as f32;
    uniform(runtime, shape, -bound, bound)
}

/// Gaussian elements with standard deviation `gain / sqrt(fan)` (He et al., ICCV 2015); `gain` is
/// `sqrt(2)` before a relu.
///
/// ```
/// use remat::nn::init::{self, Fan};
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("1MiB").cpu()?;
/// let before_relu = init::kaiming_normal(&runtime, &[8, 3], Fan::In, 2f32.sqrt())?;
/// assert_eq!(before_relu.shape(), [8, 3]);
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// [`Error::Op`] if a tensor would have more than `isize::MAX` bytes.
pub fn kaiming_normal(
    runtime: &Runtime,
    shape: &[usize],
    fan: Fan,
    gain: f32,
) -> Result<Tensor, Error> {
    normal(runtime, shape, 0.0, (f64::from(gain) / fan.of(shape).sqrt()) as f32)
}

impl Fan {
    fn of(self, shape: &[usize]) -> f64 {
        fans(shape)[usize::from(self == Self::Out)]
    }
}

/// A bias of `size` elements for a layer, drawn uniformly from `±1 / sqrt(fan)`, as in PyTorch.
pub(super) fn bias_of(
    runtime: &Runtime,
    weight: &Tensor,
    size: usize,
    fan: Fan,
) -> Result<Tensor, Error> {
    let bound = (1.0 / fan.of(weight.shape()).sqrt()) as f32;
    uniform(runtime, &[size], -bound, bound)
}
