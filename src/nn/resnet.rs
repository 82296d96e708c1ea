use super::{BatchNorm2d, Conv2d, Linear, Residual, Sequential};
use crate::error::Error;
use crate::ops::{Pool2d, Tensor};
use crate::runtime::Runtime;

/// Residual networks of He et al. (CVPR 2016).
///
/// ```
/// use remat::nn::{ResNet, parameters, resnet};
/// use remat::prelude::*;
///
/// // Nothing is computed.
/// let runtime = Runtime::builder().budget("1GiB").sim()?;
/// let mut network = resnet(&runtime, ResNet::R50, 3, [224, 224], 1000)?;
/// assert_eq!(parameters(&mut network).count(), 161);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResNet {
    /// `6 * n + 2` layers in three stages of 16, 32 and 64 channels, for small images.
    Cifar {
        /// Number of blocks of each stage: 3 for ResNet-20, 200 for ResNet-1202.
        n: usize,
    },
    /// ResNet-18: basic blocks, four stages of 64 to 512 channels.
    R18,
    /// ResNet-50: bottleneck blocks, four stages of 256 to 2048 channels.
    R50,
}

/// Smallest height and width, in pixels, of images for which ResNet-18 and ResNet-50 start with a
/// 7x7 convolution and a pooling. For smaller images, the networks start with a 3x3 convolution.
pub const LARGE_IMAGE: usize = 64;

/// A residual network for images `[n, channels, size, size]`.
///
/// ```
/// use remat::nn::{ResNet, resnet};
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("16MiB").cpu()?;
/// let mut network = resnet(&runtime, ResNet::Cifar { n: 1 }, 1, [8, 8], 10)?;
/// let images = runtime.normal(&[2, 1, 8, 8], 0.0, 1.0)?;
/// assert_eq!(network.forward(&images, Mode::Infer)?.shape(), [2, 10]);
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// [`Error::Op`] if a tensor would have more than `isize::MAX` bytes.
pub fn resnet(
    runtime: &Runtime,
    kind: ResNet,
    channels: usize,
    size: [usize; 2],
    classes: usize,
) -> Result<Sequential, Error> {
    let (stages, bottleneck): (Vec<(usize, usize)>, bool) = match kind {
        ResNet::Cifar { n } => (vec![(16, n), (32, n), (64, n)], false),
        ResNet::R18 => (vec![(64, 2), (128, 2), (256, 2), (512, 2)], false),
        ResNet::R50 => (vec![(64, 3), (128, 4), (256, 6), (512, 3)], true),
    };
    let width = stages[0].0;
    let large = stages.len() == 4 && size.iter().all(|&s| s >= LARGE_IMAGE);
    let (kernel, stride) = if large { (7, 2) } else { (3, 1) };
    let mut net = Sequential::new()
        .then("conv1", Conv2d::new(runtime, channels, width, kernel, stride)?)
        .then("bn1", BatchNorm2d::new(runtime, width)?)
        .then_fn("relu", Tensor::relu);
    if large {
        net = net.then_fn("pool", |x| {
            x.max_pool2d(Pool2d { kernel: [3, 3], stride: [2, 2], padding: [1, 1] })
        });
    }
    let mut inputs = width;
    for (i, (width, blocks)) in stages.into_iter().enumerate() {
        let mut stage = Sequential::new();
        for block in 0..blocks {
            let stride = if i > 0 && block == 0 { 2 } else { 1 };
            let residual = if bottleneck {
                Residual::bottleneck(runtime, inputs, width, stride)?
            } else {
                Residual::basic(runtime, inputs, width, stride)?
            };
            inputs = if bottleneck { 4 * width } else { width };
            stage = stage.then(block.to_string(), residual);
        }
        net = net.then(format!("layer{}", i + 1), stage);
    }
    Ok(net
        .then_fn("pool", Tensor::global_avg_pool)
        .then("fc", Linear::new(runtime, inputs, classes)?))
}
