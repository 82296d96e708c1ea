//! Linear layers for transformers, which compute all output features or a range of them.

use super::{State, init, join};
use crate::error::Error;
use crate::ops::Tensor;
use crate::runtime::Runtime;
use std::ops::Range;

/// `y = x weight + bias`, for `x [n, inputs]`.
#[derive(Debug)]
pub(super) struct Dense {
    weight: Tensor,
    /// `[outputs]`
    bias: Tensor,
    /// Whether the weight is stored as `[outputs, inputs]`, as in PyTorch's linear layers. If not,
    /// the weight is stored as `[inputs, outputs]`, as in GPT-2.
    is_turned: bool,
}

impl Dense {
    /// Makes a layer with weights `[outputs, inputs]` drawn by `xavier_uniform`, and biases of 0.
    pub fn xavier(runtime: &Runtime, inputs: usize, outputs: usize) -> Result<Self, Error> {
        let weight = init::xavier_uniform(runtime, &[outputs, inputs], 1.0)?;
        Ok(Self { weight, bias: runtime.zeros(&[outputs])?, is_turned: true })
    }

    /// Makes a layer with weights `[outputs, inputs]` drawn uniformly from `±1 / sqrt(inputs)`, and
    /// biases of 0.
    pub fn even(runtime: &Runtime, inputs: usize, outputs: usize) -> Result<Self, Error> {
        let bound = 1.0 / (inputs.max(1) as f32).sqrt();
        let weight = runtime.uniform(&[outputs, inputs], -bound..bound)?;
        Ok(Self { weight, bias: runtime.zeros(&[outputs])?, is_turned: true })
    }

    /// Makes a layer with Gaussian weights `[inputs, outputs]`, and biases of 0.
    pub fn gaussian(
        runtime: &Runtime,
        inputs: usize,
        outputs: usize,
        std: f32,
    ) -> Result<Self, Error> {
        let weight = runtime.normal(&[inputs, outputs], 0.0, std)?;
        Ok(Self { weight, bias: runtime.zeros(&[outputs])?, is_turned: false })
    }

    /// Makes a layer with Gaussian weights `[outputs, inputs]`, and biases of 0.
    pub fn turned_gaussian(
        runtime: &Runtime,
        inputs: usize,
        outputs: usize,
        std: f32,
    ) -> Result<Self, Error> {
        let weight = runtime.normal(&[outputs, inputs], 0.0, std)?;
        Ok(Self { weight, bias: runtime.zeros(&[outputs])?, is_turned: true })
    }

    /// Redraws the biases uniformly from `±1 / sqrt(inputs)`, like PyTorch's linear layers.
    pub fn even_bias(mut self, runtime: &Runtime, inputs: usize) -> Result<Self, Error> {
        let bound = 1.0 / (inputs.max(1) as f32).sqrt();
        self.bias = runtime.uniform(&[self.outputs()], -bound..bound)?;
        Ok(self)
    }

    pub fn outputs(&self) -> usize {
        self.bias.shape()[0]
    }

    pub fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
        self.product(x, &self.weight)? + &self.bias
    }

    /// Computes the output features in the range `outputs`. The method slices the weight, not the
    /// result: the gradient of a slice is as large as the sliced tensor, and the weight is smaller.
    pub fn part(&self, x: &Tensor, outputs: Range<usize>) -> Result<Tensor, Error> {
        let weight = self.weight.slice(usize::from(!self.is_turned), outputs.clone())?;
        self.product(x, &weight)? + self.bias.slice(0, outputs)?
    }

    fn product(&self, x: &Tensor, weight: &Tensor) -> Result<Tensor, Error> {
        if self.is_turned { x.matmul(&weight.t()?) } else { x.matmul(weight) }
    }

    pub fn state<'a>(&'a mut self, prefix: &str, found: &mut Vec<(String, State<'a>)>) {
        self.state_as([join(prefix, "weight"), join(prefix, "bias")], found);
    }

    /// Adds the weight and the bias to `found`, under the two `names`.
    pub fn state_as<'a>(&'a mut self, names: [String; 2], found: &mut Vec<(String, State<'a>)>) {
        let [weight, bias] = names;
        found.push((weight, State::Parameter(&mut self.weight)));
        found.push((bias, State::Parameter(&mut self.bias)));
    }
}
