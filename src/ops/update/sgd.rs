use super::{cpu, elements, infer, written};
use crate::device::{self, DeviceError};
use crate::layout::Layout;
use crate::op::Outputs;
use crate::ops::check::Fault;
use crate::ops::definition::{Definition, Inputs, Kernel, Registered};
use crate::ops::gradient::{Gradient, Recorded};

/// `(param, velocity, grad) -> (param, velocity)`, both in place:
/// `v = momentum * v + grad + weight_decay * p; p -= lr * v`; or with Nesterov's momentum
/// `p -= lr * (grad + weight_decay * p + momentum * v)`. As PyTorch's `SGD`.
///
/// Of several tensors at once: `(param, velocity, param, velocity, .., grad, grad, ..)`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct SgdMomentum {
    /// Learning rate.
    #[cfg_attr(feature = "serde", serde(with = "crate::ops::attributes::float"))]
    pub lr: f32,
    /// Factor of the old velocity.
    #[cfg_attr(feature = "serde", serde(with = "crate::ops::attributes::float"))]
    pub momentum: f32,
    /// Factor of the L2 penalty's gradient.
    #[cfg_attr(feature = "serde", serde(with = "crate::ops::attributes::float"))]
    pub weight_decay: f32,
    /// Whether to look ahead along the new velocity.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "std::ops::Not::not"))]
    pub nesterov: bool,
}

impl SgdMomentum {
    /// What it keeps for a parameter.
    pub(crate) const STATES: [&str; 1] = ["velocity"];
}

impl Definition for SgdMomentum {
    fn name(&self) -> &str {
        "sgd_momentum"
    }

    fn inputs(&self) -> Inputs {
        Inputs::Packed
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        infer(&Self::STATES, inputs)
    }

    fn flops(&self, _inputs: &[Layout], outputs: &[Layout]) -> f64 {
        elements(1, outputs) * if self.nesterov { 8.0 } else { 6.0 }
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        Some(self)
    }

    fn gradient(&self, _of: &Recorded<'_>) -> Gradient {
        Gradient::missing()
    }
}

impl Kernel for SgdMomentum {
    fn updates(&self, inputs: usize) -> usize {
        written(1, inputs)
    }

    fn cpu(&self, run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        cpu::momentum(run, self);
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn cuda(
        &self,
        gpu: &mut device::cuda::Gpu,
        run: &device::cuda::Operands<'_>,
    ) -> Result<(), DeviceError> {
        super::cuda::momentum(gpu, run, self)
    }
}

impl Registered for SgdMomentum {
    fn each() -> Vec<Self> {
        vec![Self { lr: 0.1, momentum: 0.9, weight_decay: 1e-4, nesterov: false }]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static crate::device::cuda::Family> {
        vec![&super::cuda::FAMILY]
    }
}
