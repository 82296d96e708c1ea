use super::cpu::{self, Entries};
use super::numbers;
use crate::device::{self, DeviceError};
use crate::error::Error;
use crate::layout::Layout;
use crate::op::{OpError, Outputs};
use crate::ops::bf16::{Cut, Cuts, Made, along_longest_but};
use crate::ops::check::{Fault, fresh, rank};
use crate::ops::definition::{Definition, Input, Inputs, Kernel, Registered};
use crate::ops::gradient::{Gradient, Recorded};
use crate::ops::{FLOAT, Tensor};

/// `(x, index i32 [n]) -> (y)`: entry `i` of `y` along `axis` is the entry `index[i]` of `x`. Both
/// inputs must be contiguous. The run fails if an index is out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Gather {
    /// Dimension along which entries are selected.
    pub axis: usize,
}

impl Tensor {
    /// Copies the entries of this tensor along `axis` that `index` lists, in the order of `index`.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[3, 2], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0])?;
    /// let index = runtime.tensor(&[2], vec![2, 0])?;
    /// assert_eq!(x.gather(&index, 0)?.to_vec::<f32>()?, [5.0, 6.0, 1.0, 2.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if the tensor does not have the axis, or `index` is not a one-dimensional
    /// tensor of integers. If an index is out of range, the op fails when it runs.
    pub fn gather(&self, index: &Self, axis: usize) -> Result<Self, Error> {
        Self::call1(Gather { axis }, &[self, index])
    }

    /// Copies the rows of this matrix that `index` lists: integers `[..]` become floats `[..,
    /// features]`.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let weight = runtime.tensor(&[3, 2], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0])?;
    /// let words = runtime.tensor(&[1, 2], vec![2, 0])?;
    /// let y = weight.embedding(&words)?;
    /// assert_eq!(y.shape(), [1, 2, 2]);
    /// assert_eq!(y.to_vec::<f32>()?, [5.0, 6.0, 1.0, 2.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if this tensor is not a matrix of floats, or `index` does not hold integers.
    /// If an index is out of range, the op fails when it runs.
    pub fn embedding(&self, index: &Self) -> Result<Self, Error> {
        let [_, features] =
            rank(self.layout(), "weight").map_err(|message| OpError::new("embedding", message))?;
        let flat = index.contiguous()?.reshape(&[index.layout().elements()])?;
        self.gather(&flat, 0)?.reshape(&[index.shape(), &[features]].concat())
    }
}

impl Definition for Gather {
    fn name(&self) -> &str {
        "gather"
    }

    fn inputs(&self) -> Inputs {
        Inputs::Each(const { &[Input::packed("x"), Input::packed_ints("index")] })
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        let [x, index] = [&inputs[0], &inputs[1]];
        let n = numbers(x, "x", self.axis, index)?;
        Ok(Outputs::fresh([fresh(FLOAT, x.shape().with(self.axis, n))?]))
    }

    fn cuts(&self, inputs: &[Layout], _outputs: &[Layout]) -> Option<Cuts> {
        let others = along_longest_but(inputs[0].shape(), self.axis);
        Some(Cuts::new([others, Cut::Whole], [Made::activations(others)]))
    }

    fn flops(&self, _inputs: &[Layout], outputs: &[Layout]) -> f64 {
        outputs[0].elements() as f64
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        Some(self)
    }

    fn gradient(&self, of: &Recorded<'_>) -> Gradient {
        let (axis, size, index) = (self.axis, of.shape(0)[self.axis], of.input(1));
        Gradient::of_one(move |dy| dy.scatter_add(&index, axis, size))
    }
}

impl Kernel for Gather {
    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        let ([x], index, [y]) = (run.floats(), run.read(1), run.outputs());
        cpu::gather(y, x, index, Entries::along(run.input(0), self.axis))
    }

    #[cfg(feature = "cuda")]
    fn cuda(
        &self,
        gpu: &mut device::cuda::Gpu,
        run: &device::cuda::Operands<'_>,
    ) -> Result<(), DeviceError> {
        let [x, index] = [&run.inputs[0], &run.inputs[1]];
        super::cuda::gather(gpu, &run.outputs[0], x, index, self.axis)
    }
}

impl Registered for Gather {
    fn each() -> Vec<Self> {
        vec![Self { axis: 0 }]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static crate::device::cuda::Family> {
        vec![&super::cuda::FAMILY]
    }
}
