use super::{MaxPool2dGrad, Pool2d, countable_in_i32, cpu, image};
use crate::device::{self, DeviceError};
use crate::error::Error;
use crate::layout::{DType, Layout};
use crate::op::Outputs;
use crate::ops::bf16::{Cuts, Made, along_longest};
use crate::ops::check::{Fault, fresh, rank};
use crate::ops::definition::{Definition, Input, Inputs, Kernel, Registered};
use crate::ops::gradient::{Gradient, Recorded};
use crate::ops::{FLOAT, Tensor};

/// `(x [n, c, h, w]) -> (y [n, c, h', w'], argmax i32 [n, c, h', w'])`: the largest element of each
/// window, with `h' = (h + 2 * padding - kernel) / stride + 1`, and `w'` computed in the same way.
/// `argmax` is the index `h * width + w` of the largest element in the image. Of equal elements,
/// the first counts as the largest. NaN counts as larger than any number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MaxPool2d(
    /// Windows of the pooling.
    pub Pool2d,
);

impl Tensor {
    /// Largest element of each window: `[n, c, h, w]` to `[n, c, h', w']`, with `h' = (h + 2 *
    /// padding - kernel) / stride + 1`, and `w'` computed in the same way. See [`MaxPool2d`].
    ///
    /// ```
    /// # use remat::prelude::*;
    /// use remat::ops::Pool2d;
    ///
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let pool = Pool2d { kernel: [2, 2], stride: [2, 2], padding: [0, 0] };
    /// let x = runtime.tensor(&[1, 1, 2, 4], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])?;
    /// assert_eq!(x.max_pool2d(pool)?.to_vec::<f32>()?, [6.0, 8.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if this tensor is not `[n, c, h, w]` of floats, or a window is larger than the
    /// padded images.
    pub fn max_pool2d(&self, pool: Pool2d) -> Result<Self, Error> {
        Self::call1(MaxPool2d(pool), &[self])
    }
}

impl Definition for MaxPool2d {
    fn name(&self) -> &str {
        "max_pool2d"
    }

    fn inputs(&self) -> Inputs {
        Inputs::Each(const { &[Input::packed("x")] })
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        let [n, c, h, w] = rank(&inputs[0], "x")?;
        let [rows, columns] = self.0.windows([h, w])?;
        let y = fresh(FLOAT, [n, c, rows, columns])?;
        countable_in_i32([h, w])?;
        Ok(Outputs::fresh([y, fresh(DType::I32, [n, c, rows, columns])?]))
    }

    fn cuts(&self, inputs: &[Layout], _outputs: &[Layout]) -> Option<Cuts> {
        let images = along_longest(inputs[0].shape(), 2);
        Some(Cuts::new([images], [Made::activations(images), Made::plain(images)]))
    }

    fn flops(&self, _inputs: &[Layout], outputs: &[Layout]) -> f64 {
        outputs[0].elements() as f64 * self.0.area()
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        Some(self)
    }

    fn gradient(&self, of: &Recorded<'_>) -> Gradient {
        let shape = of.shape(0);
        let op = MaxPool2dGrad { pool: self.0, input: [shape[2], shape[3]] };
        let argmax = of.output(1);
        Gradient::of_one(move |dy| Tensor::call1(op, &[&argmax, dy]))
    }
}

impl Kernel for MaxPool2d {
    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        let windows =
            cpu::Windows { pool: self.0, size: image(run.input(0)), windows: image(run.output(0)) };
        cpu::max(run.write(0), run.write(1), run.read(0), windows);
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn cuda(
        &self,
        gpu: &mut device::cuda::Gpu,
        run: &device::cuda::Operands<'_>,
    ) -> Result<(), DeviceError> {
        let [y, argmax] = [&run.outputs[0], &run.outputs[1]];
        super::cuda::max(gpu, y, argmax, &run.inputs[0], &self.0)
    }
}

impl Registered for MaxPool2d {
    fn each() -> Vec<Self> {
        vec![Self(Pool2d::EACH)]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static crate::device::cuda::Family> {
        vec![&super::cuda::FAMILY]
    }
}
