use super::Lstm;
use crate::error::Error;
use crate::layout::DType;
use crate::nn::{Embedding, Linear, Mode, Module, State, join};
use crate::ops::Tensor;
use crate::runtime::Runtime;

/// Sizes of a language model made by [`lstm`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LstmSize {
    /// Number of different tokens: 256 for bytes.
    pub vocabulary: usize,
    /// Number of features that represent a token.
    pub width: usize,
    /// Number of units of each layer.
    pub hidden: usize,
    /// Number of layers.
    pub layers: usize,
    /// Element type in which activations are stored: `f32` or `bf16`.
    pub storage: DType,
}

/// A language model that maps tokens `[n, length]` to logits `[n, length, vocabulary]` of the next
/// token. Sequences may have any length. Parameters have the names of PyTorch's example
/// `word_language_model`.
///
/// ```
/// use remat::nn::{LstmSize, lstm};
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("1MiB").cpu()?;
/// let storage = DType::F32;
/// let size = LstmSize { vocabulary: 256, width: 8, hidden: 16, layers: 2, storage };
/// let mut network = lstm(&runtime, size)?;
/// let text = runtime.tensor(&[1, 5], b"whale".map(i32::from).to_vec())?;
/// assert_eq!(network.forward(&text, Mode::Infer)?.shape(), [1, 5, 256]);
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// [`Error::Op`] if a tensor would have more than `isize::MAX` bytes.
pub fn lstm(runtime: &Runtime, size: LstmSize) -> Result<impl Module + use<>, Error> {
    let LstmSize { vocabulary, width, hidden, layers, storage } = size;
    Ok(Model {
        encoder: Embedding::new(runtime, vocabulary, width)?,
        rnn: Lstm::new(runtime, width, hidden, layers)?,
        decoder: Linear::new(runtime, if layers == 0 { width } else { hidden }, vocabulary)?,
        vocabulary,
        storage,
    })
}

struct Model {
    encoder: Embedding,
    rnn: Lstm,
    decoder: Linear,
    vocabulary: usize,
    storage: DType,
}

impl Module for Model {
    fn forward(&mut self, x: &Tensor, mode: Mode) -> Result<Tensor, Error> {
        let embedded = self.encoder.forward(x, mode)?.cast(self.storage)?;
        let y = self.rnn.forward(&embedded, mode)?;
        let [n, length, features] = [0, 1, 2].map(|axis| y.shape()[axis]);
        let rows = y.reshape(&[n * length, features])?;
        self.decoder.forward(&rows, mode)?.reshape(&[n, length, self.vocabulary])
    }

    fn state<'a>(&'a mut self, prefix: &str, found: &mut Vec<(String, State<'a>)>) {
        self.encoder.state(&join(prefix, "encoder"), found);
        self.rnn.state(&join(prefix, "rnn"), found);
        self.decoder.state(&join(prefix, "decoder"), found);
    }
}
