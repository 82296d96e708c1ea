//! Functions that are composed of sums, means and maxima.

use crate::error::Error;
use crate::op::OpError;
use crate::ops::Tensor;

impl Tensor {
    /// Computes the variances along `axes`. `keep_dims` has the meaning that it has for
    /// [`Tensor::sum_along`]. The variance is the sum of squared distances from the mean, divided
    /// by the number of elements minus `correction`. A `correction` of 1 gives the unbiased
    /// variance, PyTorch's default. A `correction` of 0 gives the biased variance. The result is
    /// NaN or infinite if the number of elements is not larger than `correction`.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[2, 2], vec![1.0, 3.0, 0.0, 4.0])?;
    /// assert_eq!(x.var_along(&[1], 0, false)?.to_vec::<f32>()?, [1.0, 4.0]);
    /// assert_eq!(x.var_along(&[1], 1, false)?.to_vec::<f32>()?, [2.0, 8.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Errors of [`Tensor::sum_along`].
    pub fn var_along(
        &self,
        axes: &[usize],
        correction: usize,
        keep_dims: bool,
    ) -> Result<Self, Error> {
        let far = self.sub(&self.mean_along(axes, true)?)?;
        let count: usize = axes.iter().map(|&axis| self.shape()[axis]).product();
        let share = 1.0 / count.saturating_sub(correction) as f32;
        far.square()?.sum_along(axes, keep_dims)?.affine(share, 0.0)
    }

    /// Standard deviations along `axes`: square roots of [`Tensor::var_along`]. If all elements are
    /// equal, the gradient is 0 by definition.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[2, 2], vec![1.0, 3.0, 0.0, 4.0])?;
    /// assert_eq!(x.std_along(&[1], 0, false)?.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Errors of [`Tensor::sum_along`].
    pub fn std_along(
        &self,
        axes: &[usize],
        correction: usize,
        keep_dims: bool,
    ) -> Result<Self, Error> {
        self.var_along(axes, correction, keep_dims)?.root()
    }

    /// Computes the logarithm of the sum of exponentials, `ln sum e^x`, along `axes` without
    /// overflow. `keep_dims` has the meaning that it has for [`Tensor::sum_along`].
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.full(&[2], 1000.0)?;
    /// let y = x.logsumexp(&[0], false)?.item()?;
    /// assert!((y - (1000.0 + 2f32.ln())).abs() < 1e-3);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Errors of [`Tensor::max_along`].
    pub fn logsumexp(&self, axes: &[usize], keep_dims: bool) -> Result<Self, Error> {
        // Subtract the largest element before the exponentials, and add it to the logarithm: the
        // result stays the same, and no exponential overflows. Clamp an infinite largest element,
        // because infinity minus infinity would be NaN.
        let largest = self.detach().max_along(axes, true)?.clamp(f32::MIN, f32::MAX)?;
        let sum = self.sub(&largest)?.exp()?.sum_along(axes, true)?.log()?.add(&largest)?;
        if keep_dims {
            return Ok(sum);
        }
        let kept = |(axis, &size): (usize, &usize)| (!axes.contains(&axis)).then_some(size);
        let shape: Vec<usize> = self.shape().iter().enumerate().filter_map(kept).collect();
        sum.reshape(&shape)
    }

    /// Norm of all elements, `sqrt(sum x^2)`, as a scalar. The gradient at 0 is 0.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[2], vec![3.0, -4.0])?;
    /// assert_eq!(x.norm()?.item()?, 5.0);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if this tensor does not hold floats.
    pub fn norm(&self) -> Result<Self, Error> {
        self.square()?.sum()?.root()
    }

    /// Norm of the elements of all tensors together, as a scalar. The gradient at 0 is 0.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let [a, b] = [runtime.full(&[1], 3.0)?, runtime.full(&[1], 4.0)?];
    /// assert_eq!(Tensor::norm_of(&[&a, &b])?.item()?, 5.0);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if there are no tensors, or a tensor does not hold floats.
    pub fn norm_of(tensors: &[&Self]) -> Result<Self, Error> {
        let mut squares = tensors.iter().map(|x| x.square()?.sum());
        let Some(first) = squares.next() else {
            return Err(OpError::new("norm_of", "takes at least 1 tensor, 0 were given").into());
        };
        squares.try_fold(first?, |sum, squares| sum.add(&squares?))?.root()
    }

    /// Square root of elements that are not negative. At 0, the gradient is 0; the gradient of
    /// [`Tensor::sqrt`] would be infinite there.
    fn root(&self) -> Result<Self, Error> {
        if self.tape().is_none() {
            return self.sqrt();
        }
        // Replace each 0 by 1 before the square root, and multiply the root by 0 afterwards.
        let some = self.sign()?;
        self.add(&some.affine(-1.0, 1.0)?)?.sqrt()?.mul(&some)
    }
}
