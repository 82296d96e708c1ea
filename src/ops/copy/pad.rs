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

/// `(x) -> (y)`: pads with zeros along `axis`. `x` must be contiguous, of any dtype; the zero of a
/// bool is false.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Pad {
    /// Dimension to pad.
    pub axis: usize,
    /// Number of zeros in front.
    pub before: usize,
    /// Number of zeros behind.
    pub after: usize,
}

impl Tensor {
    /// Pads with zeros along `axis`, before and after the elements.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[2], vec![1.0, 2.0])?;
    /// assert_eq!(x.pad(0, 1, 2)?.to_vec::<f32>()?, [0.0, 1.0, 2.0, 0.0, 0.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if the tensor does not have the axis, or the result would have more than
    /// `isize::MAX` bytes.
    pub fn pad(&self, axis: usize, before: usize, after: usize) -> Result<Self, Error> {
        Self::call1(Pad { axis, before, after }, &[self])
    }
}

impl Definition for Pad {
    fn name(&self) -> &str {
        "pad"
    }

    fn inputs(&self) -> Inputs {
        Inputs::Each(const { &[Input::any_packed("x")] })
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        let (x, Self { axis, before, after }) = (&inputs[0], *self);
        axis_of(x, "x", axis)?;
        let size = before.checked_add(x.shape()[axis]).and_then(|size| size.checked_add(after));
        let size =
            size.ok_or_else(|| format!("x {x} padded by {before} and {after} is too large"))?;
        Ok(Outputs::fresh([fresh(x.dtype(), x.shape().with(axis, size))?]))
    }

    fn flops(&self, _inputs: &[Layout], outputs: &[Layout]) -> f64 {
        outputs[0].elements() as f64
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        Some(self)
    }

    fn gradient(&self, of: &Recorded<'_>) -> Gradient {
        let (axis, inside) = (self.axis, self.before..self.before + of.shape(0)[self.axis]);
        Gradient::of_one(move |dy| dy.slice(axis, inside.clone()))
    }
}

impl Kernel for Pad {
    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        let layout = run.input(0);
        let inner = row(layout, self.axis + 1);
        let [length, before, after] =
            [row(layout, self.axis), self.before * inner, self.after * inner];
        by_size!(layout.dtype(), Word => {
            cpu::pad::<Word>(run.write(0), run.read(0), length, before, after);
        });
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn cuda(
        &self,
        gpu: &mut device::cuda::Gpu,
        run: &device::cuda::Operands<'_>,
    ) -> Result<(), DeviceError> {
        super::cuda::pad(gpu, &run.outputs[0], &run.inputs[0], self.axis, self.before)
    }
}

impl Registered for Pad {
    fn each() -> Vec<Self> {
        vec![Self { axis: 0, before: 0, after: 0 }]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static crate::device::cuda::Family> {
        vec![&super::cuda::FAMILY]
    }
}
