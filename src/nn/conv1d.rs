use super::conv2d::{add_bias, weight_and_bias};
use super::init::{self, Fan};
use super::{Mode, Module, State};
use crate::error::Error;
use crate::ops::{self, Tensor};
use crate::runtime::Runtime;

/// A convolution of sequences `[n, inputs, length]`.
#[derive(Debug)]
pub struct Conv1d {
    /// `[outputs, inputs / groups, kernel]`
    weight: Tensor,
    /// `[outputs]`
    bias: Option<Tensor>,
    conv: ops::Conv1d,
}

impl Conv1d {
    /// Makes a layer without bias. Weights are Gaussian with variance `2 / (outputs * kernel)` (He
    /// et al., ICCV 2015, fan-out).
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

    /// Adds a bias for each output channel, drawn evenly from `±1 / sqrt(fan-in)`, as in PyTorch.
    ///
    /// # Errors
    /// Errors of the runtime that draws the bias.
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
