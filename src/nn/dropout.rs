use super::{Mode, Module, State};
use crate::error::Error;
use crate::ops::Tensor;

/// Dropout. In training, the layer zeroes each element with a given probability, and scales the
/// remaining elements up. In inference, the layer returns its input. The runtime's seed decides
/// which elements are zeroed. A recomputed dropout zeroes the same elements as in its first run.
///
/// ```
/// use remat::nn::Dropout;
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("1MiB").cpu()?;
/// let x = runtime.ones(&[100])?;
/// let y = Dropout::new(0.5).forward(&x, Mode::Train)?.to_vec::<f32>()?;
/// assert!(y.iter().all(|&y| y == 0.0 || y == 2.0));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Dropout {
    p: f32,
}

impl Dropout {
    /// Makes a layer that zeroes an element with probability `p`. If `p` is not between 0 and 1,
    /// the forward pass in training returns an error.
    ///
    /// ```
    /// use remat::nn::Dropout;
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.ones(&[4])?;
    /// assert_eq!(Dropout::new(1.0).forward(&x, Mode::Train)?.to_vec::<f32>()?, [0.0; 4]);
    /// assert!(Dropout::new(1.5).forward(&x, Mode::Train).is_err());
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub const fn new(p: f32) -> Self {
        Self { p }
    }
}

impl Module for Dropout {
    fn forward(&mut self, x: &Tensor, mode: Mode) -> Result<Tensor, Error> {
        match mode {
            Mode::Train if self.p != 0.0 => x.dropout(self.p),
            _ => Ok(x.clone()),
        }
    }

    fn state<'a>(&'a mut self, _prefix: &str, _found: &mut Vec<(String, State<'a>)>) {}
}
