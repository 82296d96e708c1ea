use super::{BatchNorm2d, Conv2d, ConvTranspose2d, Mode, Module, Sequential, State, join};
use crate::error::Error;
use crate::op::OpError;
use crate::ops::{self, Pool2d, Tensor};
use crate::runtime::Runtime;

/// Sizes of a U-Net (Ronneberger et al., MICCAI 2015), a network that classifies each pixel.
///
/// ```
/// use remat::nn::{UNet, Upsampling};
///
/// let small = UNet { width: 16, ..UNet::default() };
/// assert_eq!((small.depth, small.up), (4, Upsampling::Transposed));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UNet {
    /// Number of channels at full image size: 64 in the paper. Each halving of the image doubles
    /// the number of channels.
    pub width: usize,
    /// Number of times that images are halved: 4 in the paper.
    pub depth: usize,
    /// Method to enlarge images after the deepest level.
    pub up: Upsampling,
}

/// Method to make images twice as large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upsampling {
    /// Bilinear interpolation. With this method, the deepest level has as many channels as the
    /// level above it.
    Bilinear,
    /// A transposed convolution, as in the paper.
    Transposed,
}

impl Default for UNet {
    /// Sizes of the paper. Unlike in the paper, convolutions are padded, so that images keep their
    /// size, and a batch norm follows each convolution.
    fn default() -> Self {
        Self { width: 64, depth: 4, up: Upsampling::Transposed }
    }
}

/// A U-Net that maps images `[n, channels, h, w]` to `[n, classes, h, w]`. Convolutions are padded,
/// and a batch norm follows each convolution. Parameters have the names of the usual implementation
/// in PyTorch (milesial/Pytorch-UNet). Images may be of any size that can be halved `depth` times.
///
/// ```
/// use remat::nn::{UNet, Upsampling, unet};
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("16MiB").cpu()?;
/// let small = UNet { width: 2, depth: 2, up: Upsampling::Bilinear };
/// let mut network = unet(&runtime, small, 3, 5)?;
/// let images = runtime.normal(&[1, 3, 8, 8], 0.0, 1.0)?;
/// assert_eq!(network.forward(&images, Mode::Infer)?.shape(), [1, 5, 8, 8]);
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// [`Error::Op`] if the depth or the width is 0, or a tensor would have more than `isize::MAX`
/// bytes.
pub fn unet(
    runtime: &Runtime,
    of: UNet,
    channels: usize,
    classes: usize,
) -> Result<impl Module + use<>, Error> {
    let UNet { width, depth, up } = of;
    if depth == 0 || width == 0 {
        let message = format!("depth {depth} and width {width}, expected at least 1 each");
        return Err(OpError::new("unet", message).into());
    }
    let factor = if up == Upsampling::Bilinear { 2 } else { 1 };
    let level = |i: usize| width << i;
    let mut down = Vec::new();
    for i in 1..=depth {
        let outputs = if i == depth { level(i) / factor } else { level(i) };
        down.push(double_conv(runtime, level(i - 1), outputs, outputs)?);
    }
    let mut ups = Vec::new();
    for i in (1..=depth).rev() {
        let inputs = level(i);
        let outputs = if i == 1 { width } else { inputs / 2 / factor };
        ups.push(Up::new(runtime, inputs, outputs, up)?);
    }
    // Draw the last layer's weights as PyTorch does. A scale by the fan-out would have no use,
    // because no layer follows.
    let bound = 1.0 / (width as f32).sqrt();
    let last = runtime.uniform(&[classes, width, 1, 1], -bound..bound)?;
    Ok(UnetNet {
        inc: double_conv(runtime, channels, width, width)?,
        down,
        up: ups,
        outc: Conv2d::of(last, ops::Conv2d::default()).with_bias(runtime)?,
    })
}

/// The whole network.
struct UnetNet {
    inc: Sequential,
    /// Convolutions after each halving, one module for each halving.
    down: Vec<Sequential>,
    /// Parts that go from each level to the level above, the deepest level first.
    up: Vec<Up>,
    outc: Conv2d,
}

