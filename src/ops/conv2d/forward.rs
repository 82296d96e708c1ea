use super::{Conv2dGradInput, Conv2dGradWeight, flops, sides};
use crate::error::Error;
use crate::layout::Layout;
use crate::op::Outputs;
use crate::ops::bf16::{Cut, Cuts, Made};
use crate::ops::check::{Fault, fresh, rank};
use crate::ops::definition::{Definition, Input, Inputs, Kernel, Registered};
use crate::ops::gradient::{Gradient, InputGradients, Recorded};
use crate::ops::{FLOAT, Tensor};
use smallvec::smallvec;

/// `(x [n, c, h, w], weight [o, c / groups, kh, kw]) -> (y [n, o, h', w'])`, a 2-D convolution:
/// `y[n][o][q] = sum of weight[o][c][k] * x[n][c][q * stride - padding + k * dilation]` over
/// channels `c` and kernel elements `k`. The height of `y` is `h' = (h + 2 * padding - dilation *
/// (kh - 1) - 1) / stride + 1`, and the width `w'` follows from `w` and `kw` by the same formula.
///
/// Stride, zero padding and dilation are height first. With groups, input channels and output
/// channels are both divided into `groups` equal parts. Part `i` of the output reads only part `i`
/// of the input. If there are as many groups as channels, each channel has its own kernel
/// (depthwise).
///
/// ```
/// use remat::ops::Conv2d;
///
/// let depthwise = Conv2d { groups: 32, ..Conv2d::new([1, 1], [1, 1]) };
/// assert_eq!(depthwise.dilation, [1, 1]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Conv2d {
    /// Distance between neighbouring windows, in rows and columns.
    pub stride: [usize; 2],
    /// Number of rows of zeros above and below the image, and number of columns of zeros on the
    /// left and on the right.
    pub padding: [usize; 2],
    /// Distance between the pixels that neighbouring elements of the kernel read, at least 1.
    #[cfg_attr(
        feature = "serde",
        serde(default = "each_pixel", skip_serializing_if = "is_each_pixel")
    )]
    pub dilation: [usize; 2],
    /// Number of parts into which channels are divided, at least 1.
    #[cfg_attr(feature = "serde", serde(default = "all", skip_serializing_if = "is_all"))]
    pub groups: usize,
}

// Default of the dilation for recordings without that field, which were made before dilations
// existed. A convolution with a dilation of 1 and one group is still written without the fields of
// dilation and groups.
#[cfg(feature = "serde")]
const fn each_pixel() -> [usize; 2] {
    [1, 1]
}

#[cfg(feature = "serde")]
fn is_each_pixel(dilation: &[usize; 2]) -> bool {
    *dilation == each_pixel()
}

#[cfg(feature = "serde")]
const fn all() -> usize {
    1
}

#[cfg(feature = "serde")]
fn is_all(groups: &usize) -> bool {
    *groups == all()
}

impl Conv2d {
    /// Makes a convolution with the given stride and padding, a dilation of 1, and one group.
    ///
    /// ```
    /// use remat::ops::Conv2d;
    ///
    /// let halving = Conv2d::new([2, 2], [1, 1]);
    /// assert_eq!(halving, Conv2d { stride: [2, 2], padding: [1, 1], ..Conv2d::default() });
    /// ```
    #[must_use]
    pub const fn new(stride: [usize; 2], padding: [usize; 2]) -> Self {
        Self { stride, padding, dilation: [1, 1], groups: 1 }
    }
}

impl Default for Conv2d {
    /// The default has a window at each pixel, and no padding.
    fn default() -> Self {
        Self::new([1, 1], [0, 0])
    }
}

impl Tensor {
    /// Convolves images with a weight `[out, in / groups, height, width]`; see [`Conv2d`].
    ///
    /// ```
    /// # use remat::prelude::*;
    /// use remat::ops::Conv2d;
    ///
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[1, 1, 2, 3], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0])?;
    /// let weight = runtime.ones(&[1, 1, 2, 2])?;
    /// let y = x.conv2d(&weight, Conv2d::new([1, 1], [0, 0]))?;
    /// assert_eq!(y.shape(), [1, 1, 1, 2]);
    /// assert_eq!(y.to_vec::<f32>()?, [12.0, 16.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if a tensor does not hold floats or is not of rank 4, the numbers of channels
    /// do not agree, or the kernel is larger than the padded images.
    pub fn conv2d(&self, weight: &Self, conv: Conv2d) -> Result<Self, Error> {
        Self::call1(conv, &[self, weight])
    }
}

impl Definition for Conv2d {
    fn name(&self) -> &str {
        "conv2d"
    }

    fn inputs(&self) -> Inputs {
        Inputs::Each(const { &[Input::packed("x"), Input::packed("weight")] })
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        let [x, weight] = [&inputs[0], &inputs[1]];
        let [n, c, h, w] = rank(x, "x")?;
        let [o, c_weight, kh, kw] = rank(weight, "weight")?;
        let taken = self.channels(weight, c_weight, o)?;
        if c != taken {
            return Err(format!("x {x} has {c} channels but weight {weight} takes {taken}"));
        }
        let [rows, columns] = self.windows([h, w], [kh, kw])?;
        Ok(Outputs::fresh([fresh(FLOAT, [n, o, rows, columns])?]))
    }

    fn cuts(&self, _inputs: &[Layout], _outputs: &[Layout]) -> Option<Cuts> {
        let images = Cut::Along(0);
        Some(Cuts::new([images, Cut::Whole], [Made::activations(images)]))
    }

    fn flops(&self, inputs: &[Layout], outputs: &[Layout]) -> f64 {
        flops(outputs[0].elements(), &inputs[1])
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        Some(self)
    }

    fn gradient(&self, of: &Recorded<'_>) -> Gradient {
        let to_x = Conv2dGradInput { conv: *self, input: sides(of.shape(0)) };
        let to_weight = Conv2dGradWeight { conv: *self, kernel: sides(of.shape(1)) };
        let weight = of.wanted(0).then(|| of.input(1));
        let x = of.wanted(1).then(|| of.input(0));
        Gradient::of_first(move |dy| {
            let dy = &dy.contiguous()?;
            let mut gradients: InputGradients = smallvec![None, None];
            if let Some(weight) = &weight {
                gradients[0] = Some(Tensor::call1(to_x, &[dy, weight])?);
            }
            if let Some(x) = &x {
                gradients[1] = Some(Tensor::call1(to_weight, &[x, dy])?);
            }
            Ok(gradients)
        })
    }
}

impl Registered for Conv2d {
    fn each() -> Vec<Self> {
        vec![Self::default()]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static crate::device::cuda::Family> {
        vec![&super::cuda::FAMILY]
    }
}
