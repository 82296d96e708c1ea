//! Cumulative sums.

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;

use super::bf16::{Cuts, Made, along_longest_but};
use super::check::{Fault, axis_of, fresh};
use super::definition::{Definition, Input, Inputs, Kernel, Registered};
use super::gradient::{Gradient, Recorded};
use super::{FLOAT, Tensor};
use crate::device::{self, DeviceError};
use crate::error::Error;
use crate::layout::Layout;
use crate::op::Outputs;

/// `(x) -> (y)`: cumulative sums along `axis`. Element `i` of `y` is the sum of the elements
/// `0..=i` of `x`. If `reverse` is set, element `i` is the sum of the elements from `i` on. `x`
/// must be contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct CumSum {
    /// Dimension to sum along.
    pub axis: usize,
    /// Whether the sums start from the last element.
    pub reverse: bool,
}

impl Tensor {
    /// Cumulative sums along `axis`: element `i` of the result is the sum of the elements `0..=i`.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[2, 2], vec![1.0, 2.0, 3.0, 4.0])?;
    /// assert_eq!(x.cumsum(0)?.to_vec::<f32>()?, [1.0, 2.0, 4.0, 6.0]);
    /// assert_eq!(x.cumsum(1)?.to_vec::<f32>()?, [1.0, 3.0, 3.0, 7.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if this tensor does not hold floats, or does not have the axis `axis`.
    pub fn cumsum(&self, axis: usize) -> Result<Self, Error> {
        Self::call1(CumSum { axis, reverse: false }, &[self])
    }
}

impl Definition for CumSum {
    fn name(&self) -> &str {
        "cumsum"
    }

    fn inputs(&self) -> Inputs {
        Inputs::Each(const { &[Input::packed("x")] })
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        axis_of(&inputs[0], "x", self.axis)?;
        Ok(Outputs::fresh([fresh(FLOAT, *inputs[0].shape())?]))
    }

    fn cuts(&self, inputs: &[Layout], _outputs: &[Layout]) -> Option<Cuts> {
        let others = along_longest_but(inputs[0].shape(), self.axis);
        Some(Cuts::new([others], [Made::activations(others)]))
    }

    fn flops(&self, inputs: &[Layout], _outputs: &[Layout]) -> f64 {
        inputs[0].elements() as f64
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        Some(self)
    }

    fn gradient(&self, _of: &Recorded<'_>) -> Gradient {
        let back = Self { reverse: !self.reverse, ..*self };
        Gradient::of_one(move |dy| Tensor::call1(back, &[dy]))
    }
}

impl CumSum {
    /// Number of entries along the axis, and number of elements in each entry.
    fn sides(&self, x: &Layout) -> [usize; 2] {
        let shape = x.shape();
        [shape[self.axis], shape[self.axis + 1..].iter().product()]
    }
}

impl Kernel for CumSum {
    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        let ([x], [y], sides) = (run.floats(), run.outputs(), self.sides(run.input(0)));
        cpu::cumsum(y, x, sides, self.reverse);
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn cuda(
        &self,
        gpu: &mut device::cuda::Gpu,
        run: &device::cuda::Operands<'_>,
    ) -> Result<(), DeviceError> {
        let sides = self.sides(&run.inputs[0].layout);
        cuda::cumsum(gpu, &run.outputs[0], &run.inputs[0], sides, self.reverse)
    }
}

impl Registered for CumSum {
    fn each() -> Vec<Self> {
        vec![Self { axis: 0, reverse: false }]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static crate::device::cuda::Family> {
        vec![&cuda::FAMILY]
    }
}
