use super::attention::{self, MultiheadAttention};
use super::dense::Dense;
use super::{Dropout, LayerNorm, Mode, Module, Rotary, State, join};
use crate::error::Error;
use crate::ops::Tensor;
use crate::runtime::Runtime;

/// A block of a transformer, which maps `[n, t, width]` to `[n, t, width]`. The block computes `y =
/// x + attention(norm(x))`, and then `y + linear(gelu(linear(norm(y))))`, with `4 * width` features
/// between the two linear layers. Parameters have the names of PyTorch's
/// `TransformerEncoderLayer(norm_first=True, activation="gelu")`.
///
/// ```
/// use remat::nn::TransformerBlock;
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("1MiB").cpu()?;
/// let mut block = TransformerBlock::new(&runtime, 16, 4)?.causal().dropout(0.1);
/// let x = runtime.normal(&[2, 5, 16], 0.0, 1.0)?;
/// assert_eq!(block.forward(&x, Mode::Train)?.shape(), [2, 5, 16]);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct TransformerBlock {
    norms: [LayerNorm; 2],
    attention: MultiheadAttention,
    mlp: [Dense; 2],
    dropout: Dropout,
    style: &'static Style,
}

/// Choices that make a block equal to the block of another library: the names of the parameters,
/// and the kind of GELU.
#[derive(Debug)]
pub(super) struct Style {
    attention: &'static str,
    norms: [&'static str; 2],
    mlp: [&'static str; 2],
    /// Whether the block uses the approximation of GELU by tanh.
    tanh: bool,
}

const TORCH: Style = Style {
    attention: "self_attn",
    norms: ["norm1", "norm2"],
    mlp: ["linear1", "linear2"],
    tanh: false,
};

/// Style of GPT-2 in the transformers library.
const GPT2: Style = Style {
    attention: "attn",
    norms: ["ln_1", "ln_2"],
    mlp: ["mlp.c_fc", "mlp.c_proj"],
    tanh: true,
};

const GPT2_ATTENTION: attention::Names =
    attention::Names { in_weight: "c_attn.weight", in_bias: "c_attn.bias", out: "c_proj" };

/// Style of torchvision's vision transformer.
const VISION: Style = Style {
    attention: "self_attention",
    norms: ["ln_1", "ln_2"],
    mlp: ["mlp.0", "mlp.3"],
    tanh: false,
};

impl TransformerBlock {
    /// Makes a block of `width` features in `heads` heads, with the initial weights of PyTorch's
    /// layer.
    ///
    /// ```
    /// use remat::nn::TransformerBlock;
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// assert!(TransformerBlock::new(&runtime, 16, 4).is_ok());
    /// assert!(TransformerBlock::new(&runtime, 16, 3).is_err());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if a tensor would have more than `isize::MAX` bytes, or `heads` does not
    /// divide `width`.
    pub fn new(runtime: &Runtime, width: usize, heads: usize) -> Result<Self, Error> {
        let wide = 4 * width;
        Ok(Self {
            norms: [LayerNorm::new(runtime, width)?, LayerNorm::new(runtime, width)?],
            attention: MultiheadAttention::new(runtime, width, heads)?,
            mlp: [
                Dense::even(runtime, width, wide)?.even_bias(runtime, width)?,
                Dense::even(runtime, wide, width)?.even_bias(runtime, wide)?,
            ],
            dropout: Dropout::new(0.0),
            style: &TORCH,
        })
    }

    /// Makes one block of a GPT-2 that has `layers` blocks. The block is causal, and its weights
    /// are Gaussian with standard deviation 0.02. The last layer of the attention and the last
    /// layer of the MLP have weights with standard deviation `0.02 / sqrt(2 layers)`.
    pub(super) fn gpt2(
        runtime: &Runtime,
        width: usize,
        heads: usize,
        layers: usize,
    ) -> Result<Self, Error> {
        const STD: f32 = 0.02;
        let added = STD / (2.0 * layers.max(1) as f32).sqrt();
        let dense = |inputs, outputs, std| Dense::gaussian(runtime, inputs, outputs, std);
        let projections = [dense(width, 3 * width, STD)?, dense(width, width, added)?];
        Ok(Self {
            norms: [LayerNorm::new(runtime, width)?, LayerNorm::new(runtime, width)?],
            attention: MultiheadAttention::of(projections, heads, GPT2_ATTENTION)?.causal(),
            mlp: [dense(width, 4 * width, STD)?, dense(4 * width, width, added)?],
            dropout: Dropout::new(0.0),
            style: &GPT2,
        })
    }

    /// Makes a block of torchvision's `VisionTransformer`, except that the biases of the MLP are 0.
    pub(super) fn vision(runtime: &Runtime, width: usize, heads: usize) -> Result<Self, Error> {
        const EPS: f32 = 1e-6;
        let norm = || LayerNorm::new(runtime, width).map(|norm| norm.eps(EPS));
        Ok(Self {
            norms: [norm()?, norm()?],
            attention: MultiheadAttention::new(runtime, width, heads)?,
            mlp: [
                Dense::xavier(runtime, width, 4 * width)?,
                Dense::xavier(runtime, 4 * width, width)?,
            ],
            dropout: Dropout::new(0.0),
            style: &VISION,
        })
    }

    /// Masks later rows: row `i` of the result depends only on the rows `0..=i` of the input.
    #[must_use]
    pub fn causal(mut self) -> Self {
        self.attention = self.attention.causal();
        self
    }

    /// Rotates the features of queries and keys by angles that depend on the row's position. Each
    /// head must have as many features as `rotary` was made for.
    ///
    /// ```
    /// use remat::nn::{Rotary, TransformerBlock};
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let rotary = Rotary::new(&runtime, 32, 4, 10_000.0)?;
    /// let mut block = TransformerBlock::new(&runtime, 16, 4)?.rotary(rotary);
    /// let x = runtime.normal(&[2, 5, 16], 0.0, 1.0)?;
    /// assert_eq!(block.forward(&x, Mode::Infer)?.shape(), [2, 5, 16]);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn rotary(mut self, rotary: Rotary) -> Self {
        self.attention = self.attention.rotary(rotary);
        self
    }

    /// Sets the probability of dropout in training. Dropout applies to the results of the attention
    /// and of the MLP, before they are added to the rows.
    #[must_use]
    pub fn dropout(mut self, p: f32) -> Self {
        self.attention = self.attention.dropout(p);
        self.dropout = Dropout::new(p);
        self
    }
}

impl Module for TransformerBlock {
    /// Maps `[n, t, width]` to `[n, t, width]`.
    fn forward(&mut self, x: &Tensor, mode: Mode) -> Result<Tensor, Error> {
        let [first, second] = &mut self.norms;
        let normal = first.forward(x, mode)?;
        let x = (x + self.attention.forward(&normal, mode)?)?;
        drop(normal);
        let rows = second.forward(&x, mode)?;
        let width = self.mlp[1].outputs();
        let rows = rows.reshape(&[x.layout().elements() / width.max(1), width])?;
        let wide = self.mlp[0].forward(&rows)?;
        drop(rows);
        let wide = if self.style.tanh { wide.gelu_tanh()? } else { wide.gelu()? };
        let y = self.mlp[1].forward(&wide)?.reshape(x.shape())?;
        drop(wide);
        &x + self.dropout.forward(&y, mode)?
    }

    fn state<'a>(&'a mut self, prefix: &str, found: &mut Vec<(String, State<'a>)>) {
        let Style { attention, norms, mlp, .. } = self.style;
        let [first, second] = &mut self.norms;
        first.state(&join(prefix, norms[0]), found);
        self.attention.state(&join(prefix, attention), found);
        second.state(&join(prefix, norms[1]), found);
        for (layer, name) in self.mlp.iter_mut().zip(mlp) {
            layer.state(&join(prefix, name), found);
        }
    }
}
