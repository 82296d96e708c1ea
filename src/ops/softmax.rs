//! Softmax, log-softmax and cross entropy, along the last dimension.

mod cpu;
mod cross_entropy;
#[cfg(feature = "cuda")]
mod cuda;

pub use cross_entropy::{CrossEntropy, CrossEntropyGrad};

use super::check::{Fault, fresh, shaped};
use super::definition::{Definition, Input, Inputs, Kernel, Registered, TRANSCENDENTAL};
use super::gradient::{Gradient, Recorded};
use super::{FLOAT, Tensor};
use crate::device::{self, DeviceError};
use crate::error::Error;
use crate::layout::Layout;
use crate::op::Outputs;
use crate::ops::bf16::{Cuts, Made, along_longest};
use smallvec::smallvec;

/// Defines an op for each row of the table. A row has the formula, the op, the op's name and
/// inputs, the flops per element, the function on the CPU, the CUDA launch and kernels, and the
/// gradient.
macro_rules! of_rows {
    ($(
        $(#[$doc:meta])*
        $Op:ident $name:literal ($($input:literal),*): $flops:expr,
            $cpu:path,
            $launch:ident $kernels:ident,
            |$of:ident| $gradient:expr;
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        pub struct $Op;

        impl Definition for $Op {
            fn name(&self) -> &str {
                $name
            }

            fn inputs(&self) -> Inputs {
                Inputs::Each(const { &[$(Input::packed($input)),*] })
            }

            fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
                like_all(inputs, &[$($input),*])
            }

            fn cuts(&self, inputs: &[Layout], _outputs: &[Layout]) -> Option<Cuts> {
                let rows = along_longest(inputs[0].shape(), inputs[0].rank() - 1);
                Some(Cuts::new(inputs.iter().map(|_| rows), [Made::activations(rows)]))
            }

            fn flops(&self, _inputs: &[Layout], outputs: &[Layout]) -> f64 {
                outputs[0].elements() as f64 * $flops
            }

            fn kernel(&self) -> Option<&dyn Kernel> {
                Some(self)
            }

            fn gradient(&self, $of: &Recorded<'_>) -> Gradient {
                $gradient
            }
        }

        impl Kernel for $Op {
            fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
                let (inputs, [out]) = (run.floats(), run.outputs());
                $cpu(out, inputs, length(run.input(0)));
                Ok(())
            }

            #[cfg(feature = "cuda")]
            fn cuda(
                &self,
                gpu: &mut device::cuda::Gpu,
                run: &device::cuda::Operands<'_>,
            ) -> Result<(), DeviceError> {
                cuda::$launch(gpu, cuda::$kernels, run)
            }
        }

        impl Registered for $Op {
            fn each() -> Vec<Self> {
                vec![Self]
            }

            #[cfg(all(test, feature = "cuda"))]
            fn families() -> Vec<&'static crate::device::cuda::Family> {
                vec![&cuda::FAMILY]
            }
        }
    )*};
}

of_rows! {
    /// `(x) -> (y)`, where `y` has the shape of `x`: `y = e^x / sum e^x` along the last dimension.
    Softmax "softmax" ("x"): TRANSCENDENTAL + 4.0,
        cpu::softmax,
        forward SOFTMAX,
        |of| {
            let y = of.output(0);
            Gradient::of_one(move |dy| Tensor::call1(SoftmaxGrad, &[&y, dy]))
        };
    /// `(y, dy) -> (dx)`, three tensors of one shape: the gradient `dx = y (dy - sum y dy)` of a
    /// [`Softmax`] with output `y`.
    SoftmaxGrad "softmax_grad" ("y", "dy"): 4.0,
        cpu::softmax_grad,
        gradient SOFTMAX_GRAD,
        |of| {
            let y = of.input(0);
            let dy = of.wanted(0).then(|| of.input(1));
            let dy_wanted = of.wanted(1);
            Gradient::of_first(move |g| {
                let of_y = dy.as_ref().map(|dy| {
                    // Gradient of `y`: g (dy - sum y dy) - dy sum g y
                    let first = g.mul(&dy.sub(&sums(&y.mul(dy)?)?)?)?;
                    first.sub(&dy.mul(&sums(&g.mul(&y)?)?)?)
                });
                let of_dy = dy_wanted.then(|| Tensor::call1(SoftmaxGrad, &[&y, g]));
                Ok(smallvec![of_y.transpose()?, of_dy.transpose()?])
            })
        };
    /// `(x) -> (y)`, where `y` has the shape of `x`: `y = x - ln sum e^x` along the last dimension.
    LogSoftmax "log_softmax" ("x"): TRANSCENDENTAL + 4.0,
        cpu::log_softmax,
        forward LOG_SOFTMAX,
        |of| {
            let y = of.output(0);
            Gradient::of_one(move |dy| Tensor::call1(LogSoftmaxGrad, &[&y, dy]))
        };
    /// `(y, dy) -> (dx)`, three tensors of one shape: the gradient `dx = dy - e^y sum dy` of a
    /// [`LogSoftmax`] with output `y`.
    LogSoftmaxGrad "log_softmax_grad" ("y", "dy"): TRANSCENDENTAL + 4.0,
        cpu::log_softmax_grad,
        gradient LOG_SOFTMAX_GRAD,
        |of| {
            let y = of.input(0);
            let dy = of.wanted(0).then(|| of.input(1));
            let dy_wanted = of.wanted(1);
            Gradient::of_first(move |g| {
                let weighted = y.exp()?.mul(g)?;
                // Gradient of `y`: -e^y g sum dy
                let of_y = dy.as_ref().map(|dy| weighted.mul(&sums(dy)?)?.neg());
                // Gradient of `dy`: g - sum e^y g
                let of_dy = dy_wanted.then(|| g.sub(&sums(&weighted)?));
                Ok(smallvec![of_y.transpose()?, of_dy.transpose()?])
            })
        };
}

impl Tensor {
    /// Softmax along the last dimension.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.zeros(&[1, 4])?;
    /// assert_eq!(x.softmax()?.to_vec::<f32>()?, [0.25; 4]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if this tensor is a scalar, or does not hold floats.
    pub fn softmax(&self) -> Result<Self, Error> {
        Self::call1(Softmax, &[self])
    }

    /// Logarithm of the softmax along the last dimension.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let y = runtime.zeros(&[2])?.log_softmax()?.to_vec::<f32>()?;
    /// assert!((y[0] + 2f32.ln()).abs() < 1e-6);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if this tensor is a scalar, or does not hold floats.
    pub fn log_softmax(&self) -> Result<Self, Error> {
        Self::call1(LogSoftmax, &[self])
    }
}

/// One fresh output with the shape of the inputs. An error if the inputs have different shapes or
/// are scalars.
fn like_all(inputs: &[Layout], roles: &[&str]) -> Result<Outputs, Fault> {
    let (x, role) = (&inputs[0], roles[0]);
    if x.rank() == 0 {
        return Err(format!("{role} is {x} of rank 0, expected at least 1"));
    }
    let outputs = Outputs::fresh([fresh(FLOAT, *x.shape())?]);
    inputs.iter().zip(roles).try_for_each(|(other, role)| shaped(other, role, FLOAT, x.shape()))?;
    Ok(outputs)
}

/// Sum of each row, with the last dimension kept for broadcasting.
fn sums(x: &Tensor) -> Result<Tensor, Error> {
    x.sum_along(&[x.rank() - 1], true)
}

/// Number of elements of a row.
fn length(x: &Layout) -> usize {
    x.shape().last().copied().unwrap_or(1)
}
