use super::seen_as;
use crate::error::Error;
use crate::layout::{Dims, Layout};
use crate::op::Outputs;
use crate::ops::check::Fault;
use crate::ops::definition::{Definition, Input, Inputs, Kernel, Registered};
use crate::ops::gradient::{Gradient, Recorded};
use crate::ops::{Tensor, dims};

/// `(x) -> (view)`: dimension `i` of the result is dimension `axes[i]` of `x`. `x` may have any
/// strides and any dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Permute {
    /// Order of dimensions.
    pub axes: Dims,
}

impl Tensor {
    /// A view whose dimension `i` is dimension `axes[i]` of this tensor.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.zeros(&[2, 3, 4])?;
    /// assert_eq!(x.permute(&[2, 0, 1])?.shape(), [4, 2, 3]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if `axes` does not list every dimension once.
    pub fn permute(&self, axes: &[usize]) -> Result<Self, Error> {
        Self::call1(Permute { axes: dims("permute", axes)? }, &[self])
    }

    /// A view with the last two dimensions swapped. If this tensor has fewer than two dimensions,
    /// the view has the layout of this tensor.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[2, 3], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0])?;
    /// let y = x.transpose()?;
    /// assert_eq!(y.shape(), [3, 2]);
    /// assert_eq!(y.to_vec::<f32>()?, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// If the runtime of this tensor has stopped.
    pub fn transpose(&self) -> Result<Self, Error> {
        let mut axes: Vec<usize> = (0..self.rank()).collect();
        if let [.., rows, columns] = &mut axes[..] {
            std::mem::swap(rows, columns);
        }
        self.permute(&axes)
    }

    /// Short for [`Tensor::transpose`].
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[2, 2], vec![1.0, 2.0, 3.0, 4.0])?;
    /// assert_eq!(x.matmul(&x.t()?)?.to_vec::<f32>()?, [5.0, 11.0, 11.0, 25.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// If the runtime of this tensor has stopped.
    pub fn t(&self) -> Result<Self, Error> {
        self.transpose()
    }
}

impl Definition for Permute {
    fn name(&self) -> &str {
        "permute"
    }

    fn inputs(&self) -> Inputs {
        Inputs::Each(const { &[Input::any("x")] })
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        let (x, axes) = (&inputs[0], &self.axes);
        let view = x.permute(axes).ok_or_else(|| {
            format!("axes {axes} are not an order of the {} dimensions of x {x}", x.rank())
        })?;
        Ok(seen_as(view))
    }

    fn flops(&self, _inputs: &[Layout], _outputs: &[Layout]) -> f64 {
        0.0
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        None
    }

    fn gradient(&self, _of: &Recorded<'_>) -> Gradient {
        let mut inverse = self.axes.to_vec();
        self.axes.iter().enumerate().for_each(|(i, &axis)| inverse[axis] = i);
        Gradient::of_one(move |dy| dy.permute(&inverse))
    }
}

impl Registered for Permute {
    fn each() -> Vec<Self> {
        vec![Self { axes: Dims::SCALAR }]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static crate::device::cuda::Family> {
        Vec::new()
    }
}
