use super::{Mode, Module, State, join};
use crate::error::Error;
use crate::ops::Tensor;
use crate::runtime::Runtime;

/// Layer normalization along the last dimension (Ba, Kiros and Hinton, 2016).
#[derive(Debug)]
pub struct LayerNorm {
    gamma: Tensor,
    beta: Tensor,
    eps: f32,
}

impl LayerNorm {
    /// Added to the variance, as PyTorch does by default.
    pub const EPS: f32 = 1e-5;

    /// Scale 1, shift 0, of rows of so many elements.
    ///
    /// # Errors
    /// If a size is absurd.
    pub fn new(runtime: &Runtime, features: usize) -> Result<Self, Error> {
        Ok(Self {
            gamma: runtime.ones(&[features])?,
            beta: runtime.zeros(&[features])?,
            eps: Self::EPS,
        })
    }

    /// With another number added to the variance.
    #[must_use]
    pub fn eps(mut self, eps: f32) -> Self {
        self.eps = eps;
        self
    }
}

impl Module for LayerNorm {
    fn forward(&mut self, x: &Tensor, _mode: Mode) -> Result<Tensor, Error> {
        x.layer_norm(&self.gamma, &self.beta, self.eps)
    }

    fn state<'a>(&'a mut self, prefix: &str, found: &mut Vec<(String, State<'a>)>) {
        found.push((join(prefix, "weight"), State::Parameter(&mut self.gamma)));
        found.push((join(prefix, "bias"), State::Parameter(&mut self.beta)));
    }
}
