//! What is made of sums, means and maxima.

use crate::error::Error;
use crate::op::OpError;
use crate::ops::Tensor;

impl Tensor {
    /// Variances along `axes`, as for [`Tensor::sum_along`]: sums of squared distances from the mean, over the number of
    /// elements less `correction`. That is 1 for the unbiased variance, PyTorch's default, and 0 for the biased one. NaN
    /// or infinite where there are no more elements than that.
    ///
    /// # Errors
    /// As for [`Tensor::sum_along`].
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

    /// Standard deviations along `axes`: square roots of [`Tensor::var_along`]. Where all elements are equal, the gradient
    /// is 0.
    ///
    /// # Errors
    /// As for [`Tensor::sum_along`].
    pub fn std_along(
        &self,
        axes: &[usize],
        correction: usize,
        keep_dims: bool,
    ) -> Result<Self, Error> {
        self.var_along(axes, correction, keep_dims)?.root()
    }

    /// `ln sum e^x` along `axes`, as for [`Tensor::sum_along`], without overflow.
    ///
    /// # Errors
    /// As for [`Tensor::max_along`].
    pub fn logsumexp(&self, axes: &[usize], keep_dims: bool) -> Result<Self, Error> {
        // The sum is the same whatever is taken from all and added again; and where all are infinite, nothing is to be.
        let largest = self.detach().max_along(axes, true)?.clamp(f32::MIN, f32::MAX)?;
        let sum = self.sub(&largest)?.exp()?.sum_along(axes, true)?.log()?.add(&largest)?;
        if keep_dims {
            return Ok(sum);
        }
        let kept = |(axis, &size): (usize, &usize)| (!axes.contains(&axis)).then_some(size);
        let shape: Vec<usize> = self.shape().iter().enumerate().filter_map(kept).collect();
        sum.reshape(&shape)
    }

    /// The norm of all elements, `sqrt(sum x^2)`, as a scalar. Its gradient at 0 is 0.
    ///
    /// # Errors
    /// If it does not hold floats.
    pub fn norm(&self) -> Result<Self, Error> {
        self.square()?.sum()?.root()
    }

    /// The norm of the elements of all tensors together, as a scalar. Its gradient at 0 is 0.
    ///
    /// # Errors
    /// If there are none, or one does not hold floats.
    pub fn norm_of(tensors: &[&Self]) -> Result<Self, Error> {
        let mut squares = tensors.iter().map(|x| x.square()?.sum());
        let Some(first) = squares.next() else {
            return Err(OpError::new("norm_of", "takes at least 1 tensor, 0 were given").into());
        };
        squares.try_fold(first?, |sum, squares| sum.add(&squares?))?.root()
    }

    /// The square root of what is not below 0, flat at 0: there [`Tensor::sqrt`] is infinitely steep.
    fn root(&self) -> Result<Self, Error> {
        if self.tape().is_none() {
            return self.sqrt();
        }
        // 1 in place of each 0, until its root is taken.
        let some = self.sign()?;
        self.add(&some.affine(-1.0, 1.0)?)?.sqrt()?.mul(&some)
    }
}
