use super::{Mode, Module, State, join};
use crate::error::Error;
use crate::ops::Tensor;
use crate::runtime::Runtime;

/// A table with one learned vector for each integer below `count`.
///
/// ```
/// use remat::nn::Embedding;
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("1MiB").cpu()?;
/// let mut words = Embedding::new(&runtime, 1000, 16)?;
/// let text = runtime.tensor(&[2, 3], vec![7, 1, 9, 0, 0, 42])?;
/// assert_eq!(words.forward(&text, Mode::Train)?.shape(), [2, 3, 16]);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Embedding {
    /// `[count, features]`
    weight: Tensor,
}

impl Embedding {
    /// Makes a table of `count` Gaussian vectors with variance 1, as in PyTorch.
    ///
    /// ```
    /// use remat::nn::Embedding;
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// assert_eq!(Embedding::new(&runtime, 10, 4)?.weight().shape(), [10, 4]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if a tensor would have more than `isize::MAX` bytes.
    pub fn new(runtime: &Runtime, count: usize, features: usize) -> Result<Self, Error> {
        Ok(Self { weight: runtime.normal(&[count, features], 0.0, 1.0)? })
    }

    /// Makes a layer from given vectors, `[count, features]`.
    ///
    /// ```
    /// use remat::nn::Embedding;
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let rows = runtime.tensor(&[2, 2], vec![1.0, 2.0, 3.0, 4.0])?;
    /// let mut table = Embedding::of(rows);
    /// let last = runtime.tensor(&[1], vec![1])?;
    /// assert_eq!(table.forward(&last, Mode::Infer)?.to_vec::<f32>()?, [3.0, 4.0]);
    /// # Ok::<(), Error>(())
    /// ```
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
