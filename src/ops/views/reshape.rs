use super::seen_as;
use crate::error::Error;
use crate::layout::{Dims, Layout};
use crate::op::Outputs;
use crate::ops::check::{Fault, countable};
use crate::ops::definition::{Definition, Input, Inputs, Kernel, Registered};
use crate::ops::gradient::{Gradient, Recorded};
use crate::ops::{Tensor, dims};

/// `(x) -> (view)`: the elements of `x`, in unchanged order, with another shape. `x` must be
/// contiguous, and may have any dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Reshape {
    /// Shape of the view.
    pub shape: Dims,
}

impl Tensor {
    /// Returns a tensor of the elements of this tensor, in unchanged order, with another shape.
    ///
    /// If this tensor is contiguous, the result is a view of it. Otherwise, the result is a view of
    /// a packed copy.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.zeros(&[2, 6])?;
    /// assert_eq!(x.reshape(&[3, 2, 2])?.shape(), [3, 2, 2]);
    /// assert!(x.reshape(&[5, 2]).is_err());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if the new shape does not have as many elements as this tensor, or has too
    /// many dimensions.
    pub fn reshape(&self, shape: &[usize]) -> Result<Self, Error> {
        Self::call1(Reshape { shape: dims("reshape", shape)? }, &[self])
    }

    /// Merges all dimensions except the first: `[n, a, b, ..]` becomes `[n, a * b * ..]`.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let images = runtime.zeros(&[2, 3, 4, 4])?;
    /// assert_eq!(images.flatten()?.shape(), [2, 48]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// If the runtime of this tensor has stopped.
    pub fn flatten(&self) -> Result<Self, Error> {
        let rows = self.shape().first().copied().unwrap_or(1);
        self.reshape(&[rows, self.layout().elements().checked_div(rows).unwrap_or(0)])
    }
}

impl Definition for Reshape {
    fn name(&self) -> &str {
        "reshape"
    }

    fn inputs(&self) -> Inputs {
        Inputs::Each(const { &[Input::any_packed("x")] })
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        let (x, shape) = (&inputs[0], &self.shape);
        countable(x.dtype(), shape)?;
        let view = x.reshape(shape).ok_or_else(|| {
            format!("x {x} has {} elements, {shape} has {}", x.elements(), shape.elements())
        })?;
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
        Gradient::of_one(move |dy| dy.reshape(&shape))
    }
}

impl Registered for Reshape {
    fn each() -> Vec<Self> {
        vec![Self { shape: Dims::SCALAR }]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static crate::device::cuda::Family> {
        Vec::new()
    }
}
