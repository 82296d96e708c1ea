use super::init::{self, Fan};
use super::{Mode, Module, State, join};
use crate::error::Error;
use crate::ops::{self, Tensor};
use crate::runtime::Runtime;

/// A convolution of images `[n, inputs, h, w]`.
///
/// ```
/// use remat::nn::{Conv2d, Mode, Module as _};
/// use remat::ops;
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("1MiB").cpu()?;
/// let wide = ops::Conv2d::new([1, 1], [0, 3]);
/// let mut conv = Conv2d::with(&runtime, 3, 8, [1, 7], wide)?.with_bias(&runtime)?;
/// let x = runtime.normal(&[2, 3, 5, 9], 0.0, 1.0)?;
/// assert_eq!(conv.forward(&x, Mode::Train)?.shape(), [2, 8, 5, 9]);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Conv2d {
    /// `[outputs, inputs / groups, height, width]`
    weight: Tensor,
    /// `[outputs]`
    bias: Option<Tensor>,
    conv: ops::Conv2d,
}

impl Conv2d {
    /// Makes a layer with a square kernel and no bias, padded so that a stride of 1 keeps the image
    /// size. Weights are Gaussian with variance `2 / (outputs * kernel^2)`: the fan-out rule of He
    /// et al. (ICCV 2015).
    ///
    /// ```
    /// use remat::nn::Conv2d;
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("16MiB").cpu()?;
    /// let mut conv = Conv2d::new(&runtime, 3, 8, 3, 2)?;
    /// let x = runtime.normal(&[2, 3, 16, 16], 0.0, 1.0)?;
    /// assert_eq!(conv.forward(&x, Mode::Train)?.shape(), [2, 8, 8, 8]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if a tensor would have more than `isize::MAX` bytes.
    pub fn new(
        runtime: &Runtime,
        inputs: usize,
        outputs: usize,
        kernel: usize,
        stride: usize,
    ) -> Result<Self, Error> {
        let conv = ops::Conv2d::new([stride; 2], [kernel / 2; 2]);
        Self::with(runtime, inputs, outputs, [kernel; 2], conv)
    }

    /// Makes a layer with the kernel `[height, width]`, and the stride, padding, dilation and
    /// groups of `conv`. Weights are drawn as in [`Conv2d::new`].
    ///
    /// ```
    /// use remat::nn::Conv2d;
    /// use remat::ops;
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("16MiB").cpu()?;
    /// let depthwise = ops::Conv2d { groups: 4, ..ops::Conv2d::new([1, 1], [1, 1]) };
    /// let mut conv = Conv2d::with(&runtime, 4, 4, [3, 3], depthwise)?;
    /// let x = runtime.normal(&[1, 4, 5, 5], 0.0, 1.0)?;
    /// assert_eq!(conv.forward(&x, Mode::Train)?.shape(), [1, 4, 5, 5]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if a tensor would have more than `isize::MAX` bytes.
    pub fn with(
        runtime: &Runtime,
        inputs: usize,
        outputs: usize,
        [height, width]: [usize; 2],
        conv: ops::Conv2d,
    ) -> Result<Self, Error> {
        let std = (2.0 / (outputs * height * width).max(1) as f32).sqrt();
        let shape = [outputs, inputs / conv.groups.max(1), height, width];
        Ok(Self { weight: runtime.normal(&shape, 0.0, std)?, bias: None, conv })
    }

    /// Makes a layer with the given weight, `[outputs, inputs / groups, height, width]`, and no
    /// bias.
    ///
    /// ```
    /// use remat::nn::Conv2d;
    /// use remat::ops;
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("16MiB").cpu()?;
    /// let difference = runtime.tensor(&[1, 1, 1, 2], vec![-1.0, 1.0])?;
    /// let mut conv = Conv2d::of(difference, ops::Conv2d::default());
    /// let x = runtime.tensor(&[1, 1, 1, 3], vec![1.0, 2.0, 5.0])?;
    /// assert_eq!(conv.forward(&x, Mode::Infer)?.to_vec::<f32>()?, [1.0, 3.0]);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub const fn of(weight: Tensor, conv: ops::Conv2d) -> Self {
        Self { weight, bias: None, conv }
    }

    /// Adds a bias for each output channel, drawn uniformly from `±1 / sqrt(fan-in)`, as in
    /// PyTorch.
    ///
    /// ```
    /// use remat::nn::{Conv2d, parameters};
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("16MiB").cpu()?;
    /// let mut conv = Conv2d::new(&runtime, 3, 8, 3, 1)?.with_bias(&runtime)?;
    /// let names: Vec<String> = parameters(&mut conv).map(|(name, _)| name).collect();
    /// assert_eq!(names, ["weight", "bias"]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the runtime cannot draw the bias.
    pub fn with_bias(mut self, runtime: &Runtime) -> Result<Self, Error> {
        self.bias = Some(init::bias_of(runtime, &self.weight, self.weight.shape()[0], Fan::In)?);
        Ok(self)
    }
}

impl Module for Conv2d {
    fn forward(&mut self, x: &Tensor, _mode: Mode) -> Result<Tensor, Error> {
        add_bias(x.conv2d(&self.weight, self.conv)?, self.bias.as_ref())
    }

    fn state<'a>(&'a mut self, prefix: &str, found: &mut Vec<(String, State<'a>)>) {
        weight_and_bias(&mut self.weight, &mut self.bias, prefix, found);
    }
}

/// Adds one bias for each channel to `y [n, channels, ..]`; returns `y` itself if `bias` is `None`.
pub(super) fn add_bias(y: Tensor, bias: Option<&Tensor>) -> Result<Tensor, Error> {
    let Some(bias) = bias else { return Ok(y) };
    let mut shape = vec![1; y.rank() - 1];
    shape[0] = y.shape()[1];
    y.add(&bias.reshape(&shape)?)
}

/// Adds the weight of a layer, and its bias if it has one, to `found`.
pub(super) fn weight_and_bias<'a>(
    weight: &'a mut Tensor,
    bias: &'a mut Option<Tensor>,
    prefix: &str,
    found: &mut Vec<(String, State<'a>)>,
) {
    found.push((join(prefix, "weight"), State::Parameter(weight)));
    if let Some(bias) = bias {
        found.push((join(prefix, "bias"), State::Parameter(bias)));
    }
}
