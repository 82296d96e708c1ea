use super::{Dropout, LayerNorm, Mode, Module, State, TransformerBlock, join};
use crate::error::Error;
use crate::layout::DType;
use crate::op::OpError;
use crate::ops::Tensor;
use crate::runtime::Runtime;

/// Sizes of a GPT (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019).
///
/// ```
/// use remat::nn::Gpt;
///
/// let small = Gpt { layers: 4, width: 256, heads: 4, ..Gpt::gpt2() };
/// assert_eq!((small.vocabulary, small.context), (50_257, 1024));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gpt {
    /// Number of different tokens.
    pub vocabulary: usize,
    /// Largest number of tokens in a text.
    pub context: usize,
    /// Number of blocks.
    pub layers: usize,
    /// Number of features that represent a token.
    pub width: usize,
    /// Number of attention heads of each block. The number must divide the width.
    pub heads: usize,
    /// Probability that dropout zeroes an element in training. Dropout applies to the embeddings,
    /// and to each result that a block adds to the embeddings.
    pub dropout: f32,
}

impl Gpt {
    /// The smallest GPT-2, of 124 million parameters.
    ///
    /// ```
    /// assert_eq!(remat::nn::Gpt::gpt2().width, 768);
    /// ```
    #[must_use]
    pub const fn gpt2() -> Self {
        Self { vocabulary: 50_257, context: 1024, layers: 12, width: 768, heads: 12, dropout: 0.1 }
    }
}

/// A network that computes, for each token of a text, the probabilities of the next token; see
/// [`gpt`].
#[derive(Debug)]
pub struct LanguageModel {
    /// Embeddings of tokens, `[vocabulary, width]`; also the weights of the output layer.
    tokens: Tensor,
    /// Embeddings of positions, `[context, width]`.
    positions: Tensor,
    dropout: Dropout,
    blocks: Vec<TransformerBlock>,
    norm: LayerNorm,
    /// Element type in which activations are stored.
    storage: DType,
}

/// A GPT that maps texts `[n, t]` of integers to logits `[n, t, vocabulary]`. The logits at a token
/// depend only on that token and earlier tokens. Parameters have the names, shapes and initial
/// distributions of GPT-2 in the transformers library. The matrix of token embeddings, named
/// `wte.weight`, is also the weight of the output layer.
///
/// ```
/// use remat::nn::{Gpt, Mode, Module as _, gpt};
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("4MiB").cpu()?;
/// let sizes = Gpt { vocabulary: 256, context: 32, layers: 2, width: 16, heads: 2, dropout: 0.0 };
/// let mut network = gpt(&runtime, &sizes)?;
/// let text = runtime.tensor(&[1, 5], b"whale".map(i32::from).to_vec())?;
/// assert_eq!(network.forward(&text, Mode::Infer)?.shape(), [1, 5, 256]);
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// [`Error::Op`] if a tensor would have more than `isize::MAX` bytes, or the heads do not divide
/// the width.
pub fn gpt(runtime: &Runtime, of: &Gpt) -> Result<LanguageModel, Error> {
    let Gpt { vocabulary, context, layers, width, heads, dropout } = *of;
    let block = |_| Ok(TransformerBlock::gpt2(runtime, width, heads, layers)?.dropout(dropout));
    Ok(LanguageModel {
        tokens: runtime.normal(&[vocabulary, width], 0.0, 0.02)?,
        positions: runtime.normal(&[context, width], 0.0, 0.02)?,
        dropout: Dropout::new(dropout),
        blocks: (0..layers).map(block).collect::<Result<_, Error>>()?,
        norm: LayerNorm::new(runtime, width)?,
        storage: DType::F32,
    })
}

impl LanguageModel {
    /// Sets the type in which activations are stored: `f32` or `bf16`.
    ///
    /// ```
    /// use remat::nn::{Gpt, gpt};
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let of = Gpt { vocabulary: 64, context: 8, layers: 1, width: 16, heads: 2, dropout: 0.0 };
    /// let mut network = gpt(&runtime, &of)?.storage(DType::BF16);
    /// let text = runtime.tensor(&[1, 3], vec![1, 2, 3])?;
    /// assert_eq!(network.forward(&text, Mode::Infer)?.shape(), [1, 3, 64]);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub const fn storage(mut self, dtype: DType) -> Self {
        self.storage = dtype;
        self
    }

    /// Largest number of tokens in a text.
    #[must_use]
    pub fn context(&self) -> usize {
        self.positions.shape()[0]
    }

    /// Number of different tokens.
    #[must_use]
    pub fn vocabulary(&self) -> usize {
        self.tokens.shape()[0]
    }
}

impl Module for LanguageModel {
    /// Maps integers `[n, t]` to logits `[n, t, vocabulary]`.
    fn forward(&mut self, x: &Tensor, mode: Mode) -> Result<Tensor, Error> {
        let [n, t] = match *x.shape() {
            [n, t] if t <= self.context() => [n, t],
            _ => {
                let message =
                    format!("x is {}, expected [n, t] with t up to {}", x.layout(), self.context());
                return Err(OpError::new("gpt", message).into());
            }
        };
        let [vocabulary, width] = [0, 1].map(|axis| self.tokens.shape()[axis]);
        let mut y = (self.tokens.embedding(x)? + self.positions.slice(0, 0..t)?)?;
        y = self.dropout.forward(&y.cast(self.storage)?, mode)?;
        for block in &mut self.blocks {
            y = block.forward(&y, mode)?;
        }
        let rows = self.norm.forward(&y, mode)?.reshape(&[n * t, width])?;
        rows.matmul(&self.tokens.t()?)?.reshape(&[n, t, vocabulary])
    }

    fn state<'a>(&'a mut self, prefix: &str, found: &mut Vec<(String, State<'a>)>) {
        found.push((join(prefix, "wte.weight"), State::Parameter(&mut self.tokens)));
        found.push((join(prefix, "wpe.weight"), State::Parameter(&mut self.positions)));
        for (i, block) in self.blocks.iter_mut().enumerate() {
            block.state(&join(prefix, format!("h.{i}")), found);
        }
        self.norm.state(&join(prefix, "ln_f"), found);
    }
}
