//! Layers and networks.
//!
//! A layer holds its tensors, and computes with the methods of [`Tensor`]. A network consists of
//! named layers. One training loop fits all networks:
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
pub use dropout::Dropout;
pub use embedding::Embedding;
pub use generate::{Sampling, generate};
pub use gpt::{Gpt, LanguageModel, gpt};
pub use group_norm::GroupNorm;
pub use layer_norm::LayerNorm;
pub use linear::Linear;
pub use mlp::mlp;
pub use recurrent::{Gru, GruCell, Lstm, LstmCell, LstmState, Recurrent, RecurrentCell};
pub use residual::Residual;
pub use resnet::{ResNet, resnet};
pub use rms_norm::RmsNorm;
pub use rotary::Rotary;
pub use sequential::Sequential;
pub use transformer::TransformerBlock;

// Documented in `unstable`.
#[cfg(feature = "data")]
#[doc(hidden)]
pub use tree_lstm::{TreeLstm, TreeLstmSize};
#[doc(hidden)]
pub use {
    densenet::{DenseNet, densenet, densenet121},
    inception::inceptionv4,
    recurrent::{LstmSize, lstm},
    resnet::LARGE_IMAGE,
    unet::{UNet, Upsampling, unet},
    unrolled_gan::{GanLoss, UnrolledGan, UnrolledGanSize},
    vit::{VisionTransformer, Vit, vit},
};

use crate::autograd::Watch;
use crate::error::Error;
use crate::ops::Tensor;

/// Purpose of a forward pass: training or inference.
///
/// ```
/// use remat::nn::Dropout;
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("1MiB").cpu()?;
/// let mut dropout = Dropout::new(0.5);
/// let x = runtime.ones(&[100])?;
/// assert_eq!(dropout.forward(&x, Mode::Infer)?.to_vec::<f32>()?, [1.0; 100]);
/// assert_ne!(dropout.forward(&x, Mode::Train)?.to_vec::<f32>()?, [1.0; 100]);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Training. Batch norm uses the statistics of the batch and updates the running statistics.
    /// Dropout zeroes elements.
    Train,
    /// Inference. Batch norm uses the running statistics, dropout returns its input, and no
    /// parameter or buffer changes.
    Infer,
}

/// A tensor that a module holds between steps.
///
/// ```
/// use remat::nn::{BatchNorm2d, State, state};
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("1MiB").cpu()?;
/// let mut norm = BatchNorm2d::new(&runtime, 3)?;
/// let mut buffers = Vec::new();
/// for (name, state) in state(&mut norm) {
///     if let State::Buffer(_) = state {
///         buffers.push(name);
///     }
/// }
/// assert_eq!(buffers, ["running_mean", "running_var"]);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub enum State<'a> {
    /// Parameter, learned by gradients.
    Parameter(&'a mut Tensor),
    /// Buffer, updated by the module itself.
    Buffer(&'a mut Tensor),
}

/// A layer, or a network of layers.
///
/// ```
/// use remat::nn::{State, join};
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("1MiB").cpu()?;
/// /// Multiplies by a learned number.
/// struct Scale(Tensor);
///
/// impl Module for Scale {
///     fn forward(&mut self, x: &Tensor, _mode: Mode) -> Result<Tensor, Error> {
///         x.mul(&self.0)
///     }
///
///     fn state<'a>(&'a mut self, prefix: &str, found: &mut Vec<(String, State<'a>)>) {
///         found.push((join(prefix, "scale"), State::Parameter(&mut self.0)));
///     }
/// }
///
/// let mut scale = Scale(runtime.full(&[], 3.0)?);
/// let y = scale.forward(&runtime.ones(&[2])?, Mode::Train)?;
/// assert_eq!(y.to_vec::<f32>()?, [3.0, 3.0]);
/// # Ok::<(), Error>(())
/// ```
pub trait Module: Send {
    /// Computes the output. For training, let a [`Tape`](crate::autograd::Tape) watch the module
    /// first.
    ///
    /// # Errors
    /// Fails if the module does not accept the shape or the type of the input.
    fn forward(&mut self, x: &Tensor, mode: Mode) -> Result<Tensor, Error>;

    /// Adds all parameters and buffers to `found`, in a fixed order, with names such as
    /// `layer1.0.conv1.weight`.
    fn state<'a>(&'a mut self, prefix: &str, found: &mut Vec<(String, State<'a>)>);
}

/// All parameters and buffers of a module, with names.
///
/// ```
/// use remat::nn::{Linear, state};
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("1MiB").cpu()?;
/// let mut layer = Linear::new(&runtime, 2, 1)?;
/// let names: Vec<String> = state(&mut layer).into_iter().map(|(name, _)| name).collect();
/// assert_eq!(names, ["weight", "bias"]);
/// # Ok::<(), Error>(())
/// ```
pub fn state<'a>(module: &'a mut dyn Module) -> Vec<(String, State<'a>)> {
    let mut found = Vec::new();
    module.state("", &mut found);
    found
}

/// All parameters of a module, with names.
///
/// ```
/// use remat::nn::{mlp, parameters};
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("1MiB").cpu()?;
/// let mut network = mlp(&runtime, 4, &[8], 2)?;
/// let names: Vec<String> = parameters(&mut network).map(|(name, _)| name).collect();
/// assert_eq!(names, ["fc1.weight", "fc1.bias", "out.weight", "out.bias"]);
/// let elements = parameters(&mut network).map(|(_, tensor)| tensor.layout().elements());
/// assert_eq!(elements.sum::<usize>(), 4 * 8 + 8 + 8 * 2 + 2);
/// # Ok::<(), Error>(())
/// ```
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

/// Returns `prefix.name`, or only the name if the prefix is empty. Modules use this function to
/// name the parameters and buffers of their parts.
///
/// ```
/// assert_eq!(remat::nn::join("layer1", "weight"), "layer1.weight");
/// assert_eq!(remat::nn::join("", "weight"), "weight");
/// ```
pub fn join(prefix: &str, name: impl std::fmt::Display) -> String {
    if prefix.is_empty() { name.to_string() } else { format!("{prefix}.{name}") }
}
