use super::{Mode, Module, State, join};
use crate::error::Error;
use crate::ops::Tensor;
use crate::runtime::Runtime;

/// Layer normalization along the last dimension (Ba, Kiros and Hinton, 2016).
///
/// ```
/// use remat::nn::LayerNorm;
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("1MiB").cpu()?;
/// let mut norm = LayerNorm::new(&runtime, 2)?.eps(0.0);
/// let x = runtime.tensor(&[2, 2], vec![1.0, 3.0, 5.0, 1.0])?;
/// assert_eq!(norm.forward(&x, Mode::Train)?.to_vec::<f32>()?, [-1.0, 1.0, 1.0, -1.0]);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct LayerNorm {
    gamma: Tensor,
    beta: Tensor,
    eps: f32,
}

impl LayerNorm {
    /// Default of the small number that is added to the variance, as in PyTorch.
    pub const EPS: f32 = 1e-5;

    /// Makes a layer with scale 1 and shift 0, for rows of `features` elements.
    ///
    /// ```
    /// use remat::nn::{LayerNorm, parameters};
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let mut norm = LayerNorm::new(&runtime, 8)?;
    /// let names: Vec<String> = parameters(&mut norm).map(|(name, _)| name).collect();
    /// assert_eq!(names, ["weight", "bias"]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if a tensor would have more than `isize::MAX` bytes.
    pub fn new(runtime: &Runtime, features: usize) -> Result<Self, Error> {
        Ok(Self {
            gamma: runtime.ones(&[features])?,
            beta: runtime.zeros(&[features])?,
            eps: Self::EPS,
        })
    }

    /// Sets the small number that is added to the variance.
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
