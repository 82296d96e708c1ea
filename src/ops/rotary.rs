//! Rotary positions.

use super::Tensor;
use crate::error::Error;
use crate::op::OpError;

impl Tensor {
    /// Rotary positions (Su et al., 2021) of `[.., t, d]`, such as queries and keys of attention heads: element `i` of the
    /// first half of a row and element `i` of the second are turned by an angle, of which `cos` and `sin` `[t, d / 2]` hold
    /// the cosine and the sine. See [`Rotary`](crate::nn::Rotary).
    ///
    /// # Errors
    /// If it has fewer than two dimensions, or an odd number of elements a row; or if `cos` or `sin` do not broadcast to half
    /// of it.
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
