//! Layers and networks.
//!
//! A layer holds its tensors, and computes with their methods. A network is made of layers with
//! names. The training loop is the same for all of them:
//!
//! ```
//! use remat::nn::mlp;
//! use remat::optim::Optimizer;
//! use remat::prelude::*;
//!
//! let runtime = Runtime::builder().budget("1MiB").seed(1).cpu()?;
//! let mut network = mlp(&runtime, 4, &[16], 3)?;
//! let mut sgd = Optimizer::sgd(0.1, 0.9, 0.0);
//! let x = runtime.normal(&[8, 4], 0.0, 1.0)?;
//! let labels = runtime.tensor(&[8], vec![0, 1, 2, 0, 1, 2, 0, 1])?;
//! let mut losses = Vec::new();
//! for _ in 0..20 {
//!     let tape = Tape::new(&runtime);
//!     tape.watch(&mut network);
//!     let loss = network.forward(&x, Mode::Train)?.cross_entropy(&labels)?;
//!     sgd.minimize(tape, &loss, &mut network)?;
//!     runtime.step()?;
//!     losses.push(loss.item()?);
//! }
//! assert!(losses[19] < losses[0]);
//! # Ok::<(), Error>(())
//! ```

mod attention;
mod batch_norm2d;
mod conv1d;
mod conv2d;
mod conv_transpose2d;
mod dense;
mod densenet;
mod dropout;
mod embedding;
mod generate;
mod gpt;
mod group_norm;
mod inception;
pub mod init;
mod layer_norm;
mod linear;
mod mlp;
mod recurrent;
mod residual;
mod resnet;
mod rms_norm;
mod rotary;
mod sequential;
#[cfg(test)]
mod tests;
mod transformer;
#[cfg(feature = "data")]
mod tree_lstm;
mod unet;
mod unrolled_gan;
mod vit;

pub use attention::MultiheadAttention;
pub use batch_norm2d::BatchNorm2d;
pub use conv_transpose2d::ConvTranspose2d;
pub use conv1d::Conv1d;
pub use conv2d::Conv2d;
pub use densenet::{DenseNet, densenet, densenet121};
pub use dropout::Dropout;
pub use embedding::Embedding;
pub use generate::{Sampling, generate};
pub use gpt::{Gpt, LanguageModel, gpt};
pub use group_norm::GroupNorm;
pub use inception::inceptionv4;
pub use layer_norm::LayerNorm;
pub use linear::Linear;
pub use mlp::mlp;
pub use recurrent::{
    Gru, GruCell, Lstm, LstmCell, LstmSize, LstmState, Recurrent, RecurrentCell, lstm,
};
pub use residual::Residual;
pub use resnet::{LARGE_IMAGE, ResNet, resnet};
pub use rms_norm::RmsNorm;
pub use rotary::Rotary;
pub use sequential::Sequential;
pub use transformer::TransformerBlock;
#[cfg(feature = "data")]
pub use tree_lstm::{TreeLstm, TreeLstmSize};
pub use unet::{UNet, Upsampling, unet};
pub use unrolled_gan::{GanLoss, UnrolledGan, UnrolledGanSize};
pub use vit::{VisionTransformer, Vit, vit};

use crate::autograd::Watch;
use crate::error::Error;
use crate::ops::Tensor;

/// Purpose of a forward pass: training or inference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Training: batch norm uses the statistics of the batch and updates the running statistics;
    /// dropout zeroes elements.
    Train,
    /// Inference: batch norm uses the running statistics, dropout is the identity, and no state
    /// changes.
    Infer,
}

/// A tensor that a module holds between steps.
#[derive(Debug)]
pub enum State<'a> {
    /// Parameter, learned by gradients.
    Parameter(&'a mut Tensor),
    /// Buffer, updated by the module itself.
    Buffer(&'a mut Tensor),
}

/// A layer, or a network of layers.
pub trait Module: Send {
    /// Computes the output. For training, let a [`Tape`](crate::autograd::Tape) watch the module
    /// first.
    ///
    /// # Errors
    /// If the shape or type of the input does not fit.
    fn forward(&mut self, x: &Tensor, mode: Mode) -> Result<Tensor, Error>;

    /// Adds all state to `found` in a fixed order, with names such as `layer1.0.conv1.weight`.
    fn state<'a>(&'a mut self, prefix: &str, found: &mut Vec<(String, State<'a>)>);
}

/// All state of a module, with names.
pub fn state<'a>(module: &'a mut dyn Module) -> Vec<(String, State<'a>)> {
    let mut found = Vec::new();
    module.state("", &mut found);
    found
}

/// All parameters of a module, with names.
pub fn parameters(module: &mut dyn Module) -> impl Iterator<Item = (String, &mut Tensor)> {
    state(module).into_iter().filter_map(|(name, state)| match state {
        State::Parameter(tensor) => Some((name, tensor)),
        State::Buffer(_) => None,
    })
}

/// Watches all parameters of the module.
impl<M: Module + ?Sized> Watch for M {
    fn each(&mut self, watch: &mut dyn FnMut(&mut Tensor)) {
        let mut found = Vec::new();
        self.state("", &mut found);
        for (_, state) in found {
            if let State::Parameter(tensor) = state {
                watch(tensor);
            }
        }
    }
}

/// `prefix.name`, or just the name if the prefix is empty. Modules name the state of their parts
/// like this.
///
/// ```
/// assert_eq!(remat::nn::join("layer1", "weight"), "layer1.weight");
/// assert_eq!(remat::nn::join("", "weight"), "weight");
/// ```
pub fn join(prefix: &str, name: impl std::fmt::Display) -> String {
    if prefix.is_empty() { name.to_string() } else { format!("{prefix}.{name}") }
}
