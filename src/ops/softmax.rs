//! Softmax, log-softmax and cross entropy, along the last dimension.

mod cpu;
mod cross_entropy;
#[cfg(feature = "cuda")]
mod cuda;
mod log;

pub use cross_entropy::{CrossEntropy, CrossEntropyGrad};
pub use log::{LogSoftmax, LogSoftmaxGrad};

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

/// `(x) -> (y)`, of the same shape: `y = e^x / sum e^x` along the last dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Softmax;

/// `(y, dy) -> (dx)`, all of one shape: the gradient `dx = y (dy - sum y dy)` of a [`Softmax`] with output `y`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SoftmaxGrad;

impl Tensor {
    /// Softmax along the last dimension.
    ///
    /// # Errors
    /// If it is a scalar, or does not hold floats.
    pub fn softmax(&self) -> Result<Self, Error> {
        Self::call1(Softmax, &[self])
    }
}

impl Definition for Softmax {
    fn name(&self) -> &str {
        "softmax"
    }

    fn inputs(&self) -> Inputs {
        Inputs::Each(const { &[Input::packed("x")] })
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        like(&inputs[0], "x")
    }

    fn cuts(&self, inputs: &[Layout], _outputs: &[Layout]) -> Option<Cuts> {
        let rows = along_longest(inputs[0].shape(), inputs[0].rank() - 1);
        Some(Cuts::new([rows], [Made::activations(rows)]))
    }

    fn flops(&self, _inputs: &[Layout], outputs: &[Layout]) -> f64 {
        outputs[0].elements() as f64 * (TRANSCENDENTAL + 4.0)
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        Some(self)
    }

    fn gradient(&self, of: &Recorded<'_>) -> Gradient {
        let y = of.output(0);
        Gradient::of_one(move |dy| Tensor::call1(SoftmaxGrad, &[&y, dy]))
    }
}

impl Kernel for Softmax {
    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        let ([x], [y]) = (run.floats(), run.outputs());
        cpu::softmax(y, x, length(run.input(0)));
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn cuda(
        &self,
        gpu: &mut device::cuda::Gpu,
        run: &device::cuda::Operands<'_>,
    ) -> Result<(), DeviceError> {
        cuda::forward(gpu, cuda::SOFTMAX, &run.outputs[0], &run.inputs[0])
    }
}

impl Registered for Softmax {
    fn each() -> Vec<Self> {
        vec![Self]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static crate::device::cuda::Family> {
        vec![&cuda::FAMILY]
    }
}

impl Definition for SoftmaxGrad {
    fn name(&self) -> &str {
        "softmax_grad"
    }

    fn inputs(&self) -> Inputs {
        Inputs::Each(const { &[Input::packed("y"), Input::packed("dy")] })
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        like_both(inputs)
    }

    fn cuts(&self, inputs: &[Layout], _outputs: &[Layout]) -> Option<Cuts> {
        let rows = along_longest(inputs[0].shape(), inputs[0].rank() - 1);
        Some(Cuts::new([rows; 2], [Made::activations(rows)]))
    }

    fn flops(&self, _inputs: &[Layout], outputs: &[Layout]) -> f64 {
        outputs[0].elements() as f64 * 4.0
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        Some(self)
    }

    fn gradient(&self, of: &Recorded<'_>) -> Gradient {
        let y = of.input(0);
        let dy = of.wanted(0).then(|| of.input(1));
        let dy_wanted = of.wanted(1);
        Gradient::of_first(move |g| {
            let of_y = dy.as_ref().map(|dy| {
                // g (dy - sum y dy) - dy sum g y
                let first = g.mul(&dy.sub(&sums(&y.mul(dy)?)?)?)?;
                first.sub(&dy.mul(&sums(&g.mul(&y)?)?)?)
            });
            let of_dy = dy_wanted.then(|| Tensor::call1(Self, &[&y, g]));
            Ok(smallvec![of_y.transpose()?, of_dy.transpose()?])
        })
    }
}

impl Kernel for SoftmaxGrad {
    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        let ([y, dy], [dx]) = (run.floats(), run.outputs());
        cpu::softmax_grad(dx, y, dy, length(run.input(0)));
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn cuda(
        &self,
        gpu: &mut device::cuda::Gpu,
        run: &device::cuda::Operands<'_>,
    ) -> Result<(), DeviceError> {
        let [y, dy] = [&run.inputs[0], &run.inputs[1]];
        cuda::gradient(gpu, cuda::SOFTMAX_GRAD, &run.outputs[0], y, dy)
    }
}

impl Registered for SoftmaxGrad {
    fn each() -> Vec<Self> {
        vec![Self]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static crate::device::cuda::Family> {
        vec![&cuda::FAMILY]
    }
}

/// A fresh output of the shape of `x`, unless `x` is a scalar.
fn like(x: &Layout, role: &str) -> Result<Outputs, Fault> {
    if x.rank() == 0 {
        return Err(format!("{role} is {x} of rank 0, expected at least 1"));
    }
    Ok(Outputs::fresh([fresh(FLOAT, *x.shape())?]))
}

/// A fresh output of the shape that both inputs have.
fn like_both(inputs: &[Layout]) -> Result<Outputs, Fault> {
    let [y, dy] = [&inputs[0], &inputs[1]];
    let outputs = like(y, "y")?;
    shaped(dy, "dy", FLOAT, y.shape())?;
    Ok(outputs)
}

/// The sum of each row, with the last dimension kept for broadcasting.
fn sums(x: &Tensor) -> Result<Tensor, Error> {
    x.sum_along(&[x.rank() - 1], true)
}

/// Number of elements of a row.
fn length(x: &Layout) -> usize {
    x.shape().last().copied().unwrap_or(1)
}
