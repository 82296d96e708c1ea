use super::dense::Dense;
use super::{Dropout, Mode, Module, Rotary, State, join};
use crate::error::Error;
use crate::op::OpError;
use crate::ops::{self, Tensor};
use crate::runtime::Runtime;

/// Self-attention with several heads (Vaswani et al., NeurIPS 2017). Each row of `[n, t, width]`
/// becomes a weighted mean of the values of all rows of its sequence. With
/// [`causal`](Self::causal), a row reads only itself and earlier rows. The full matrix of attention
/// probabilities is never in memory; see [`Attention`](ops::Attention).
///
/// ```
/// use remat::nn::{Mode, Module as _, MultiheadAttention};
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("1MiB").cpu()?;
/// let mut attention = MultiheadAttention::new(&runtime, 32, 4)?.causal();
/// let x = runtime.normal(&[2, 10, 32], 0.0, 1.0)?;
/// assert_eq!(attention.forward(&x, Mode::Train)?.shape(), [2, 10, 32]);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct MultiheadAttention {
    /// Layer that projects rows to queries, keys and values.
    input: Dense,
    output: Dense,
    heads: usize,
    causal: bool,
    rotary: Option<Rotary>,
    dropout: Dropout,
    names: Names,
}

/// Names of the parameters of a [`MultiheadAttention`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Names {
    pub in_weight: &'static str,
    pub in_bias: &'static str,
    pub out: &'static str,
}

/// Names that PyTorch uses.
pub(super) const NAMES: Names =
    Names { in_weight: "in_proj_weight", in_bias: "in_proj_bias", out: "out_proj" };

impl MultiheadAttention {
    /// Makes `heads` heads of `width / heads` features each, with PyTorch's initial weights. The
    /// weights of queries, keys and values are drawn by `xavier_uniform`, and the weights of the
    /// output uniformly from `±1 / sqrt(width)`. Biases are 0.
    ///
    /// ```
    /// use remat::nn::MultiheadAttention;
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let mut attention = MultiheadAttention::new(&runtime, 8, 2)?;
    /// let x = runtime.normal(&[1, 3, 8], 0.0, 1.0)?;
    /// assert_eq!(attention.forward(&x, Mode::Infer)?.shape(), [1, 3, 8]);
    /// assert!(MultiheadAttention::new(&runtime, 8, 3).is_err());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if a tensor would have more than `isize::MAX` bytes, or `heads` does not
    /// divide `width`.
    pub fn new(runtime: &Runtime, width: usize, heads: usize) -> Result<Self, Error> {
        divides(width, heads)?;
        Ok(Self {
            input: Dense::xavier(runtime, width, 3 * width)?,
            output: Dense::even(runtime, width, width)?,
            heads,
            causal: false,
            rotary: None,
            dropout: Dropout::new(0.0),
            names: NAMES,
        })
    }

    /// Makes an attention layer with given projections and names.
    pub(super) fn of(
        [input, output]: [Dense; 2],
        heads: usize,
        names: Names,
    ) -> Result<Self, Error> {
        divides(output.outputs(), heads)?;
        let (causal, rotary, dropout) = (false, None, Dropout::new(0.0));
        Ok(Self { input, output, heads, causal, rotary, dropout, names })
    }

    /// Masks later rows: row `i` of the result depends only on the rows `0..=i` of the input.
    ///
    /// ```
    /// use remat::nn::MultiheadAttention;
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let mut attention = MultiheadAttention::new(&runtime, 8, 2)?.causal();
    /// let x = runtime.normal(&[1, 3, 8], 0.0, 1.0)?;
    /// assert_eq!(attention.forward(&x, Mode::Infer)?.shape(), [1, 3, 8]);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub const fn causal(mut self) -> Self {
        self.causal = true;
        self
    }

    /// Rotates the features of queries and keys by angles that depend on the row's position. Each
    /// head must have as many features as `rotary` was made for.
    ///
    /// ```
    /// use remat::nn::{MultiheadAttention, Rotary};
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// // Two heads of four features each.
    /// let rotary = Rotary::new(&runtime, 16, 4, 10_000.0)?;
    /// let mut attention = MultiheadAttention::new(&runtime, 8, 2)?.rotary(rotary);
    /// let x = runtime.normal(&[1, 3, 8], 0.0, 1.0)?;
    /// assert_eq!(attention.forward(&x, Mode::Infer)?.shape(), [1, 3, 8]);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn rotary(mut self, rotary: Rotary) -> Self {
        self.rotary = Some(rotary);
        self
    }

    /// Sets the probability that an element of the result is zeroed in training.
    ///
    /// ```
    /// use remat::nn::MultiheadAttention;
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let mut attention = MultiheadAttention::new(&runtime, 8, 2)?.dropout(1.0);
    /// let x = runtime.normal(&[1, 3, 8], 0.0, 1.0)?;
    /// assert_eq!(attention.forward(&x, Mode::Train)?.to_vec::<f32>()?, [0.0; 24]);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub const fn dropout(mut self, p: f32) -> Self {
        self.dropout = Dropout::new(p);
        self
    }
}

/// Fails unless each head has a whole number of features.
fn divides(width: usize, heads: usize) -> Result<(), Error> {
    if heads > 0 && width.is_multiple_of(heads) {
        return Ok(());
    }
    let message = format!("width {width} is not a multiple of {heads} heads");
    Err(OpError::new("attention", message).into())
}

impl Module for MultiheadAttention {
    /// Maps `[n, t, width]` to `[n, t, width]`.
    fn forward(&mut self, x: &Tensor, mode: Mode) -> Result<Tensor, Error> {
        let width = self.output.outputs();
        let [n, t] = match *x.shape() {
            [n, t, found] if found == width => [n, t],
            _ => {
                let message = format!("x is {}, expected [n, t, {width}]", x.layout());
                return Err(OpError::new("attention", message).into());
            }
        };
        let rows = x.contiguous()?.reshape(&[n * t, width])?;
        let part = |i: usize| -> Result<Tensor, Error> {
            let part = self.input.part(&rows, i * width..(i + 1) * width)?;
            part.reshape(&[n, t, self.heads, width / self.heads])?.permute(&[0, 2, 1, 3])
        };
        let (mut q, mut k, v) = (part(0)?, part(1)?, part(2)?);
        if let Some(rotary) = &self.rotary {
            (q, k) = (rotary.apply(&q, 0)?, rotary.apply(&k, 0)?);
        }
        let y = q.attention(&k, &v, ops::Attention { causal: self.causal, scale: None })?;
        drop((q, k, v));
        let y = y.permute(&[0, 2, 1, 3])?.contiguous()?.reshape(&[n * t, width])?;
        let y = self.output.forward(&y)?.reshape(&[n, t, width])?;
        self.dropout.forward(&y, mode)
    }

    fn state<'a>(&'a mut self, prefix: &str, found: &mut Vec<(String, State<'a>)>) {
        let Names { in_weight, in_bias, out } = self.names;
        self.input.state_as([join(prefix, in_weight), join(prefix, in_bias)], found);
        self.output.state(&join(prefix, out), found);
    }
}
