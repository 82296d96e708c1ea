//! Convolution of sequences, computed as a convolution of images with one row.

use super::Conv2d;
use crate::error::Error;
use crate::op::OpError;
use crate::ops::Tensor;
use crate::ops::check::rank;

/// Options of [`Tensor::conv1d`].
///
/// ```
/// # use remat::prelude::*;
/// use remat::ops::Conv1d;
///
/// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
/// let same_length = Conv1d { padding: 1, ..Conv1d::default() };
/// let (x, weight) = (runtime.zeros(&[1, 2, 10])?, runtime.zeros(&[4, 2, 3])?);
/// assert_eq!(x.conv1d(&weight, same_length)?.shape(), [1, 4, 10]);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Conv1d {
    /// Distance between neighbouring windows, at least 1.
    pub stride: usize,
    /// Number of zeros at each end.
    pub padding: usize,
    /// Distance between the positions that neighbouring elements of the kernel read, at least 1.
    pub dilation: usize,
    /// Number of parts into which channels are divided, at least 1; see [`Conv2d`].
    pub groups: usize,
}

impl Default for Conv1d {
    /// The default has a window at each position, and no padding.
    fn default() -> Self {
        Self { stride: 1, padding: 0, dilation: 1, groups: 1 }
    }
}

impl Tensor {
    /// Convolves sequences `[n, c, length]` with a weight `[out, c / groups, kernel]`; see
    /// [`Conv2d`].
    ///
    /// ```
    /// use remat::ops::Conv1d;
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("64KiB").cpu()?;
    /// let x = runtime.tensor(&[1, 1, 5], vec![1.0, 2.0, 4.0, 8.0, 16.0])?;
    /// let weight = runtime.tensor(&[1, 1, 2], vec![-1.0, 1.0])?;
    /// let differences = x.conv1d(&weight, Conv1d::default())?;
    /// assert_eq!(differences.to_vec::<f32>()?, [1.0, 2.0, 4.0, 8.0]);
    /// let two_apart = x.conv1d(&weight, Conv1d { dilation: 2, stride: 2, ..Conv1d::default() })?;
    /// assert_eq!(two_apart.to_vec::<f32>()?, [3.0, 12.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if a tensor does not hold floats or is not of rank 3, the numbers of channels
    /// do not agree, or the kernel is longer than the padded sequences.
    pub fn conv1d(&self, weight: &Self, conv: Conv1d) -> Result<Self, Error> {
        let Conv1d { stride, padding, dilation, groups } = conv;
        let conv =
            Conv2d { stride: [1, stride], padding: [0, padding], dilation: [1, dilation], groups };
        let y = self.one_row("x")?.conv2d(&weight.one_row("weight")?, conv)?;
        let [n, channels, length] = [0, 1, 3].map(|axis| y.shape()[axis]);
        y.reshape(&[n, channels, length])
    }

    /// Reshapes `[a, b, length]` to `[a, b, 1, length]`.
    fn one_row(&self, role: &str) -> Result<Self, Error> {
        let [a, b, length] =
            rank(self.layout(), role).map_err(|message| OpError::new("conv1d", message))?;
        self.reshape(&[a, b, 1, length])
    }
}
