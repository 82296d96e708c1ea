use super::{Linear, Sequential};
use crate::error::Error;
use crate::ops::Tensor;
use crate::runtime::Runtime;

/// Fully connected layers of the given widths with relu between them, for inputs of any shape
/// `[n, ..]`.
///
/// ```
/// use remat::nn::mlp;
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("1MiB").cpu()?;
/// let mut network = mlp(&runtime, 64, &[32, 16], 10)?;
/// let images = runtime.normal(&[5, 1, 8, 8], 0.0, 1.0)?;
/// assert_eq!(network.forward(&images, Mode::Infer)?.shape(), [5, 10]);
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// [`Error::Op`] if a tensor would have more than `isize::MAX` bytes.
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
