use super::{Linear, Sequential};
use crate::error::Error;
use crate::ops::Tensor;
use crate::runtime::Runtime;

/// Fully connected layers of the given widths with relu between, for inputs of any shape `[n, ..]`.
///
/// # Errors
/// If a size is absurd.
pub fn mlp(
    runtime: &Runtime,
    inputs: usize,
    hidden: &[usize],
    classes: usize,
) -> Result<Sequential, Error> {
    let mut net = Sequential::new().then_fn("flatten", Tensor::flatten);
    let mut width = inputs;
    for (i, &next) in hidden.iter().enumerate() {
        net = net
            .then(format!("fc{}", i + 1), Linear::new(runtime, width, next)?)
            .then_fn(format!("relu{}", i + 1), Tensor::relu);
        width = next;
    }
    Ok(net.then("out", Linear::new(runtime, width, classes)?))
}
