//! Random numbers, and dropout.

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;

use super::check::{Fault, fresh, number};
use super::definition::{Definition, Inputs, Kernel, Registered, TRANSCENDENTAL};
use super::gradient::{Gradient, Recorded};
use super::{FLOAT, Tensor};
use crate::device::{self, DeviceError};
use crate::error::Error;
use crate::layout::{Dims, Layout};
use crate::op::{OpError, Outputs};

/// A distribution of random numbers.
///
/// ```
/// # use remat::prelude::*;
/// use remat::ops::Distribution;
///
/// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
/// let x = runtime.random(&[100], Distribution::Uniform { low: 2.0, high: 3.0 })?;
/// assert!(x.to_vec::<f32>()?.iter().all(|x| (2.0..3.0).contains(x)));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields))]
#[non_exhaustive]
pub enum Distribution {
    /// Uniform in `[low, high)`.
    Uniform {
        /// Smallest value.
        #[cfg_attr(feature = "serde", serde(with = "crate::ops::attributes::float"))]
        low: f32,
        /// Exclusive upper bound of the values.
        #[cfg_attr(feature = "serde", serde(with = "crate::ops::attributes::float"))]
        high: f32,
    },
    /// Gaussian.
    Normal {
        /// Mean.
        #[cfg_attr(feature = "serde", serde(with = "crate::ops::attributes::float"))]
        mean: f32,
        /// Standard deviation.
        #[cfg_attr(feature = "serde", serde(with = "crate::ops::attributes::float"))]
        std: f32,
    },
    /// 1 with probability `p`, else 0.
    Bernoulli {
        /// Probability of a 1.
        #[cfg_attr(feature = "serde", serde(with = "crate::ops::attributes::float"))]
        p: f32,
    },
}

/// A number in `[0, 1)`: the first number that the generator draws with this key and counter.
pub(crate) fn unit(key: u64, counter: u64) -> f32 {
    let mut out = [0.0];
    cpu::random(&mut out, Distribution::Uniform { low: 0.0, high: 1.0 }, key, counter);
    out[0]
}

/// `() -> (y)`: random numbers from Philox4x32-10 (Salmon et al., SC 2011). Key and counter are
/// part of the op, so a recomputation draws the numbers of the first run.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Random {
    /// Distribution of the numbers.
    pub distribution: Distribution,
    /// Shape of the result.
    pub shape: Dims,
    /// Key of the stream: the seed.
    pub key: u64,
    /// Number of the tensor. Two tensors with equal keys have different elements only if their
    /// numbers differ.
    pub counter: u64,
}

impl Tensor {
    /// Zeroes each element with probability `p`, and scales all other elements by `1 / (1 - p)`.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let y = runtime.ones(&[100])?.dropout(0.5)?.to_vec::<f32>()?;
    /// assert!(y.iter().all(|&y| y == 0.0 || y == 2.0));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if `p` is not in `[0, 1]`, or this tensor does not hold floats.
    pub fn dropout(&self, p: f32) -> Result<Self, Error> {
        if !(0.0..=1.0).contains(&p) {
            return Err(
                OpError::new("dropout", format!("p is {p}, expected between 0 and 1")).into()
            );
        }
        let runs = self.runs()?;
        let (key, counter) = runs.next_random();
        let (distribution, shape) =
            (Distribution::Bernoulli { p: 1.0 - p }, *self.layout().shape());
        let draw = Random { distribution, shape, key, counter };
        let kept = runs.apply(draw.into(), &[])?.swap_remove(0);
        let scale = if p < 1.0 { 1.0 / (1.0 - p) } else { 0.0 };
        self.mul(&kept.affine(scale, 0.0)?)
    }
}

impl Distribution {
    /// Fails unless the parameters are valid for the distribution.
    fn check(self) -> Result<(), Fault> {
        match self {
            Self::Uniform { low, high } => {
                number(low, "low", f32::NEG_INFINITY)?;
                number(high, "high", low)?;
                number(high - low, "high - low", 0.0)
            }
            Self::Normal { mean, std } => {
                number(mean, "mean", f32::NEG_INFINITY)?;
                number(std, "std", 0.0)
            }
            Self::Bernoulli { p } => {
                if (0.0..=1.0).contains(&p) {
                    Ok(())
                } else {
                    Err(format!("p is {p}, expected between 0 and 1"))
                }
            }
        }
    }
}

impl Definition for Random {
    fn name(&self) -> &str {
        match self.distribution {
            Distribution::Uniform { .. } => "uniform",
            Distribution::Normal { .. } => "normal",
            Distribution::Bernoulli { .. } => "bernoulli",
        }
    }

    fn inputs(&self) -> Inputs {
        Inputs::Each(&[])
    }

    fn infer(&self, _inputs: &[Layout]) -> Result<Outputs, Fault> {
        self.distribution.check()?;
        Ok(Outputs::fresh([fresh(FLOAT, self.shape)?]))
    }

    fn flops(&self, _inputs: &[Layout], outputs: &[Layout]) -> f64 {
        // Flops of each element: a quarter of the ten rounds of Philox, and the transformation to
        // the distribution.
        outputs[0].elements() as f64 * (2.0 * TRANSCENDENTAL)
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        Some(self)
    }

    fn gradient(&self, _of: &Recorded<'_>) -> Gradient {
        Gradient::zero()
    }
}

impl Kernel for Random {
    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        let [y] = run.outputs();
        cpu::random(y, self.distribution, self.key, self.counter);
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn cuda(
        &self,
        gpu: &mut device::cuda::Gpu,
        run: &device::cuda::Operands<'_>,
    ) -> Result<(), DeviceError> {
        cuda::random(gpu, &run.outputs[0], self.distribution, self.key, self.counter)
    }
}

impl Registered for Random {
    fn each() -> Vec<Self> {
        let of = |distribution| Self { distribution, shape: Dims::SCALAR, key: 1, counter: 2 };
        let all = [
            Distribution::Uniform { low: 0.0, high: 1.0 },
            Distribution::Normal { mean: 0.0, std: 1.0 },
            Distribution::Bernoulli { p: 0.5 },
        ];
        all.map(of).into()
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static crate::device::cuda::Family> {
        vec![&cuda::FAMILY]
    }
}
