use super::{Mode, Module, State, join};
use crate::error::Error;
use crate::ops::Tensor;
use crate::runtime::Runtime;

/// `y = x weight^T + bias`, for `x [n, inputs]`.
///
/// ```
/// use remat::nn::Linear;
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("1MiB").cpu()?;
/// let mut layer = Linear::new(&runtime, 4, 3)?;
/// let x = runtime.normal(&[8, 4], 0.0, 1.0)?;
/// assert_eq!(layer.forward(&x, Mode::Train)?.shape(), [8, 3]);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Linear {
    /// `[outputs, inputs]`
    weight: Tensor,
    /// `[outputs]`
    bias: Tensor,
}

impl Linear {
    /// Makes a layer with weights and biases drawn uniformly from `±1 / sqrt(inputs)`.
    ///
    /// ```
    /// use remat::nn::{Linear, parameters};
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let mut layer = Linear::new(&runtime, 4, 3)?;
    /// let (_, weight) = parameters(&mut layer).next().unwrap();
    /// assert_eq!(weight.shape(), [3, 4]);
    /// assert!(weight.to_vec::<f32>()?.iter().all(|x| (-0.5..0.5).contains(x)));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if a tensor would have more than `isize::MAX` bytes.
    pub fn new(runtime: &Runtime, inputs: usize, outputs: usize) -> Result<Self, Error> {
        let bound = 1.0 / (inputs.max(1) as f32).sqrt();
        Ok(Self {
            weight: runtime.uniform(&[outputs, inputs], -bound..bound)?,
            bias: runtime.uniform(&[outputs], -bound..bound)?,
        })
    }
}

impl Module for Linear {
    fn forward(&mut self, x: &Tensor, _mode: Mode) -> Result<Tensor, Error> {
        x.matmul(&self.weight.t()?)? + &self.bias
    }

    fn state<'a>(&'a mut self, prefix: &str, found: &mut Vec<(String, State<'a>)>) {
        found.push((join(prefix, "weight"), State::Parameter(&mut self.weight)));
        found.push((join(prefix, "bias"), State::Parameter(&mut self.bias)));
    }
}
