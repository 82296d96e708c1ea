use super::cpu;
use crate::device::{self, DeviceError};
use crate::error::Error;
use crate::layout::{Dims, Layout};
use crate::op::Outputs;
use crate::ops::check::{Fault, fresh};
use crate::ops::definition::{Definition, Inputs, Kernel, Registered};
use crate::ops::gradient::{Gradient, Recorded};
use crate::ops::{FLOAT, Tensor};

/// `() -> (y)`: a tensor whose elements are all `value`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Fill {
    /// Shape of the result.
    pub shape: Dims,
    /// Value of the elements.
    #[cfg_attr(feature = "serde", serde(with = "crate::ops::attributes::float"))]
    pub value: f32,
}

impl Tensor {
    /// Makes a scalar in the runtime of this tensor.
    pub(in crate::ops) fn scalar(&self, value: f32) -> Result<Self, Error> {
        Ok(self.runs()?.apply(Fill { shape: Dims::SCALAR, value }.into(), &[])?.swap_remove(0))
    }
}

impl Definition for Fill {
    fn name(&self) -> &str {
        "fill"
    }

    fn inputs(&self) -> Inputs {
        Inputs::Each(&[])
    }

    fn infer(&self, _inputs: &[Layout]) -> Result<Outputs, Fault> {
        Ok(Outputs::fresh([fresh(FLOAT, self.shape)?]))
    }

    fn flops(&self, _inputs: &[Layout], outputs: &[Layout]) -> f64 {
        outputs[0].elements() as f64
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        Some(self)
    }

    fn gradient(&self, _of: &Recorded<'_>) -> Gradient {
        Gradient::zero()
    }
}

impl Kernel for Fill {
    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        cpu::fill(run.write(0), self.value);
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn cuda(
        &self,
        gpu: &mut device::cuda::Gpu,
        run: &device::cuda::Operands<'_>,
    ) -> Result<(), DeviceError> {
        super::cuda::fill(gpu, &run.outputs[0], self.value)
    }
}

impl Registered for Fill {
    fn each() -> Vec<Self> {
        vec![Self { shape: Dims::SCALAR, value: 1.5 }]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static crate::device::cuda::Family> {
        vec![&super::cuda::FAMILY]
    }
}
