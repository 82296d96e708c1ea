use crate::error::Error;
use crate::ops::Tensor;
use crate::runtime::Runtime;

/// Rotary positions (Su et al., 2021) for attention heads: the cosine and the sine of an angle for
/// each position and pair of features.
///
/// ```
/// use remat::nn::Rotary;
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("1MiB").cpu()?;
/// let rotary = Rotary::new(&runtime, 16, 4, 10_000.0)?;
/// let queries = runtime.normal(&[1, 2, 8, 4], 0.0, 1.0)?;
/// assert_eq!(rotary.apply(&queries, 0)?.shape(), [1, 2, 8, 4]);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Rotary {
    /// Cosines of the angles, `[positions, features / 2]`. The sines have the shape of the cosines.
    cos: Tensor,
    sin: Tensor,
}

impl Rotary {
    /// Makes tables for `positions` positions, and for attention heads of `features` features. At
    /// position `p`, pair `i` is rotated by `p * base^(-2 i / features)` radians; `base` is 10000
    /// in the paper.
    ///
    /// # Errors
    /// [`Error::Op`] if a tensor would have more than `isize::MAX` bytes.
    pub fn new(
        runtime: &Runtime,
        positions: usize,
        features: usize,
        base: f32,
    ) -> Result<Self, Error> {
        let pairs = features / 2;
        let angle = |i: usize| {
            let speed = f64::from(base).powf(-2.0 * (i % pairs) as f64 / features as f64);
            (i / pairs) as f64 * speed
        };
        let table = |f: fn(f64) -> f64| {
            let elements = (0..positions * pairs).map(|i| f(angle(i)) as f32).collect();
            runtime.tensor::<f32>(&[positions, pairs], elements)
        };
        Ok(Self { cos: table(f64::cos)?, sin: table(f64::sin)? })
    }

    /// Rotates the features of `x [.., t, features]`, at positions `from..from + t`.
    ///
    /// ```
    /// use remat::nn::Rotary;
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let rotary = Rotary::new(&runtime, 16, 2, 10_000.0)?;
    /// let x = runtime.tensor(&[1, 2], vec![3.0, 4.0])?;
    /// // Nothing is turned at position 0.
    /// assert_eq!(rotary.apply(&x, 0)?.to_vec::<f32>()?, [3.0, 4.0]);
    /// assert!(rotary.apply(&x, 16).is_err());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if `x` does not have the number of features that the tables were made for, or the
    /// tables have too few positions.
    pub fn apply(&self, x: &Tensor, from: usize) -> Result<Tensor, Error> {
        let t = x.rank().checked_sub(2).map_or(0, |axis| x.shape()[axis]);
        let part = |table: &Tensor| table.slice(0, from..from.saturating_add(t));
        x.rotary(&part(&self.cos)?, &part(&self.sin)?)
    }
}
