use crate::autograd::Gradients;
use crate::error::Error;
use crate::nn::{Module, parameters};
use crate::ops::Tensor;
use crate::runtime::Runtime;

/// Scales down the gradients of a module if the norm of all gradients together is above `max_norm`.
/// Returns the norm before scaling.
///
/// The function works like PyTorch's `clip_grad_norm_`. All gradients are multiplied by one factor,
/// `max_norm / (norm + 1e-6)` or 1. The norm is computed on the device, and the call does not wait
/// for it. Gradients are replaced one by one. Gradients of tensors outside the module do not
/// change.
///
/// ```
/// use remat::nn::Linear;
/// use remat::optim::clip_grad_norm;
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("64KiB").cpu()?;
/// let mut layer = Linear::new(&runtime, 2, 1)?;
/// let x = runtime.full(&[1, 2], 100.0)?;
/// let tape = Tape::new(&runtime);
/// tape.watch(&mut layer);
/// let mut gradients = tape.backward(&layer.forward(&x, Mode::Train)?.sum()?)?;
/// let norm = clip_grad_norm(&runtime, &mut layer, &mut gradients, 1.0)?;
/// assert_eq!(norm.item()?, 20_001f32.sqrt());
/// let norm = clip_grad_norm(&runtime, &mut layer, &mut gradients, 1.0)?;
/// assert!((norm.item()? - 1.0).abs() < 1e-5);
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// Fails if no parameter has a gradient.
pub fn clip_grad_norm(
    runtime: &Runtime,
    module: &mut dyn Module,
    gradients: &mut Gradients,
    max_norm: f32,
) -> Result<Tensor, Error> {
    // The order of the module is fixed, so that the sum has the same bits in every run.
    let all: Vec<&Tensor> = parameters(module).map(|(_, parameter)| &*parameter).collect();
    let found: Vec<&Tensor> = all.iter().filter_map(|parameter| gradients.get(parameter)).collect();
    let norm = Tensor::norm_of(&found)?;
    drop(found);
    let factor = norm.clip_factor(max_norm)?;
    for parameter in all {
        if let Some(gradient) = gradients.take(parameter) {
            let clipped = gradient.mul(&factor)?;
            runtime.commit(&clipped)?;
            gradients.set(parameter, clipped);
        }
    }
    Ok(norm)
}
