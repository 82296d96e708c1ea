use super::{cpu, row};
use crate::device::pack::by_size;
use crate::device::{self, DeviceError};
use crate::error::Error;
use crate::layout::Layout;
use crate::op::Outputs;
use crate::ops::Tensor;
use crate::ops::check::{Fault, axis_of, fresh};
use crate::ops::definition::{Definition, Input, Inputs, Kernel, Registered};
use crate::ops::gradient::{Gradient, Recorded};

/// `(x) -> (y)`: the entries along `axis` in reverse order. `x` must be contiguous, of any dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Flip {
    /// Dimension to reverse.
    pub axis: usize,
}

impl Tensor {
    /// Reverses the order of entries along each of `axes`.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[2, 2], vec![1.0, 2.0, 3.0, 4.0])?;
    /// assert_eq!(x.flip(&[1])?.to_vec::<f32>()?, [2.0, 1.0, 4.0, 3.0]);
    /// assert_eq!(x.flip(&[0, 1])?.to_vec::<f32>()?, [4.0, 3.0, 2.0, 1.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if any axis in `axes` does not exist.
    pub fn flip(&self, axes: &[usize]) -> Result<Self, Error> {
        axes.iter().try_fold(self.clone(), |x, &axis| Self::call1(Flip { axis }, &[&x]))
    }
}

impl Definition for Flip {
    fn name(&self) -> &str {
        "flip"
    }

    fn inputs(&self) -> Inputs {
        Inputs::Each(const { &[Input::any_packed("x")] })
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        let x = &inputs[0];
        axis_of(x, "x", self.axis)?;
        Ok(Outputs::fresh([fresh(x.dtype(), *x.shape())?]))
    }

    fn flops(&self, _inputs: &[Layout], outputs: &[Layout]) -> f64 {
        outputs[0].elements() as f64
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        Some(self)
    }

    fn gradient(&self, _of: &Recorded<'_>) -> Gradient {
        let op = *self;
        Gradient::of_one(move |dy| Tensor::call1(op, &[dy]))
    }
}

impl Kernel for Flip {
    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        let layout = run.input(0);
        let sides = [row(layout, self.axis), row(layout, self.axis + 1)];
        by_size!(layout.dtype(), Word => {
            cpu::flip::<Word>(run.write(0), run.read(0), sides);
        });
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn cuda(
        &self,
        gpu: &mut device::cuda::Gpu,
        run: &device::cuda::Operands<'_>,
    ) -> Result<(), DeviceError> {
        super::cuda::flip(gpu, &run.outputs[0], &run.inputs[0], self.axis)
    }
}

impl Registered for Flip {
    fn each() -> Vec<Self> {
        vec![Self { axis: 0 }]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static crate::device::cuda::Family> {
        vec![&super::cuda::FAMILY]
    }
}
