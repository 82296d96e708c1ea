use super::{Mode, Module, State, join};
use crate::error::Error;
use crate::ops::{BatchNormOutput, BatchNormParameters, Tensor};
use crate::runtime::Runtime;

/// Batch normalization over the channels of images (Ioffe and Szegedy, ICML 2015).
///
/// ```
/// use remat::nn::BatchNorm2d;
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("1MiB").cpu()?;
/// let mut norm = BatchNorm2d::new(&runtime, 3)?;
/// let x = runtime.normal(&[8, 3, 4, 4], 5.0, 2.0)?;
/// let y = norm.forward(&x, Mode::Train)?;
/// assert_eq!(y.shape(), x.shape());
/// assert!(y.mean()?.item()?.abs() < 1e-3);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct BatchNorm2d {
    gamma: Tensor,
    beta: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    eps: f32,
}

impl BatchNorm2d {
    /// Weight of the newest batch when its statistics are mixed into the running statistics.
    const MOMENTUM: f32 = 0.1;
    /// Default of the small number that is added to the variance, as in PyTorch.
    pub const EPS: f32 = 1e-5;

    /// Makes a layer with scale 1 and shift 0.
    ///
    /// ```
    /// use remat::nn::BatchNorm2d;
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let mut norm = BatchNorm2d::new(&runtime, 3)?;
    /// let x = runtime.zeros(&[2, 3, 4, 4])?;
    /// assert_eq!(norm.forward(&x, Mode::Infer)?.to_vec::<f32>()?, [0.0; 96]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if a tensor would have more than `isize::MAX` bytes.
    pub fn new(runtime: &Runtime, channels: usize) -> Result<Self, Error> {
        Ok(Self {
            gamma: runtime.full(&[channels], 1.0)?,
            beta: runtime.full(&[channels], 0.0)?,
            running_mean: runtime.full(&[channels], 0.0)?,
            running_var: runtime.full(&[channels], 1.0)?,
            eps: Self::EPS,
        })
    }

    /// Sets the small number that is added to the variance.
    ///
    /// ```
    /// use remat::nn::BatchNorm2d;
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// // The running statistics begin with mean 0 and variance 1.
    /// let mut norm = BatchNorm2d::new(&runtime, 1)?.eps(3.0);
    /// let x = runtime.full(&[1, 1, 1, 2], 4.0)?;
    /// assert_eq!(norm.forward(&x, Mode::Infer)?.to_vec::<f32>()?, [2.0, 2.0]);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub const fn eps(mut self, eps: f32) -> Self {
        self.eps = eps;
        self
    }
}

impl Module for BatchNorm2d {
    fn forward(&mut self, x: &Tensor, mode: Mode) -> Result<Tensor, Error> {
        let Self { gamma, beta, running_mean, running_var, eps } = self;
        let parameters = BatchNormParameters { gamma, beta, running_mean, running_var };
        if mode == Mode::Infer {
            return x.batch_norm_infer(&parameters, *eps);
        }
        let BatchNormOutput { y, running_mean: mean, running_var: var, .. } =
            x.batch_norm(&parameters, Self::MOMENTUM, *eps)?;
        if x.defers_statistics()? {
            let running = [&self.running_mean, &self.running_var].map(Tensor::id);
            x.defer(running, Self::MOMENTUM)?;
            return Ok(y);
        }
        // `replace` makes the running statistics leaves, so a recomputation of `y` does not update
        // them a second time.
        self.running_mean.replace(&mean)?;
        self.running_var.replace(&var)?;
        Ok(y)
    }

    fn state<'a>(&'a mut self, prefix: &str, found: &mut Vec<(String, State<'a>)>) {
        found.push((join(prefix, "weight"), State::Parameter(&mut self.gamma)));
        found.push((join(prefix, "bias"), State::Parameter(&mut self.beta)));
        found.push((join(prefix, "running_mean"), State::Buffer(&mut self.running_mean)));
        found.push((join(prefix, "running_var"), State::Buffer(&mut self.running_var)));
    }
}
