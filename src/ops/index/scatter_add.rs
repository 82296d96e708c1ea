use super::cpu::{self, Entries};
use super::numbers;
use crate::device::{self, DeviceError};
use crate::error::Error;
use crate::layout::Layout;
use crate::op::Outputs;
use crate::ops::bf16::{Cut, Cuts, Made, along_longest_but};
use crate::ops::check::{Fault, fresh};
use crate::ops::definition::{Definition, Input, Inputs, Kernel, Registered};
use crate::ops::gradient::{Gradient, Recorded};
use crate::ops::{FLOAT, Tensor};

/// `(y, index i32 [n]) -> (x)`: `x` is zero, and each entry `i` of `y` along `axis` is added to the
/// entry `index[i]` of `x`, in the order of `i`. Both inputs must be contiguous. The run fails if
/// an index is out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct ScatterAdd {
    /// Dimension along which entries are added.
    pub axis: usize,
    /// Size of the dimension in the result.
    pub size: usize,
}

impl Tensor {
    /// Makes a tensor of zeros with size `size` along `axis`, and adds each entry `i` of this
    /// tensor to the entry `index[i]` of the result, in the order of `i`.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[3], vec![1.0, 2.0, 3.0])?;
    /// let index = runtime.tensor(&[3], vec![0, 2, 0])?;
    /// assert_eq!(x.scatter_add(&index, 0, 4)?.to_vec::<f32>()?, [4.0, 0.0, 2.0, 0.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if the tensor does not have the axis, or `index` is not a one-dimensional
    /// tensor with one integer for each entry. If an index is out of range, the op fails when it
    /// runs.
    pub fn scatter_add(&self, index: &Self, axis: usize, size: usize) -> Result<Self, Error> {
        Self::call1(ScatterAdd { axis, size }, &[self, index])
    }
}

impl Definition for ScatterAdd {
    fn name(&self) -> &str {
        "scatter_add"
    }

    fn inputs(&self) -> Inputs {
        Inputs::Each(const { &[Input::packed("y"), Input::packed_ints("index")] })
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        let ([y, index], Self { axis, size }) = ([&inputs[0], &inputs[1]], *self);
        let n = numbers(y, "y", axis, index)?;
        let entries = y.shape()[axis];
        if entries != n {
            return Err(format!("y {y} has {entries} entries along axis {axis} but index has {n}"));
        }
        Ok(Outputs::fresh([fresh(FLOAT, y.shape().with(axis, size))?]))
    }

    fn cuts(&self, inputs: &[Layout], _outputs: &[Layout]) -> Option<Cuts> {
        let others = along_longest_but(inputs[0].shape(), self.axis);
        Some(Cuts::new([others, Cut::Whole], [Made::activations(others)]))
    }

    fn flops(&self, inputs: &[Layout], outputs: &[Layout]) -> f64 {
        inputs[0].elements().max(outputs[0].elements()) as f64
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        Some(self)
    }

    fn gradient(&self, of: &Recorded<'_>) -> Gradient {
        let (axis, index) = (self.axis, of.input(1));
        Gradient::of_one(move |dx| dx.gather(&index, axis))
    }
}

impl Kernel for ScatterAdd {
    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        let ([y], index, [x]) = (run.floats(), run.read(1), run.outputs());
        cpu::scatter_add(x, y, index, Entries::along(run.output(0), self.axis))
    }

    #[cfg(feature = "cuda")]
    fn cuda(
        &self,
        gpu: &mut device::cuda::Gpu,
        run: &device::cuda::Operands<'_>,
    ) -> Result<(), DeviceError> {
        let [y, index] = [&run.inputs[0], &run.inputs[1]];
        super::cuda::scatter_add(gpu, &run.outputs[0], y, index, self.axis)
    }
}

impl Registered for ScatterAdd {
    fn each() -> Vec<Self> {
        vec![Self { axis: 0, size: 0 }]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static crate::device::cuda::Family> {
        vec![&super::cuda::FAMILY]
    }
}
