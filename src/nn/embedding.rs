use super::{Mode, Module, State, join};
use crate::error::Error;
use crate::ops::Tensor;
use crate::runtime::Runtime;

/// A table with a learned vector for each integer below a limit.
#[derive(Debug)]
pub struct Embedding {
    /// `[count, features]`
    weight: Tensor,
}

impl Embedding {
    /// Makes a table of `count` Gaussian vectors with variance 1, as in PyTorch.
    ///
    /// # Errors
    /// [`Error::Op`] if a tensor would have more than `isize::MAX` bytes.
    pub fn new(runtime: &Runtime, count: usize, features: usize) -> Result<Self, Error> {
        Ok(Self { weight: runtime.normal(&[count, features], 0.0, 1.0)? })
    }

    /// Makes a layer with these vectors, `[count, features]`.
    #[must_use]
    pub const fn of(weight: Tensor) -> Self {
        Self { weight }
    }

    /// Vectors of the table, `[count, features]`.
    #[must_use]
    pub const fn weight(&self) -> &Tensor {
        &self.weight
    }
}

impl Module for Embedding {
    /// Maps integers `[..]` to vectors `[.., features]`.
    fn forward(&mut self, x: &Tensor, _mode: Mode) -> Result<Tensor, Error> {
        self.weight.embedding(x)
    }

    fn state<'a>(&'a mut self, prefix: &str, found: &mut Vec<(String, State<'a>)>) {
        found.push((join(prefix, "weight"), State::Parameter(&mut self.weight)));
    }
}
