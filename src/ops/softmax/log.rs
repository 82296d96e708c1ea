use super::{cpu, length, like, like_both, sums};
use crate::device::{self, DeviceError};
use crate::error::Error;
use crate::layout::Layout;
use crate::op::Outputs;
use crate::ops::Tensor;
use crate::ops::bf16::{Cuts, Made, along_longest};
use crate::ops::check::Fault;
use crate::ops::definition::{Definition, Input, Inputs, Kernel, Registered, TRANSCENDENTAL};
use crate::ops::gradient::{Gradient, Recorded};
use smallvec::smallvec;

#[cfg(feature = "cuda")]
use super::cuda;

/// `(x) -> (y)`, of the same shape: `y = x - ln sum e^x` along the last dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LogSoftmax;

/// `(y, dy) -> (dx)`, all of one shape: the gradient `dx = dy - e^y sum dy` of a [`LogSoftmax`] with output `y`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LogSoftmaxGrad;

impl Tensor {
    /// Logarithm of the softmax along the last dimension.
    ///
    /// # Errors
    /// If it is a scalar, or does not hold floats.
    pub fn log_softmax(&self) -> Result<Self, Error> {
        Self::call1(LogSoftmax, &[self])
    }
}

impl Definition for LogSoftmax {
    fn name(&self) -> &str {
        "log_softmax"
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
        Gradient::of_one(move |dy| Tensor::call1(LogSoftmaxGrad, &[&y, dy]))
    }
}

impl Kernel for LogSoftmax {
    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        let ([x], [y]) = (run.floats(), run.outputs());
        cpu::log_softmax(y, x, length(run.input(0)));
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn cuda(
        &self,
        gpu: &mut device::cuda::Gpu,
        run: &device::cuda::Operands<'_>,
    ) -> Result<(), DeviceError> {
        cuda::forward(gpu, cuda::LOG_SOFTMAX, &run.outputs[0], &run.inputs[0])
    }
}

impl Registered for LogSoftmax {
    fn each() -> Vec<Self> {
        vec![Self]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static crate::device::cuda::Family> {
        vec![&cuda::FAMILY]
    }
}

impl Definition for LogSoftmaxGrad {
    fn name(&self) -> &str {
        "log_softmax_grad"
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
        outputs[0].elements() as f64 * (TRANSCENDENTAL + 4.0)
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        Some(self)
    }

    fn gradient(&self, of: &Recorded<'_>) -> Gradient {
        let y = of.input(0);
        let dy = of.wanted(0).then(|| of.input(1));
        let dy_wanted = of.wanted(1);
        Gradient::of_first(move |g| {
            let weighted = y.exp()?.mul(g)?;
            // -e^y g sum dy
            let of_y = dy.as_ref().map(|dy| weighted.mul(&sums(dy)?)?.neg());
            // g - sum e^y g
            let of_dy = dy_wanted.then(|| g.sub(&sums(&weighted)?));
            Ok(smallvec![of_y.transpose()?, of_dy.transpose()?])
        })
    }
}

impl Kernel for LogSoftmaxGrad {
    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        let ([y, dy], [dx]) = (run.floats(), run.outputs());
        cpu::log_softmax_grad(dx, y, dy, length(run.input(0)));
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn cuda(
        &self,
        gpu: &mut device::cuda::Gpu,
        run: &device::cuda::Operands<'_>,
    ) -> Result<(), DeviceError> {
        let [y, dy] = [&run.inputs[0], &run.inputs[1]];
        cuda::gradient(gpu, cuda::LOG_SOFTMAX_GRAD, &run.outputs[0], y, dy)
    }
}

impl Registered for LogSoftmaxGrad {
    fn each() -> Vec<Self> {
        vec![Self]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static crate::device::cuda::Family> {
        vec![&cuda::FAMILY]
    }
}
