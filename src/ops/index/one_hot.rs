use super::cpu;
use crate::device::{self, DeviceError};
use crate::error::Error;
use crate::layout::{Dims, Layout};
use crate::op::Outputs;
use crate::ops::check::{Fault, fresh};
use crate::ops::definition::{Definition, Input, Inputs, Kernel, Registered};
use crate::ops::gradient::{Gradient, Recorded};
use crate::ops::{FLOAT, Tensor};

/// `(index i32 [..]) -> (y [.., classes])`: each row of `y` is 1 at the row's index, else 0. The
/// index must be contiguous. The run fails if an index is out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct OneHot {
    /// Exclusive upper bound of the indices.
    pub classes: usize,
}

impl Tensor {
    /// Turns each integer into `classes` floats: 1 at the integer, else 0.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let labels = runtime.tensor(&[2], vec![2, 0])?;
    /// let y = labels.one_hot(3)?;
    /// assert_eq!(y.shape(), [2, 3]);
    /// assert_eq!(y.to_vec::<f32>()?, [0.0, 0.0, 1.0, 1.0, 0.0, 0.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if this tensor does not hold integers, or the result would have more than
    /// `isize::MAX` bytes. If an integer is outside `0..classes`, the op fails when it runs.
    pub fn one_hot(&self, classes: usize) -> Result<Self, Error> {
        Self::call1(OneHot { classes }, &[self])
    }
}

impl Definition for OneHot {
    fn name(&self) -> &str {
        "one_hot"
    }

    fn inputs(&self) -> Inputs {
        Inputs::Each(const { &[Input::packed_ints("index")] })
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        let (index, classes) = (&inputs[0], self.classes);
        if index.rank() == Dims::MAX_LEN {
            return Err(format!("index {index} has too many dimensions to add one"));
        }
        let shape = [&index.shape()[..], &[classes]].concat();
        Ok(Outputs::fresh([fresh(FLOAT, Dims::new(&shape))?]))
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

impl Kernel for OneHot {
    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        let (index, [y]) = (run.read(0), run.outputs());
        cpu::one_hot(y, index, self.classes)
    }

    #[cfg(feature = "cuda")]
    fn cuda(
        &self,
        gpu: &mut device::cuda::Gpu,
        run: &device::cuda::Operands<'_>,
    ) -> Result<(), DeviceError> {
        super::cuda::one_hot(gpu, &run.outputs[0], &run.inputs[0], self.classes)
    }
}

impl Registered for OneHot {
    fn each() -> Vec<Self> {
        vec![Self { classes: 1 }]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static crate::device::cuda::Family> {
        vec![&super::cuda::FAMILY]
    }
}
