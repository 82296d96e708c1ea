use super::{cpu, row};
use crate::device::pack::by_size;
use crate::device::{self, DeviceError};
use crate::error::Error;
use crate::layout::Layout;
use crate::op::{OpError, Outputs};
use crate::ops::Tensor;
use crate::ops::check::{Fault, axis_of, fresh};
use crate::ops::definition::{Definition, Input, Inputs, Kernel, Registered};
use crate::ops::gradient::{Gradient, Recorded};
use smallvec::SmallVec;

/// `(x0, x1, ..) -> (y)`: concatenates along `axis`. All inputs must be contiguous and have one
/// dtype. Any dtype is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Concat {
    /// Dimension to concatenate along.
    pub axis: usize,
}

impl Tensor {
    /// Concatenates tensors along `axis`.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let a = runtime.tensor(&[2], vec![1.0, 2.0])?;
    /// let b = runtime.tensor(&[1], vec![3.0])?;
    /// assert_eq!(Tensor::concat(&[&a, &b], 0)?.to_vec::<f32>()?, [1.0, 2.0, 3.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if there are no tensors, or if the tensors have different types, different
    /// ranks, or different sizes along a dimension other than `axis`.
    pub fn concat(parts: &[&Self], axis: usize) -> Result<Self, Error> {
        if parts.is_empty() {
            return Err(OpError::new("concat", "takes at least 1 input, 0 were given").into());
        }
        Self::call1(Concat { axis }, parts)
    }
}

impl Definition for Concat {
    fn name(&self) -> &str {
        "concat"
    }

    fn inputs(&self) -> Inputs {
        Inputs::Many(const { Input::any_packed("x") })
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        let (first, axis) = (&inputs[0], self.axis);
        axis_of(first, "x0", axis)?;
        let mut size = first.shape()[axis];
        for (i, x) in inputs.iter().enumerate().skip(1) {
            if x.dtype() != first.dtype()
                || x.rank() != first.rank()
                || x.shape().with(axis, 0) != first.shape().with(axis, 0)
            {
                return Err(format!("x{i} is {x}, expected {first} except along axis {axis}"));
            }
            size = size
                .checked_add(x.shape()[axis])
                .ok_or_else(|| format!("axis {axis} of the output overflows at x{i} {x}"))?;
        }
        Ok(Outputs::fresh([fresh(first.dtype(), first.shape().with(axis, size))?]))
    }

    fn flops(&self, _inputs: &[Layout], outputs: &[Layout]) -> f64 {
        outputs[0].elements() as f64
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        Some(self)
    }

    fn gradient(&self, of: &Recorded<'_>) -> Gradient {
        let axis = self.axis;
        let parts: Vec<_> = (0..of.inputs()).map(|i| (of.wanted(i), of.shape(i)[axis])).collect();
        Gradient::of_first(move |dy| {
            let mut start = 0;
            let part = |&(wanted, len): &(bool, usize)| {
                let range = start..start + len;
                start = range.end;
                wanted.then(|| dy.slice(axis, range)).transpose()
            };
            parts.iter().map(part).collect()
        })
    }
}

impl Kernel for Concat {
    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        by_size!(run.output(0).dtype(), Word => {
            let part = |i| (run.read::<Word>(i), row(run.input(i), self.axis));
            let parts: SmallVec<[_; 8]> = (0..run.inputs()).map(part).collect();
            cpu::concat(run.write(0), &parts);
        });
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn cuda(
        &self,
        gpu: &mut device::cuda::Gpu,
        run: &device::cuda::Operands<'_>,
    ) -> Result<(), DeviceError> {
        super::cuda::concat(gpu, &run.outputs[0], run.inputs, self.axis)
    }
}

impl Registered for Concat {
    fn each() -> Vec<Self> {
        vec![Self { axis: 0 }]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static crate::device::cuda::Family> {
        vec![&super::cuda::FAMILY]
    }
}
