use super::conv2d::{add_bias, weight_and_bias};
use super::init::{self, Fan};
use super::{Mode, Module, State};
use crate::error::Error;
use crate::ops::{self, Tensor};
use crate::runtime::Runtime;

/// A transposed convolution, which enlarges images `[n, inputs, h, w]`; see
/// [`Tensor::conv_transpose2d`].
///
/// ```
/// use remat::nn::ConvTranspose2d;
/// use remat::ops;
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("16MiB").cpu()?;
/// let twice = ops::ConvTranspose2d { stride: [2, 2], ..Default::default() };
/// let mut conv = ConvTranspose2d::new(&runtime, 2, 3, [2, 2], twice)?.with_bias(&runtime)?;
/// let x = runtime.normal(&[1, 2, 4, 4], 0.0, 1.0)?;
/// assert_eq!(conv.forward(&x, Mode::Train)?.shape(), [1, 3, 8, 8]);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct ConvTranspose2d {
    /// `[inputs, outputs / groups, height, width]`
    weight: Tensor,
    /// `[outputs]`
    bias: Option<Tensor>,
    conv: ops::ConvTranspose2d,
    outputs: usize,
}

impl ConvTranspose2d {
    /// Makes a layer with a kernel `[height, width]`, and no bias. Weights are Gaussian with
    /// variance `2 * stride / (inputs / groups * kernel)`, where `stride` and `kernel` are products
    /// over both dimensions. Weights of this variance preserve the variance of activations, because
    /// each output is a sum over `kernel / stride` pixels (He et al., ICCV 2015).
    ///
    /// # Errors
    /// [`Error::Op`] if a tensor would have more than `isize::MAX` bytes.
    pub fn new(
        runtime: &Runtime,
        inputs: usize,
        outputs: usize,
        [height, width]: [usize; 2],
        conv: ops::ConvTranspose2d,
    ) -> Result<Self, Error> {
        let groups = conv.groups.max(1);
        let steps = (conv.stride[0] * conv.stride[1]) as f32;
        let std = (2.0 * steps / (inputs / groups * height * width).max(1) as f32).sqrt();
        let shape = [inputs, outputs / groups, height, width];
        Ok(Self { weight: runtime.normal(&shape, 0.0, std)?, bias: None, conv, outputs })
    }

    /// Adds a bias for each output channel, drawn uniformly from
    /// `±1 / sqrt(outputs / groups * height * width)`, as in PyTorch.
    ///
    /// # Errors
    /// Fails if the runtime cannot draw the bias.
    pub fn with_bias(mut self, runtime: &Runtime) -> Result<Self, Error> {
        self.bias = Some(init::bias_of(runtime, &self.weight, self.outputs, Fan::In)?);
        Ok(self)
    }
}

impl Module for ConvTranspose2d {
    fn forward(&mut self, x: &Tensor, _mode: Mode) -> Result<Tensor, Error> {
        add_bias(x.conv_transpose2d(&self.weight, self.conv)?, self.bias.as_ref())
    }

    fn state<'a>(&'a mut self, prefix: &str, found: &mut Vec<(String, State<'a>)>) {
        weight_and_bias(&mut self.weight, &mut self.bias, prefix, found);
    }
}
