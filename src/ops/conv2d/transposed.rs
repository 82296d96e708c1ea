//! Transposed convolution. A forward pass uses the op that computes the input gradient of a
//! convolution.

use super::{Conv2d, Conv2dGradInput};
use crate::device::conv_shape::span;
use crate::error::Error;
use crate::op::OpError;
use crate::ops::Tensor;
use crate::ops::check::{Fault, rank};

/// Options of [`Tensor::conv_transpose2d`], height first.
///
/// ```
/// # use remat::prelude::*;
/// use remat::ops::ConvTranspose2d;
///
/// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
/// let doubling = ConvTranspose2d { stride: [2, 2], ..ConvTranspose2d::default() };
/// let (x, weight) = (runtime.zeros(&[1, 3, 4, 4])?, runtime.zeros(&[3, 5, 2, 2])?);
/// assert_eq!(x.conv_transpose2d(&weight, doubling)?.shape(), [1, 5, 8, 8]);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConvTranspose2d {
    /// Distance in the result, in rows and columns, between the copies of the kernel for
    /// neighbouring pixels of the input; at least 1.
    pub stride: [usize; 2],
    /// Numbers of rows and columns that are removed from each side of the result.
    pub padding: [usize; 2],
    /// Number of rows that are added below the result, and number of columns that are added on its
    /// right. The numbers must be less than the stride.
    pub output_padding: [usize; 2],
    /// Distance between the pixels of the result to which neighbouring elements of the kernel
    /// contribute, at least 1.
    pub dilation: [usize; 2],
    /// Number of parts into which channels are divided, at least 1; see [`Conv2d`].
    pub groups: usize,
}

impl Default for ConvTranspose2d {
    /// The default has a stride of 1, and no padding.
    fn default() -> Self {
        let output_padding = [0, 0];
        let Conv2d { stride, padding, dilation, groups } = Conv2d::default();
        Self { stride, padding, output_padding, dilation, groups }
    }
}

impl ConvTranspose2d {
    /// Height (if `i` is 0) or width (if `i` is 1) of the result. `size` and `kernel` are the
    /// height or width of `x` and of the kernel.
    fn side(&self, i: usize, size: usize, kernel: usize) -> Result<usize, Fault> {
        let side = ["height", "width"][i];
        let (stride, more) = (self.stride[i], self.output_padding[i]);
        if kernel == 0 || stride == 0 || self.dilation[i] == 0 {
            let dilation = self.dilation[i];
            return Err(format!(
                "kernel {side} {kernel}, stride {stride} and dilation {dilation}, expected at least 1 each"
            ));
        }
        if more >= stride {
            return Err(format!(
                "output padding {more} along {side}, expected below the stride, which is {stride}"
            ));
        }
        let Some(steps) = size.checked_sub(1) else {
            return Err(format!("{side} 0, expected at least 1"));
        };
        let full = (steps.checked_mul(stride))
            .and_then(|size| size.checked_add(span(kernel, self.dilation[i])))
            .and_then(|size| size.checked_add(more));
        let Some(full) = full.filter(|&full| isize::try_from(full).is_ok()) else {
            return Err(format!(
                "{side} {size} with stride {stride} gives an output of more than {}",
                isize::MAX
            ));
        };
        let cut = self.padding[i].saturating_mul(2);
        full.checked_sub(cut).ok_or_else(|| {
            format!(
                "the output would have a {side} of {full}, less than the total padding of {cut}"
            )
        })
    }
}

impl Tensor {
    /// Transposed convolution of images `[n, c, h, w]` with a weight `[c, out / groups, kh, kw]`.
    /// For a convolution with `weight`, the function computes the gradient of the input if this
    /// tensor is the gradient of the output. For each pixel of this tensor, the kernel times the
    /// pixel is added to the result `[n, out, h', w']`, at `stride` times the position of the
    /// pixel. The height of the result is `h' = (h - 1) * stride - 2 * padding + dilation *
    /// (kh - 1) + output_padding + 1`. The width `w'` follows from `w` and `kw` by the same
    /// formula.
    ///
    /// The function computes the result of PyTorch's `conv_transpose2d`, but the output padding
    /// must be less than the stride.
    ///
    /// ```
    /// use remat::ops::ConvTranspose2d;
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("64KiB").cpu()?;
    /// let x = runtime.tensor(&[1, 1, 1, 2], vec![1.0, 10.0])?;
    /// let weight = runtime.tensor(&[1, 1, 1, 3], vec![1.0, 2.0, 3.0])?;
    /// let conv = ConvTranspose2d { stride: [1, 2], ..ConvTranspose2d::default() };
    /// let y = x.conv_transpose2d(&weight, conv)?;
    /// assert_eq!(y.to_vec::<f32>()?, [1.0, 2.0, 13.0, 20.0, 30.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if a tensor does not hold floats or is not of rank 4, the numbers of channels
    /// do not agree, images have no pixels, or the padding removes all of `y`.
    pub fn conv_transpose2d(&self, weight: &Self, conv: ConvTranspose2d) -> Result<Self, Error> {
        let op = conv.of(self, weight).map_err(|fault| OpError::new("conv_transpose2d", fault))?;
        Self::call1(op, &[self, weight])
    }
}

impl ConvTranspose2d {
    /// Makes the op that computes the transposed convolution.
    fn of(self, x: &Tensor, weight: &Tensor) -> Result<Conv2dGradInput, Fault> {
        let [_, _, h, w] = rank(x.layout(), "x")?;
        let [_, _, kh, kw] = rank(weight.layout(), "weight")?;
        let Self { stride, padding, dilation, groups, .. } = self;
        Ok(Conv2dGradInput {
            conv: Conv2d { stride, padding, dilation, groups },
            input: [self.side(0, h, kh)?, self.side(1, w, kw)?],
        })
    }
}
