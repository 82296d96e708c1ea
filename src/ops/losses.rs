//! Losses and gradient clipping, composed of other ops.

use super::Tensor;
use crate::error::Error;

impl Tensor {
    /// Mean of the squared differences to `target`, as a scalar.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[2], vec![1.0, 2.0])?;
    /// let target = runtime.tensor(&[2], vec![3.0, 2.0])?;
    /// assert_eq!(x.mse_loss(&target)?.item()?, 2.0);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if a tensor does not hold floats, or the shapes do not broadcast.
    pub fn mse_loss(&self, target: &Self) -> Result<Self, Error> {
        self.sub(target)?.square()?.mean()
    }

    /// Mean binary cross entropy of the probabilities in this tensor and targets from 0 to 1, as a
    /// scalar: `-(t ln p + (1 - t) ln(1 - p))`. Logarithms are at least -100, as in PyTorch. If the
    /// network computes logits, use
    /// [`binary_cross_entropy_with_logits`](Self::binary_cross_entropy_with_logits), which is more
    /// exact.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let p = runtime.full(&[2], 0.5)?;
    /// let target = runtime.tensor(&[2], vec![0.0, 1.0])?;
    /// let loss = p.binary_cross_entropy(&target)?.item()?;
    /// assert!((loss - 2f32.ln()).abs() < 1e-6);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if a tensor does not hold floats, or the shapes do not broadcast.
    pub fn binary_cross_entropy(&self, target: &Self) -> Result<Self, Error> {
        self.binary_cross_entropies(target)?.mean()
    }

    /// Mean binary cross entropy of the logits in this tensor and targets from 0 to 1, as a scalar,
    /// without overflow: `(1 - t) x + ln(1 + e^-x)`.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let logits = runtime.zeros(&[2])?;
    /// let target = runtime.tensor(&[2], vec![0.0, 1.0])?;
    /// let loss = logits.binary_cross_entropy_with_logits(&target)?.item()?;
    /// assert!((loss - 2f32.ln()).abs() < 1e-6);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if a tensor does not hold floats, or the shapes do not broadcast.
    pub fn binary_cross_entropy_with_logits(&self, target: &Self) -> Result<Self, Error> {
        let linear = target.affine(-1.0, 1.0)?.mul(self)?;
        linear.add(&self.neg()?.softplus()?)?.mean()
    }

    /// Scales the tensors so that the norm of all their elements together is at most `max_norm`,
    /// like PyTorch's `clip_grad_norm_`. Returns the scaled tensors, and the norm before scaling.
    /// All tensors are multiplied by one factor: the smaller of `max_norm / (norm + 1e-6)` and 1.
    /// The device computes the factor, so the host does not wait.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("64KiB").cpu()?;
    /// let [a, b] = [runtime.full(&[2], 3.0)?, runtime.full(&[2], 4.0)?];
    /// let (clipped, norm) = Tensor::clip_by_norm(&[&a, &b], 1.0)?;
    /// assert!((norm.item()? - 50f32.sqrt()).abs() < 1e-5);
    /// assert!((Tensor::norm_of(&[&clipped[0], &clipped[1]])?.item()? - 1.0).abs() < 1e-5);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if there are no tensors, or a tensor does not hold floats.
    pub fn clip_by_norm(tensors: &[&Self], max_norm: f32) -> Result<(Vec<Self>, Self), Error> {
        let norm = Self::norm_of(tensors)?;
        let factor = norm.clip_factor(max_norm)?;
        let clipped = tensors.iter().map(|x| x.mul(&factor)).collect::<Result<_, _>>()?;
        Ok((clipped, norm))
    }

    /// Factor that scales tensors to a norm of at most `max_norm`. `self` is a scalar, the norm
    /// before scaling.
    pub(crate) fn clip_factor(&self, max_norm: f32) -> Result<Self, Error> {
        let factor = self.affine(1.0, 1e-6)?.recip()?.affine(max_norm, 0.0)?;
        factor.clamp(f32::NEG_INFINITY, 1.0)
    }
}
