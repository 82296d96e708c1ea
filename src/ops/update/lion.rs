use super::adamw::decimal;
use super::{cpu, elements, infer, written};
use crate::device::{self, DeviceError};
use crate::layout::Layout;
use crate::op::Outputs;
use crate::ops::check::Fault;
use crate::ops::definition::{Definition, Inputs, Kernel, Registered};
use crate::ops::gradient::{Gradient, Recorded};

/// `(param, exp_avg, grad) -> (param, exp_avg)`, both in place. With `m` for the average:
/// `p *= 1 - lr * weight_decay; p -= lr * sign(beta1 * m + (1 - beta1) * grad); m = beta2 * m + (1 - beta2) * grad`.
/// Chen et al., "Symbolic Discovery of Optimization Algorithms", NeurIPS 2023.
///
/// Of several tensors at once: `(param, exp_avg, param, exp_avg, .., grad, grad, ..)`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Lion {
    /// Learning rate: how far every element goes.
    #[cfg_attr(feature = "serde", serde(with = "crate::ops::attributes::float"))]
    pub lr: f32,
    /// How much the average counts in what is done.
    #[cfg_attr(feature = "serde", serde(with = "crate::ops::attributes::float"))]
    pub beta1: f32,
    /// How much of the average remains.
    #[cfg_attr(feature = "serde", serde(with = "crate::ops::attributes::float"))]
    pub beta2: f32,
    /// How much a parameter shrinks in a step, over the learning rate.
    #[cfg_attr(feature = "serde", serde(with = "crate::ops::attributes::float"))]
    pub weight_decay: f32,
}

/// The numbers of a step.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Step {
    /// `1 - lr * weight_decay`
    pub keep: f32,
    pub beta1: f32,
    pub rest1: f32,
    pub beta2: f32,
    pub rest2: f32,
    pub lr: f32,
}

impl Lion {
    /// What it keeps for a parameter.
    pub(crate) const STATES: [&str; 1] = ["exp_avg"];

    fn step(&self) -> Step {
        let Self { lr, beta1, beta2, weight_decay } = *self;
        let rest = |beta: f32| (1.0 - decimal(beta)) as f32;
        Step {
            keep: (1.0 - decimal(lr) * decimal(weight_decay)) as f32,
            beta1,
            rest1: rest(beta1),
            beta2,
            rest2: rest(beta2),
            lr,
        }
    }
}

impl Definition for Lion {
    fn name(&self) -> &str {
        "lion"
    }

    fn inputs(&self) -> Inputs {
        Inputs::Packed
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        infer(&Self::STATES, inputs)
    }

    fn flops(&self, _inputs: &[Layout], outputs: &[Layout]) -> f64 {
        elements(1, outputs) * 10.0
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        Some(self)
    }

    fn gradient(&self, _of: &Recorded<'_>) -> Gradient {
        Gradient::missing()
    }
}

impl Kernel for Lion {
    fn updates(&self, inputs: usize) -> usize {
        written(1, inputs)
    }

    fn cpu(&self, run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        cpu::lion(run, self.step());
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn cuda(
        &self,
        gpu: &mut device::cuda::Gpu,
        run: &device::cuda::Operands<'_>,
    ) -> Result<(), DeviceError> {
        super::cuda::lion(gpu, run, self.step())
    }
}

impl Registered for Lion {
    fn each() -> Vec<Self> {
        vec![Self { lr: 1e-4, beta1: 0.9, beta2: 0.99, weight_decay: 0.1 }]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static crate::device::cuda::Family> {
        vec![&super::cuda::FAMILY]
    }
}
