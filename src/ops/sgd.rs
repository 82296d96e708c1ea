//! Parameter updates.

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;

use super::check::{Fault, shaped};
use super::definition::{Definition, Input, Inputs, Kernel, Registered};
use super::gradient::{Gradient, Recorded};
use super::samples::{Draw, SHAPES, Sample, floats};
use super::{FLOAT, Op};
use crate::device::{self, DeviceError};
use crate::layout::Layout;
use crate::op::Outputs;

/// `(param, velocity, grad) -> (param, velocity)`, both in place:
/// `v = momentum * v + grad + weight_decay * p; p -= lr * v`.
#[derive(Clone, Copy, Debug, PartialEq)]
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
}

impl Definition for SgdMomentum {
    fn name(&self) -> &str {
        "sgd_momentum"
    }

    fn inputs(&self) -> Inputs {
        Inputs::Each(
            const { &[Input::packed("param"), Input::packed("velocity"), Input::packed("grad")] },
        )
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        let [param, velocity, grad] = [&inputs[0], &inputs[1], &inputs[2]];
        shaped(velocity, "velocity", FLOAT, param.shape())?;
        shaped(grad, "grad", FLOAT, param.shape())?;
        Ok(Outputs::updates(self.updates()))
    }

    fn flops(&self, _inputs: &[Layout], outputs: &[Layout]) -> f64 {
        outputs[0].elements() as f64 * 6.0
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        Some(self)
    }

    fn gradient(&self, _of: &Recorded<'_>) -> Gradient {
        Gradient::missing()
    }

    fn samples(&self) -> Vec<Sample> {
        let of = |shape: &&[usize]| Sample::new(*self, vec![floats(shape); 3]);
        SHAPES.iter().map(of).collect()
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let shape = draw.shape(0, 4);
        let operands = [(); 3].map(|()| draw.packed(shape));
        Sample::new(*self, operands)
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let [lr, momentum, weight_decay] = [(); 3].map(|()| draw.absurd_number());
        let x = Layout::contiguous(FLOAT, draw.absurd_dims());
        (Self { lr, momentum, weight_decay }.into(), vec![x; 3])
    }
}

impl Kernel for SgdMomentum {
    fn updates(&self) -> usize {
        2
    }

    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        let (grad, [param, velocity]) = (run.read(2), run.outputs());
        cpu::momentum(param, velocity, grad, self);
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn cuda(
        &self,
        gpu: &mut device::cuda::Gpu,
        run: &device::cuda::Operands<'_>,
    ) -> Result<(), DeviceError> {
        let [param, velocity] = [&run.outputs[0], &run.outputs[1]];
        cuda::momentum(gpu, param, velocity, &run.inputs[2], self)
    }
}

impl Registered for SgdMomentum {
    fn each() -> Vec<Self> {
        vec![Self { lr: 0.1, momentum: 0.9, weight_decay: 1e-4 }]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static crate::device::cuda::Family> {
        vec![&cuda::FAMILY]
    }
}
