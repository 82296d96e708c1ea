use super::{BatchNorm2d, Conv2d, Mode, Module, Sequential, State, join};
use crate::error::Error;
use crate::ops::Tensor;
use crate::runtime::Runtime;

/// Residual block: `y = relu(body(x) + shortcut(x))` (He et al., CVPR 2016).
#[derive(Debug)]
pub struct Residual {
    body: Sequential,
    /// Layers of the shortcut; `None` if the shortcut is the identity.
    shortcut: Option<Sequential>,
}

impl Residual {
    /// Makes a block of two 3x3 convolutions from `inputs` to `outputs` channels. The first
    /// convolution has stride `stride`.
    ///
    /// ```
    /// use remat::nn::Residual;
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("16MiB").cpu()?;
    /// let mut block = Residual::basic(&runtime, 4, 8, 2)?;
    /// let x = runtime.normal(&[2, 4, 8, 8], 0.0, 1.0)?;
    /// assert_eq!(block.forward(&x, Mode::Train)?.shape(), [2, 8, 4, 4]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if a tensor would have more than `isize::MAX` bytes.
    pub fn basic(
        runtime: &Runtime,
        inputs: usize,
        outputs: usize,
        stride: usize,
    ) -> Result<Self, Error> {
        let body = Sequential::new()
            .then("conv1", Conv2d::new(runtime, inputs, outputs, 3, stride)?)
            .then("bn1", BatchNorm2d::new(runtime, outputs)?)
            .then_fn("relu1", Tensor::relu)
            .then("conv2", Conv2d::new(runtime, outputs, outputs, 3, 1)?)
            .then("bn2", BatchNorm2d::new(runtime, outputs)?);
        Ok(Self { body, shortcut: projection(runtime, inputs, outputs, stride)? })
    }

    /// Makes a block of 1x1, 3x3 and 1x1 convolutions from `inputs` to `4 * width` channels. The
    /// second convolution has stride `stride`.
    ///
    /// ```
    /// use remat::nn::Residual;
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("16MiB").cpu()?;
    /// let mut block = Residual::bottleneck(&runtime, 8, 2, 1)?;
    /// let x = runtime.normal(&[2, 8, 4, 4], 0.0, 1.0)?;
    /// assert_eq!(block.forward(&x, Mode::Train)?.shape(), [2, 8, 4, 4]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if a tensor would have more than `isize::MAX` bytes.
    pub fn bottleneck(
        runtime: &Runtime,
        inputs: usize,
        width: usize,
        stride: usize,
    ) -> Result<Self, Error> {
        let outputs = 4 * width;
        let body = Sequential::new()
            .then("conv1", Conv2d::new(runtime, inputs, width, 1, 1)?)
            .then("bn1", BatchNorm2d::new(runtime, width)?)
            .then_fn("relu1", Tensor::relu)
            .then("conv2", Conv2d::new(runtime, width, width, 3, stride)?)
            .then("bn2", BatchNorm2d::new(runtime, width)?)
            .then_fn("relu2", Tensor::relu)
            .then("conv3", Conv2d::new(runtime, width, outputs, 1, 1)?)
            .then("bn3", BatchNorm2d::new(runtime, outputs)?);
        Ok(Self { body, shortcut: projection(runtime, inputs, outputs, stride)? })
    }
}

/// A 1x1 convolution for the shortcut; `None` if the block does not change the shape.
fn projection(
    runtime: &Runtime,
    inputs: usize,
    outputs: usize,
    stride: usize,
) -> Result<Option<Sequential>, Error> {
    if inputs == outputs && stride == 1 {
        return Ok(None);
    }
    let path = Sequential::new()
        .then("0", Conv2d::new(runtime, inputs, outputs, 1, stride)?)
        .then("1", BatchNorm2d::new(runtime, outputs)?);
    Ok(Some(path))
}

impl Module for Residual {
    fn forward(&mut self, x: &Tensor, mode: Mode) -> Result<Tensor, Error> {
        let y = self.body.forward(x, mode)?;
        let sum = match &mut self.shortcut {
            Some(shortcut) => &y + shortcut.forward(x, mode)?,
            None => &y + x,
        };
        sum?.relu()
    }

    fn state<'a>(&'a mut self, prefix: &str, found: &mut Vec<(String, State<'a>)>) {
        self.body.state(prefix, found);
        if let Some(shortcut) = &mut self.shortcut {
            shortcut.state(&join(prefix, "downsample"), found);
        }
    }
}
