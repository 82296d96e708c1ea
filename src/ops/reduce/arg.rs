//! Positions of the largest or smallest elements.

use crate::device::{self, DeviceError};
use crate::error::Error;
use crate::layout::{DType, Dims, Layout};
use crate::op::Outputs;
use crate::ops::Tensor;
use crate::ops::bf16::{Cut, Cuts, Made, along_longest_but};
use crate::ops::check::{Fault, axis_of, fresh};
use crate::ops::definition::{Definition, Input, Inputs, Kernel, Registered};
use crate::ops::gradient::{Gradient, Recorded};

/// Which element's index an [`ArgReduce`] returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Extreme {
    /// Largest element.
    Max,
    /// Smallest element.
    Min,
}

/// `(x) -> (index i32)`: the index along `axis` of the largest or smallest element. If several
/// elements are equal, the op returns the index of the first. If there is a NaN, the op returns the
/// index of the first NaN. If `keep_dims` is set, the axis has size 1 in the result; if not, the
/// axis is removed. `x` must be contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct ArgReduce {
    /// Whether to find the largest or the smallest element.
    pub kind: Extreme,
    /// Dimension to search along.
    pub axis: usize,
    /// Whether the result keeps the axis, with size 1.
    pub keep_dims: bool,
}

impl Tensor {
    /// Finds the index of the largest element along `axis`, as an integer. If several elements are
    /// equal, the function returns the index of the first. If there is a NaN, the function returns
    /// the index of the first NaN. If `keep_dims` is set, the axis is kept with size 1; if not, the
    /// axis is removed.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[2, 3], vec![1.0, 5.0, 2.0, 7.0, 0.0, 3.0])?;
    /// assert_eq!(x.argmax(1, false)?.to_vec::<i32>()?, [1, 0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if this tensor does not hold floats, the axis does not exist, or the axis has
    /// size 0.
    pub fn argmax(&self, axis: usize, keep_dims: bool) -> Result<Self, Error> {
        Self::call1(ArgReduce { kind: Extreme::Max, axis, keep_dims }, &[self])
    }

    /// Finds the index of the smallest element along `axis`, like [`Tensor::argmax`].
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[2, 3], vec![1.0, 5.0, 2.0, 7.0, 0.0, 3.0])?;
    /// assert_eq!(x.argmin(1, false)?.to_vec::<i32>()?, [0, 1]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Errors of [`Tensor::argmax`].
    pub fn argmin(&self, axis: usize, keep_dims: bool) -> Result<Self, Error> {
        Self::call1(ArgReduce { kind: Extreme::Min, axis, keep_dims }, &[self])
    }
}

impl Definition for ArgReduce {
    fn name(&self) -> &str {
        match self.kind {
            Extreme::Max => "argmax",
            Extreme::Min => "argmin",
        }
    }

    fn inputs(&self) -> Inputs {
        Inputs::Each(const { &[Input::packed("x")] })
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        let (x, axis) = (&inputs[0], self.axis);
        axis_of(x, "x", axis)?;
        let (size, shape) = (x.shape()[axis], x.shape());
        let kept = shape.with(axis, 1);
        if size == 0 && kept.elements() > 0 {
            return Err(format!("x {x} has no elements along axis {axis} to choose from"));
        }
        if i32::try_from(size).is_err() && kept.elements() > 0 {
            return Err(format!("x {x} has more elements along axis {axis} than an i32 counts"));
        }
        let shape = if self.keep_dims {
            kept
        } else {
            Dims::from_fn(shape.len() - 1, |i| shape[if i < axis { i } else { i + 1 }])
        };
        Ok(Outputs::fresh([fresh(DType::I32, shape)?]))
    }

    fn cuts(&self, inputs: &[Layout], _outputs: &[Layout]) -> Option<Cuts> {
        let cut = along_longest_but(inputs[0].shape(), self.axis);
        let made = match cut {
            Cut::Along(axis) if axis > self.axis && !self.keep_dims => Cut::Along(axis - 1),
            cut => cut,
        };
        Some(Cuts::new([cut], [Made::plain(made)]))
    }

    fn flops(&self, inputs: &[Layout], _outputs: &[Layout]) -> f64 {
        inputs[0].elements() as f64
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        Some(self)
    }

    fn gradient(&self, _of: &Recorded<'_>) -> Gradient {
        Gradient::zero()
    }
}

impl ArgReduce {
    /// Number of entries along the axis, and number of elements in each entry.
    fn sides(&self, x: &Layout) -> [usize; 2] {
        let shape = x.shape();
        [shape[self.axis], shape[self.axis + 1..].iter().product()]
    }
}

impl Kernel for ArgReduce {
    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        let ([x], index, sides) = (run.floats(), run.write::<i32>(0), self.sides(run.input(0)));
        super::cpu::arg(self.kind, index, x, sides);
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn cuda(
        &self,
        gpu: &mut device::cuda::Gpu,
        run: &device::cuda::Operands<'_>,
    ) -> Result<(), DeviceError> {
        let sides = self.sides(&run.inputs[0].layout);
        super::cuda::arg(gpu, self.kind, &run.outputs[0], &run.inputs[0], sides)
    }
}

impl Registered for ArgReduce {
    fn each() -> Vec<Self> {
        [Extreme::Max, Extreme::Min].map(|kind| Self { kind, axis: 0, keep_dims: false }).into()
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static crate::device::cuda::Family> {
        vec![&super::cuda::ARG]
    }
}
