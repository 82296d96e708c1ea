//! Two ops that use the positions of the windows' maxima in an image. One op adds an element for
//! each window to the position of the window's maximum, and the other op reads an element at each
//! position. Each of the two ops is the gradient of the other.

use super::{Pool2d, countable_in_i32, cpu, image};
use crate::device::{self, DeviceError};
use crate::error::Error;
use crate::layout::{DType, Layout};
use crate::op::Outputs;
use crate::ops::bf16::{Cuts, Made, along_longest};
use crate::ops::check::{Fault, fresh, rank, shaped};
use crate::ops::definition::{Definition, Input, Inputs, Kernel, Registered};
use crate::ops::gradient::{Gradient, InputGradients, Recorded};
use crate::ops::{FLOAT, Tensor};

/// `(argmax i32 [n, c, h', w'], dy [n, c, h', w']) -> (dx [n, c, h, w])`: `dx` is zero, and each
/// element of `dy` is added at the position `h * width + w` that `argmax` gives. If a position is
/// outside the image, the op fails when it runs. Each position must lie in the window of its
/// element; otherwise, devices may compute different results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct MaxPool2dGrad {
    /// Windows of the pooling.
    pub pool: Pool2d,
    /// Height and width of `x`.
    pub input: [usize; 2],
}

/// `(argmax i32 [n, c, h', w'], x [n, c, h, w]) -> (y [n, c, h', w'])`: each element of `y` is the
/// element of `x` at the position `h * width + w` that `argmax` gives. If a position is outside the
/// image, the op fails when it runs. Each position must lie in the window of its element.
///
/// The op is the gradient of [`MaxPool2dGrad`] with respect to `dy`. In turn, its gradient with
/// respect to `x` is [`MaxPool2dGrad`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct MaxPool2dPick {
    /// Windows of the pooling.
    pub pool: Pool2d,
}

impl Definition for MaxPool2dGrad {
    fn name(&self) -> &str {
        "max_pool2d_grad"
    }

    fn inputs(&self) -> Inputs {
        Inputs::Each(const { &[Input::packed_ints("argmax"), Input::packed("dy")] })
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        let ([argmax, dy], input) = ([&inputs[0], &inputs[1]], self.input);
        let [n, c, _, _] = rank(argmax, "argmax")?;
        shaped(dy, "dy", FLOAT, argmax.shape())?;
        countable_in_i32(input)?;
        self.pool.expect_windows(dy, input)?;
        Ok(Outputs::fresh([fresh(FLOAT, [n, c, input[0], input[1]])?]))
    }

    fn cuts(&self, inputs: &[Layout], _outputs: &[Layout]) -> Option<Cuts> {
        let images = along_longest(inputs[0].shape(), 2);
        Some(Cuts::new([images, images], [Made::activations(images)]))
    }

    fn flops(&self, inputs: &[Layout], outputs: &[Layout]) -> f64 {
        inputs[0].elements().max(outputs[0].elements()) as f64
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        Some(self)
    }

    fn gradient(&self, of: &Recorded<'_>) -> Gradient {
        let (op, argmax) = (MaxPool2dPick { pool: self.pool }, of.input(0));
        of_second(move |g| Tensor::call1(op, &[&argmax, g]))
    }
}

impl Kernel for MaxPool2dGrad {
    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        let [area, small] = [run.output(0), run.input(0)].map(|l| image(l).iter().product());
        cpu::max_grad(run.write(0), run.read(0), run.read(1), area, small)
    }

    #[cfg(feature = "cuda")]
    fn cuda(
        &self,
        gpu: &mut device::cuda::Gpu,
        run: &device::cuda::Operands<'_>,
    ) -> Result<(), DeviceError> {
        super::cuda::max_grad(gpu, &run.outputs[0], &run.inputs[0], &run.inputs[1], &self.pool)
    }
}

impl Registered for MaxPool2dGrad {
    fn each() -> Vec<Self> {
        vec![Self { pool: Pool2d::EACH, input: [1, 1] }]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static crate::device::cuda::Family> {
        vec![&super::cuda::FAMILY]
    }
}

impl Definition for MaxPool2dPick {
    fn name(&self) -> &str {
        "max_pool2d_pick"
    }

    fn inputs(&self) -> Inputs {
        Inputs::Each(const { &[Input::packed_ints("argmax"), Input::packed("x")] })
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        let [n, c, h, w] = rank(&inputs[1], "x")?;
        let [rows, columns] = self.pool.windows([h, w])?;
        countable_in_i32([h, w])?;
        shaped(&inputs[0], "argmax", DType::I32, &[n, c, rows, columns])?;
        Ok(Outputs::fresh([fresh(FLOAT, [n, c, rows, columns])?]))
    }

    fn cuts(&self, inputs: &[Layout], _outputs: &[Layout]) -> Option<Cuts> {
        let images = along_longest(inputs[0].shape(), 2);
        Some(Cuts::new([images, images], [Made::activations(images)]))
    }

    fn flops(&self, _inputs: &[Layout], outputs: &[Layout]) -> f64 {
        outputs[0].elements() as f64
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        Some(self)
    }

    fn gradient(&self, of: &Recorded<'_>) -> Gradient {
        let (shape, argmax) = (of.shape(1), of.input(0));
        let op = MaxPool2dGrad { pool: self.pool, input: [shape[2], shape[3]] };
        of_second(move |g| Tensor::call1(op, &[&argmax, g]))
    }
}

impl Kernel for MaxPool2dPick {
    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        let [area, small] = [run.input(1), run.input(0)].map(|l| image(l).iter().product());
        cpu::max_pick(run.write(0), run.read(0), run.read(1), area, small)
    }

    #[cfg(feature = "cuda")]
    fn cuda(
        &self,
        gpu: &mut device::cuda::Gpu,
        run: &device::cuda::Operands<'_>,
    ) -> Result<(), DeviceError> {
        super::cuda::max_pick(gpu, &run.outputs[0], &run.inputs[0], &run.inputs[1], &self.pool)
    }
}

impl Registered for MaxPool2dPick {
    fn each() -> Vec<Self> {
        vec![Self { pool: Pool2d::EACH }]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static crate::device::cuda::Family> {
        vec![&super::cuda::FAMILY]
    }
}

/// Makes a gradient of the second input only. The first input, `argmax`, has no gradient.
fn of_second(rule: impl Fn(&Tensor) -> Result<Tensor, Error> + Send + Sync + 'static) -> Gradient {
    Gradient::of_first(move |g| Ok(InputGradients::from_iter([None, Some(rule(g)?)])))
}
