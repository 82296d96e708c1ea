use super::{Mode, Module, State, join};
use crate::error::Error;
use crate::ops::Tensor;
use crate::runtime::Runtime;

/// A vector for each of so many numbers.
#[derive(Debug)]
pub struct Embedding {
    /// `[count, features]`
    weight: Tensor,
}

impl Embedding {
    /// Gaussian vectors of variance 1, as PyTorch's.
    ///
    /// # Errors
    /// If a size is absurd.
    pub fn new(runtime: &Runtime, count: usize, features: usize) -> Result<Self, Error> {
        Ok(Self { weight: runtime.normal(&[count, features], 0.0, 1.0)? })
    }

    /// With these vectors, `[count, features]`.
    #[must_use]
    pub const fn of(weight: Tensor) -> Self {
        Self { weight }
    }

    /// The vectors.
    #[must_use]
    pub const fn weight(&self) -> &Tensor {
        &self.weight
    }
}

impl Module for Embedding {
    /// `[..]` integers to `[.., features]`.
    fn forward(&mut self, x: &Tensor, _mode: Mode) -> Result<Tensor, Error> {
        self.weight.embedding(x)
    }

    fn state<'a>(&'a mut self, prefix: &str, found: &mut Vec<(String, State<'a>)>) {
        found.push((join(prefix, "weight"), State::Parameter(&mut self.weight)));
    }
}