impl Module for UnetNet {
    fn forward(&mut self, x: &Tensor, mode: Mode) -> Result<Tensor, Error> {
        let halves = 1usize.checked_shl(self.down.len() as u32).unwrap_or(usize::MAX);
        if x.rank() == 4 && x.shape()[2..].iter().any(|&side| side < halves) {
            let message = format!(
                "x is {}, expected height and width of at least {halves}, because they are halved {} times",
                x.layout(),
                self.down.len()
            );
            return Err(OpError::new("unet", message).into());
        }
        let mut y = self.inc.forward(x, mode)?;
        let mut levels = Vec::with_capacity(self.down.len());
        for down in &mut self.down {
            let half = y.max_pool2d(Pool2d { kernel: [2, 2], stride: [2, 2], padding: [0, 0] })?;
            levels.push(std::mem::replace(&mut y, down.forward(&half, mode)?));
        }
        for up in &mut self.up {
            let level = levels.pop().expect("one for each way down");
            y = up.join(&y, &level, mode)?;
        }
        self.outc.forward(&y, mode)
    }

    fn state<'a>(&'a mut self, prefix: &str, found: &mut Vec<(String, State<'a>)>) {
        self.inc.state(&join(prefix, "inc.double_conv"), found);
        for (i, down) in self.down.iter_mut().enumerate() {
            let name = format!("down{}.maxpool_conv.1.double_conv", i + 1);
            down.state(&join(prefix, name), found);
        }
        for (i, up) in self.up.iter_mut().enumerate() {
            up.state(&join(prefix, format_args!("up{}", i + 1)), found);
        }
        self.outc.state(&join(prefix, "outc.conv"), found);
    }
}

/// Part that goes from one level to the level above. The part doubles the image size, and appends
/// the activations that the level above had before the halving.
struct Up {
    /// Layer that doubles the size; `None` for bilinear interpolation.
    up: Option<ConvTranspose2d>,
    conv: Sequential,
}

impl Up {
    fn new(
        runtime: &Runtime,
        inputs: usize,
        outputs: usize,
        kind: Upsampling,
    ) -> Result<Self, Error> {
        let (up, between) = match kind {
            Upsampling::Bilinear => (None, inputs / 2),
            Upsampling::Transposed => {
                let twice = ops::ConvTranspose2d { stride: [2, 2], ..Default::default() };
                let up = ConvTranspose2d::new(runtime, inputs, inputs / 2, [2, 2], twice)?;
                (Some(up.with_bias(runtime)?), outputs)
            }
        };
        Ok(Self { up, conv: double_conv(runtime, inputs, between, outputs)? })
    }

    fn join(&mut self, x: &Tensor, level: &Tensor, mode: Mode) -> Result<Tensor, Error> {
        let mut y = match &mut self.up {
            Some(up) => up.forward(x, mode)?,
            None => {
                let [h, w] = [2, 3].map(|axis| x.shape()[axis]);
                x.upsample_bilinear([2 * h, 2 * w], true)?
            }
        };
        // If the height or width was odd before the halving, the halving dropped a row or column.
        // Add a row or column of zeros.
        for axis in [2, 3] {
            let missing = level.shape()[axis] - y.shape()[axis];
            if missing > 0 {
                y = y.pad(axis, missing / 2, missing - missing / 2)?;
            }
        }
        self.conv.forward(&Tensor::concat(&[level, &y], 1)?, mode)
    }

    fn state<'a>(&'a mut self, prefix: &str, found: &mut Vec<(String, State<'a>)>) {
        if let Some(up) = &mut self.up {
            up.state(&join(prefix, "up"), found);
        }
        self.conv.state(&join(prefix, "conv.double_conv"), found);
    }
}

/// Two 3x3 convolutions, each with batch norm and relu.
fn double_conv(
    runtime: &Runtime,
    inputs: usize,
    between: usize,
    outputs: usize,
) -> Result<Sequential, Error> {
    Ok(Sequential::new()
        .then("0", Conv2d::new(runtime, inputs, between, 3, 1)?)
        .then("1", BatchNorm2d::new(runtime, between)?)
        .then_fn("2", Tensor::relu)
        .then("3", Conv2d::new(runtime, between, outputs, 3, 1)?)
        .then("4", BatchNorm2d::new(runtime, outputs)?)
        .then_fn("5", Tensor::relu))
}
