use super::{Mode, Module, State, join};
use crate::error::Error;
use crate::ops::Tensor;
use crate::runtime::Runtime;

/// Group normalization over the channels of images (Wu and He, ECCV 2018).
#[derive(Debug)]
pub struct GroupNorm {
    groups: usize,
    gamma: Tensor,
    beta: Tensor,
    eps: f32,
}

impl GroupNorm {
    /// Default for the number added to the variance, as in PyTorch.
    pub const EPS: f32 = 1e-5;

    /// Makes a layer with scale 1 and shift 0, for `groups` groups of channels.
    ///
    /// # Errors
    /// [`Error::Op`] if a tensor would have more than `isize::MAX` bytes.
    pub fn new(runtime: &Runtime, groups: usize, channels: usize) -> Result<Self, Error> {
        Ok(Self {
            groups,
            gamma: runtime.ones(&[channels])?,
            beta: runtime.zeros(&[channels])?,
            eps: Self::EPS,
        })
    }

    /// Sets the number added to the variance.
    #[must_use]
    pub fn eps(mut self, eps: f32) -> Self {
        self.eps = eps;
        self
    }
}

impl Module for GroupNorm {
    fn forward(&mut self, x: &Tensor, _mode: Mode) -> Result<Tensor, Error> {
        x.group_norm(self.groups, &self.gamma, &self.beta, self.eps)
    }

    fn state<'a>(&'a mut self, prefix: &str, found: &mut Vec<(String, State<'a>)>) {
        found.push((join(prefix, "weight"), State::Parameter(&mut self.gamma)));
        found.push((join(prefix, "bias"), State::Parameter(&mut self.beta)));
    }
}
