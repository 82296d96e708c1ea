use super::conv2d::{add_bias, weight_and_bias};
use super::init::{self, Fan};
use super::{Mode, Module, State};
use crate::error::Error;
use crate::ops::{self, Tensor};
use crate::runtime::Runtime;

/// A convolution of sequences `[n, inputs, length]`.
///
/// ```
/// use remat::nn::Conv1d;
/// use remat::ops;
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("16MiB").cpu()?;
/// let wide = ops::Conv1d { padding: 1, ..ops::Conv1d::default() };
/// let mut conv = Conv1d::new(&runtime, 4, 8, 3, wide)?;
/// let x = runtime.normal(&[2, 4, 10], 0.0, 1.0)?;
/// assert_eq!(conv.forward(&x, Mode::Train)?.shape(), [2, 8, 10]);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Conv1d {
    /// `[outputs, inputs / groups, kernel]`
    weight: Tensor,
    /// `[outputs]`
    bias: Option<Tensor>,
    conv: ops::Conv1d,
}

impl Conv1d {
    /// Makes a layer without bias. Weights are Gaussian with variance `2 / (outputs * kernel)`: the
    /// fan-out rule of He et al. (ICCV 2015).
    ///
    /// # Errors
    /// [`Error::Op`] if a tensor would have more than `isize::MAX` bytes.
    pub fn new(
        runtime: &Runtime,
        inputs: usize,
        outputs: usize,
        kernel: usize,
        conv: ops::Conv1d,
    ) -> Result<Self, Error> {
        let std = (2.0 / (outputs * kernel).max(1) as f32).sqrt();
        let shape = [outputs, inputs / conv.groups.max(1), kernel];
        Ok(Self { weight: runtime.normal(&shape, 0.0, std)?, bias: None, conv })
    }

    /// Adds a bias for each output channel, drawn uniformly from `±1 / sqrt(fan-in)`, as in
    /// PyTorch.
    ///
    /// ```
    /// use remat::nn::{Conv1d, parameters};
    /// use remat::ops;
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("16MiB").cpu()?;
    /// let conv = Conv1d::new(&runtime, 4, 8, 3, ops::Conv1d::default())?;
    /// let mut conv = conv.with_bias(&runtime)?;
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

impl Module for Conv1d {
    fn forward(&mut self, x: &Tensor, _mode: Mode) -> Result<Tensor, Error> {
        add_bias(x.conv1d(&self.weight, self.conv)?, self.bias.as_ref())
    }

    fn state<'a>(&'a mut self, prefix: &str, found: &mut Vec<(String, State<'a>)>) {
        weight_and_bias(&mut self.weight, &mut self.bias, prefix, found);
    }
}
