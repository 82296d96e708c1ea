use super::seen_as;
use crate::error::Error;
use crate::layout::{Dims, Layout};
use crate::op::Outputs;
use crate::ops::check::{Fault, countable};
use crate::ops::definition::{Definition, Input, Inputs, Kernel, Registered};
use crate::ops::gradient::{Gradient, Recorded, sum_to};
use crate::ops::{Tensor, dims};

/// `(x) -> (view)`: repeats dimensions of size 1, and adds dimensions in front. `x` may have any
/// strides and any dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Broadcast {
    /// Shape of the view.
    pub shape: Dims,
}

impl Tensor {
    /// A view of this tensor with the shape `shape`. The view repeats dimensions of size 1, and may
    /// have more dimensions in front.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let row = runtime.tensor(&[2], vec![1.0, 2.0])?;
    /// let rows = row.broadcast(&[3, 2])?;
    /// assert_eq!(rows.to_vec::<f32>()?, [1.0, 2.0, 1.0, 2.0, 1.0, 2.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if a dimension whose size is not 1 would change, or the shape has too many
    /// dimensions.
    pub fn broadcast(&self, shape: &[usize]) -> Result<Self, Error> {
        Self::call1(Broadcast { shape: dims("broadcast", shape)? }, &[self])
    }
}

impl Definition for Broadcast {
    fn name(&self) -> &str {
        "broadcast"
    }

    fn inputs(&self) -> Inputs {
        Inputs::Each(const { &[Input::any("x")] })
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        let (x, shape) = (&inputs[0], &self.shape);
        countable(x.dtype(), shape)?;
        let view =
            x.broadcast_to(shape).ok_or_else(|| format!("x {x} does not broadcast to {shape}"))?;
        Ok(seen_as(view))
    }

    fn flops(&self, _inputs: &[Layout], _outputs: &[Layout]) -> f64 {
        0.0
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        None
    }

    fn gradient(&self, of: &Recorded<'_>) -> Gradient {
        let shape = of.shape(0);
        Gradient::of_one(move |dy| sum_to(dy, &shape))
    }
}

impl Registered for Broadcast {
    fn each() -> Vec<Self> {
        vec![Self { shape: Dims::SCALAR }]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static crate::device::cuda::Family> {
        Vec::new()
    }
}
