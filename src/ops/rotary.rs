//! Rotary position embedding for attention.

use super::Tensor;
use crate::error::Error;
use crate::op::OpError;

impl Tensor {
    /// Applies rotary position embedding (Su et al., 2021) to the rows of `[.., t, d]`, such as the
    /// queries and keys of attention heads. Element `i` of the first half of a row and element `i`
    /// of the second half form a pair, which is rotated by an angle. `cos` and `sin`, of shape `[t,
    /// d / 2]`, are the cosines and sines of the angles. See [`Rotary`](crate::nn::Rotary).
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[1, 2], vec![1.0, 2.0])?;
    /// // A quarter turn.
    /// let (cos, sin) = (runtime.zeros(&[1, 1])?, runtime.ones(&[1, 1])?);
    /// assert_eq!(x.rotary(&cos, &sin)?.to_vec::<f32>()?, [-2.0, 1.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if this tensor has fewer than two dimensions, or an odd number of elements in
    /// a row; or if `cos` or `sin` do not broadcast to half a row.
    pub fn rotary(&self, cos: &Self, sin: &Self) -> Result<Self, Error> {
        let (axis, d) = match *self.shape() {
            [.., _, d] if d % 2 == 0 => (self.rank() - 1, d),
            _ => {
                let message = format!("x is {}, expected [.., t, d] with even d", self.layout());
                return Err(OpError::new("rotary", message).into());
            }
        };
        let [a, b] = [self.slice(axis, 0..d / 2)?, self.slice(axis, d / 2..d)?];
        let first = a.mul(cos)?.sub(&b.mul(sin)?)?;
        let second = b.mul(cos)?.add(&a.mul(sin)?)?;
        Self::concat(&[&first, &second], axis)
    }
}
