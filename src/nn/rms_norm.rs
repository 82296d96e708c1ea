use super::{Mode, Module, State, join};
use crate::error::Error;
use crate::ops::Tensor;
use crate::runtime::Runtime;

/// RMS normalization along the last dimension (Zhang and Sennrich, 2019).
///
/// ```
/// use remat::nn::RmsNorm;
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("1MiB").cpu()?;
/// let mut norm = RmsNorm::new(&runtime, 2)?.eps(0.0);
/// let x = runtime.tensor(&[1, 2], vec![2.0, -2.0])?;
/// assert_eq!(norm.forward(&x, Mode::Train)?.to_vec::<f32>()?, [1.0, -1.0]);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct RmsNorm {
    gamma: Tensor,
    eps: f32,
}

impl RmsNorm {
    /// Default of the small number that is added to the mean of squares, as in PyTorch.
    pub const EPS: f32 = f32::EPSILON;

    /// Makes a layer with scale 1, for rows of `features` elements.
    ///
    /// # Errors
    /// [`Error::Op`] if a tensor would have more than `isize::MAX` bytes.
    pub fn new(runtime: &Runtime, features: usize) -> Result<Self, Error> {
        Ok(Self { gamma: runtime.ones(&[features])?, eps: Self::EPS })
    }

    /// Sets the small number that is added to the mean of squares.
    #[must_use]
    pub fn eps(mut self, eps: f32) -> Self {
        self.eps = eps;
        self
    }
}

impl Module for RmsNorm {
    fn forward(&mut self, x: &Tensor, _mode: Mode) -> Result<Tensor, Error> {
        x.rms_norm(&self.gamma, self.eps)
    }

    fn state<'a>(&'a mut self, prefix: &str, found: &mut Vec<(String, State<'a>)>) {
        found.push((join(prefix, "weight"), State::Parameter(&mut self.gamma)));
    }
}
