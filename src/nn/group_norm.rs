use super::{Mode, Module, State, join};
use crate::error::Error;
use crate::ops::Tensor;
use crate::runtime::Runtime;

/// Group normalization over the channels of images (Wu and He, ECCV 2018).
///
/// ```
/// use remat::nn::GroupNorm;
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("1MiB").cpu()?;
/// let mut norm = GroupNorm::new(&runtime, 2, 4)?;
/// let x = runtime.normal(&[8, 4, 6, 6], 5.0, 2.0)?;
/// let y = norm.forward(&x, Mode::Train)?;
/// assert_eq!(y.shape(), x.shape());
/// assert!(y.mean()?.item()?.abs() < 1e-3);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct GroupNorm {
    groups: usize,
    gamma: Tensor,
    beta: Tensor,
    eps: f32,
}

impl GroupNorm {
    /// Default of the small number that is added to the variance, as in PyTorch.
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

    /// Sets the small number that is added to the variance.
    ///
    /// ```
    /// use remat::nn::GroupNorm;
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let mut norm = GroupNorm::new(&runtime, 1, 2)?.eps(0.0);
    /// let x = runtime.tensor(&[1, 2], vec![1.0, 3.0])?;
    /// assert_eq!(norm.forward(&x, Mode::Infer)?.to_vec::<f32>()?, [-1.0, 1.0]);
    /// # Ok::<(), Error>(())
    /// ```
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
