//! Layers and networks.

mod batch_norm2d;
mod conv2d;
mod linear;
mod mlp;
mod residual;
mod resnet;
mod sequential;

pub use batch_norm2d::BatchNorm2d;
pub use conv2d::Conv2d;
pub use linear::Linear;
pub use mlp::mlp;
pub use residual::Residual;
pub use resnet::{ResNet, resnet};
pub use sequential::Sequential;

use crate::error::Error;
use crate::runtime::{Ops, Tensor};

/// Whether a forward pass is for training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Training: batch norm uses the statistics of the batch, and updates the running ones.
    Train,
    /// Inference: batch norm uses the running statistics, and nothing changes.
    Infer,
}

/// A tensor that a module holds between steps.
#[derive(Debug)]
pub enum State<'a> {
    /// Learned by gradients.
    Parameter(&'a mut Tensor),
    /// Kept up by the module itself.
    Buffer(&'a mut Tensor),
}

/// A layer, or a network of layers.
pub trait Module: Send {
    /// Computes the output. Pass a [`Tape`](crate::autograd::Tape) as `ops` to train, or a
    /// [`Runtime`](crate::Runtime) for inference.
    ///
    /// # Errors
    /// If the input does not fit.
    fn forward(&mut self, ops: &dyn Ops, x: &Tensor, mode: Mode) -> Result<Tensor, Error>;

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

/// `prefix.name`, or just one of them if the other is empty.
fn join(prefix: &str, name: impl std::fmt::Display) -> String {
    if prefix.is_empty() { name.to_string() } else { format!("{prefix}.{name}") }
}
