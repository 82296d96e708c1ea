use super::{Pool2d, cpu, image};
use crate::device::{self, DeviceError};
use crate::error::Error;
use crate::layout::Layout;
use crate::op::Outputs;
use crate::ops::bf16::{Cuts, Made, along_longest};
use crate::ops::check::{Fault, fresh, rank};
use crate::ops::definition::{Definition, Input, Inputs, Kernel, Registered};
use crate::ops::gradient::{Gradient, Recorded};
use crate::ops::{FLOAT, Tensor};

/// `(x [n, c, h, w]) -> (y [n, c, h', w'])`: the mean of the elements of each window, with `h' =
/// (h + 2 * padding - kernel) / stride + 1`, and `w'` computed in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct AvgPool2d(
    /// Windows of the pooling.
    pub Pool2d,
);

/// `(dy [n, c, h', w']) -> (dx [n, c, h, w])`: the gradient of [`AvgPool2d`]. Each element of `dy`
/// is divided equally among the elements of its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct AvgPool2dGrad {
    /// Windows of the pooling.
    pub pool: Pool2d,
    /// Height and width of `x`.
    pub input: [usize; 2],
}

impl Tensor {
    /// Mean of each window: `[n, c, h, w]` to `[n, c, h', w']`, with `h' = (h + 2 * padding -
    /// kernel) / stride + 1`, and `w'` computed in the same way.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// use remat::ops::Pool2d;
    ///
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let pool = Pool2d { kernel: [2, 2], stride: [2, 2], padding: [0, 0] };
    /// let x = runtime.tensor(&[1, 1, 2, 4], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])?;
    /// assert_eq!(x.avg_pool2d(pool)?.to_vec::<f32>()?, [3.5, 5.5]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if this tensor is not `[n, c, h, w]` of floats, or a window is larger than the
    /// padded images.
    pub fn avg_pool2d(&self, pool: Pool2d) -> Result<Self, Error> {
        Self::call1(AvgPool2d(pool), &[self])
    }

    /// Mean over height and width: `[n, c, h, w]` to `[n, c]`.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[1, 2, 1, 2], vec![1.0, 3.0, 5.0, 7.0])?;
    /// let y = x.global_avg_pool()?;
    /// assert_eq!(y.shape(), [1, 2]);
    /// assert_eq!(y.to_vec::<f32>()?, [2.0, 6.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if this tensor has fewer than four dimensions, or does not hold floats.
    pub fn global_avg_pool(&self) -> Result<Self, Error> {
        self.mean_along(&[2, 3], false)
    }
}

impl Definition for AvgPool2d {
    fn name(&self) -> &str {
        "avg_pool2d"
    }

    fn inputs(&self) -> Inputs {
        Inputs::Each(const { &[Input::packed("x")] })
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        let [n, c, h, w] = rank(&inputs[0], "x")?;
        let [rows, columns] = self.0.windows([h, w])?;
        Ok(Outputs::fresh([fresh(FLOAT, [n, c, rows, columns])?]))
    }

    fn cuts(&self, inputs: &[Layout], _outputs: &[Layout]) -> Option<Cuts> {
        let images = along_longest(inputs[0].shape(), 2);
        Some(Cuts::new([images], [Made::activations(images)]))
    }

    fn flops(&self, _inputs: &[Layout], outputs: &[Layout]) -> f64 {
        outputs[0].elements() as f64 * self.0.area()
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        Some(self)
    }

    fn gradient(&self, of: &Recorded<'_>) -> Gradient {
        let shape = of.shape(0);
        let op = AvgPool2dGrad { pool: self.0, input: [shape[2], shape[3]] };
        Gradient::of_one(move |dy| Tensor::call1(op, &[dy]))
    }
}

impl Kernel for AvgPool2d {
    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        let windows =
            cpu::Windows { pool: self.0, size: image(run.input(0)), windows: image(run.output(0)) };
        cpu::avg(run.write(0), run.read(0), windows);
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn cuda(
        &self,
        gpu: &mut device::cuda::Gpu,
        run: &device::cuda::Operands<'_>,
    ) -> Result<(), DeviceError> {
        super::cuda::avg(gpu, &run.outputs[0], &run.inputs[0], &self.0)
    }
}

impl Registered for AvgPool2d {
    fn each() -> Vec<Self> {
        vec![Self(Pool2d::EACH)]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static crate::device::cuda::Family> {
        vec![&super::cuda::FAMILY]
    }
}

impl Definition for AvgPool2dGrad {
    fn name(&self) -> &str {
        "avg_pool2d_grad"
    }

    fn inputs(&self) -> Inputs {
        Inputs::Each(const { &[Input::packed("dy")] })
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        let [n, c, _, _] = rank(&inputs[0], "dy")?;
        self.pool.expect_windows(&inputs[0], self.input)?;
        Ok(Outputs::fresh([fresh(FLOAT, [n, c, self.input[0], self.input[1]])?]))
    }

    fn cuts(&self, inputs: &[Layout], _outputs: &[Layout]) -> Option<Cuts> {
        let images = along_longest(inputs[0].shape(), 2);
        Some(Cuts::new([images], [Made::activations(images)]))
    }

    fn flops(&self, inputs: &[Layout], _outputs: &[Layout]) -> f64 {
        inputs[0].elements() as f64 * self.pool.area()
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        Some(self)
    }

    fn gradient(&self, _of: &Recorded<'_>) -> Gradient {
        let pool = self.pool;
        Gradient::of_one(move |g| g.avg_pool2d(pool))
    }
}

impl Kernel for AvgPool2dGrad {
    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        let windows = cpu::Windows {
            pool: self.pool,
            size: image(run.output(0)),
            windows: image(run.input(0)),
        };
        cpu::avg_grad(run.write(0), run.read(0), windows);
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn cuda(
        &self,
        gpu: &mut device::cuda::Gpu,
        run: &device::cuda::Operands<'_>,
    ) -> Result<(), DeviceError> {
        super::cuda::avg_grad(gpu, &run.outputs[0], &run.inputs[0], &self.pool)
    }
}

impl Registered for AvgPool2dGrad {
    fn each() -> Vec<Self> {
        vec![Self { pool: Pool2d::EACH, input: [1, 1] }]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static crate::device::cuda::Family> {
        vec![&super::cuda::FAMILY]
    }
}
