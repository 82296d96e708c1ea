use super::{cpu, like_input};
use crate::device::{self, DeviceError};
use crate::error::Error;
use crate::layout::Layout;
use crate::op::Outputs;
use crate::ops::check::Fault;
use crate::ops::definition::{Definition, Input, Inputs, Kernel, Registered};
use crate::ops::gradient::{Gradient, Recorded};
use crate::ops::samples::{Draw, SHAPES, Sample, arranged};
use crate::ops::{Op, Tensor};

/// `(x) -> (x * scale + shift)`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Affine {
    /// Factor.
    #[cfg_attr(feature = "serde", serde(with = "crate::ops::attributes::float"))]
    pub scale: f32,
    /// Summand.
    #[cfg_attr(feature = "serde", serde(with = "crate::ops::attributes::float"))]
    pub shift: f32,
}

impl Tensor {
    /// `x * scale + shift`
    ///
    /// # Errors
    /// If it does not hold floats.
    pub fn affine(&self, scale: f32, shift: f32) -> Result<Self, Error> {
        Self::call1(Affine { scale, shift }, &[self])
    }
}

impl Definition for Affine {
    fn name(&self) -> &str {
        "affine"
    }

    fn inputs(&self) -> Inputs {
        Inputs::Each(const { &[Input::floats("x")] })
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        like_input(inputs)
    }

    fn flops(&self, _inputs: &[Layout], outputs: &[Layout]) -> f64 {
        outputs[0].elements() as f64 * 2.0
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        Some(self)
    }

    fn gradient(&self, _of: &Recorded<'_>) -> Gradient {
        let scale = self.scale;
        Gradient::of_one(move |dy| dy.affine(scale, 0.0))
    }

    fn samples(&self) -> Vec<Sample> {
        let all = SHAPES.iter().flat_map(|shape| arranged(shape));
        all.map(|x| Sample::new(*self, [x])).collect()
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let shape = draw.shape(0, 4);
        let op = Self { scale: draw.float(), shift: draw.float() };
        Sample::new(op, [draw.arranged(&shape)])
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let op = Self { scale: draw.absurd_number(), shift: draw.absurd_number() };
        (op.into(), vec![draw.absurd_layout()])
    }
}

impl Kernel for Affine {
    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        let ([x], [y], Self { scale, shift }) = (run.floats(), run.outputs(), *self);
        cpu::map(
            y,
            x,
            run.input(0),
            #[inline(always)]
            |x| x * scale + shift,
        );
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn cuda(
        &self,
        gpu: &mut device::cuda::Gpu,
        run: &device::cuda::Operands<'_>,
    ) -> Result<(), DeviceError> {
        use super::cuda::{Scale, map, names};
        let by = Scale { scale: self.scale, shift: self.shift };
        map(&FAMILY, gpu, names!(affine), &run.outputs[0], [&run.inputs[0]], Some(&by))
    }
}

#[cfg(feature = "cuda")]
static FAMILY: device::cuda::Family = device::cuda::Family::new(
    "affine",
    concat!(include_str!("elementwise.cu"), include_str!("affine.cu")),
);

impl Registered for Affine {
    fn each() -> Vec<Self> {
        vec![Self { scale: 2.0, shift: 1.0 }]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static crate::device::cuda::Family> {
        vec![&FAMILY]
    }
}
