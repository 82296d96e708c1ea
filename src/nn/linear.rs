use super::{Mode, Module, State, join};
use crate::error::Error;
use crate::ops::Tensor;
use crate::runtime::Runtime;

/// `y = x weight^T + bias`, for `x [n, inputs]`.
#[derive(Debug)]
pub struct Linear {
    /// `[outputs, inputs]`
    weight: Tensor,
    /// `[outputs]`
    bias: Tensor,
}

impl Linear {
    /// Makes a layer with weights and biases drawn evenly from `±1 / sqrt(inputs)`.
    ///
    /// # Errors
    /// [`Error::Op`] if a tensor would have more than `isize::MAX` bytes.
    pub fn new(runtime: &Runtime, inputs: usize, outputs: usize) -> Result<Self, Error> {
        let bound = 1.0 / (inputs.max(1) as f32).sqrt();
        Ok(Self {
            weight: runtime.uniform(&[outputs, inputs], -bound..bound)?,
            bias: runtime.uniform(&[outputs], -bound..bound)?,
        })
    }
}

impl Module for Linear {
    fn forward(&mut self, x: &Tensor, _mode: Mode) -> Result<Tensor, Error> {
        x.matmul(&self.weight.t()?)? + &self.bias
    }

    fn state<'a>(&'a mut self, prefix: &str, found: &mut Vec<(String, State<'a>)>) {
        found.push((join(prefix, "weight"), State::Parameter(&mut self.weight)));
        found.push((join(prefix, "bias"), State::Parameter(&mut self.bias)));
    }
}
