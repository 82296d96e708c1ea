use super::resnet::LARGE_IMAGE;
use super::{BatchNorm2d, Conv2d, Linear, Mode, Module, Sequential, State};
use crate::error::Error;
use crate::ops::{self, Pool2d, Tensor};
use crate::runtime::Runtime;

/// A densely connected network (Huang et al., CVPR 2017), with bottlenecks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DenseNet {
    /// Number of channels that each layer adds.
    pub growth: usize,
    /// Number of layers of each of the four blocks.
    pub blocks: [usize; 4],
    /// Number of channels before the first block.
    pub width: usize,
}

impl DenseNet {
    /// DenseNet-121.
    pub const D121: Self = Self { growth: 32, blocks: [6, 12, 24, 16], width: 64 };
}

/// [`DenseNet::D121`] for images `[n, channels, size, size]`; see [`densenet`].
///
/// ```
/// use remat::nn::{densenet121, parameters};
/// use remat::prelude::*;
///
/// // Nothing is computed.
/// let runtime = Runtime::builder().budget("1GiB").sim()?;
/// let mut network = densenet121(&runtime, 3, [224, 224], 1000)?;
/// assert_eq!(parameters(&mut network).count(), 364);
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// [`Error::Op`] if a tensor would have more than `isize::MAX` bytes.
pub fn densenet121(
    runtime: &Runtime,
    channels: usize,
    size: [usize; 2],
    classes: usize,
) -> Result<Sequential, Error> {
    densenet(runtime, DenseNet::D121, channels, size, classes)
}

/// A densely connected network for images `[n, channels, size, size]`, with torchvision's names of
/// parameters. If the images have at least 64x64 pixels, the network starts like torchvision's,
/// with a 7x7 convolution and a pooling. For smaller images, the network starts with a 3x3
/// convolution that keeps their size.
///
/// ```
/// use remat::nn::{DenseNet, densenet};
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("16MiB").cpu()?;
/// let small = DenseNet { growth: 4, blocks: [1, 1, 1, 1], width: 8 };
/// let mut network = densenet(&runtime, small, 1, [8, 8], 10)?;
/// let images = runtime.normal(&[2, 1, 8, 8], 0.0, 1.0)?;
/// assert_eq!(network.forward(&images, Mode::Infer)?.shape(), [2, 10]);
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// [`Error::Op`] if a tensor would have more than `isize::MAX` bytes.
pub fn densenet(
    runtime: &Runtime,
    of: DenseNet,
    channels: usize,
    size: [usize; 2],
    classes: usize,
) -> Result<Sequential, Error> {
    let large = size.iter().all(|&s| s >= LARGE_IMAGE);
    let (kernel, stride) = if large { (7, 2) } else { (3, 1) };
    let mut features = Sequential::new()
        .then("conv0", Conv2d::new(runtime, channels, of.width, kernel, stride)?)
        .then("norm0", BatchNorm2d::new(runtime, of.width)?)
        .then_fn("relu0", Tensor::relu);
    if large {
        features = features.then_fn("pool0", |x| {
            x.max_pool2d(Pool2d { kernel: [3, 3], stride: [2, 2], padding: [1, 1] })
        });
    }
    let mut width = of.width;
    for (i, layers) in of.blocks.into_iter().enumerate() {
        let mut block = Sequential::new();
        for layer in 1..=layers {
            let added = DenseLayer::new(runtime, width, of.growth)?;
            block = block.then(format!("denselayer{layer}"), added);
            width += of.growth;
        }
        features = features.then(format!("denseblock{}", i + 1), block);
        if i + 1 < of.blocks.len() {
            features = features.then(format!("transition{}", i + 1), transition(runtime, width)?);
            width /= 2;
        }
    }
    let features = features.then("norm5", BatchNorm2d::new(runtime, width)?);
    Ok(Sequential::new()
        .then("features", features)
        .then_fn("relu", Tensor::relu)
        .then_fn("pool", Tensor::global_avg_pool)
        .then("classifier", Linear::new(runtime, width, classes)?))
}

/// Transition between blocks, which halves the number of channels, the height and the width.
fn transition(runtime: &Runtime, width: usize) -> Result<Sequential, Error> {
    Ok(Sequential::new()
        .then("norm", BatchNorm2d::new(runtime, width)?)
        .then_fn("relu", Tensor::relu)
        .then("conv", Conv2d::new(runtime, width, width / 2, 1, 1)?)
        .then_fn("pool", |x| {
            // A height or width of one pixel is not halved.
            let kernel = [2, 3].map(|axis| x.shape()[axis].min(2));
            x.avg_pool2d(Pool2d { kernel, stride: kernel, padding: [0, 0] })
        }))
}

/// A layer that adds channels to its input:
/// `y = concat(x, conv2(relu(norm2(conv1(relu(norm1(x)))))))`.
#[derive(Debug)]
struct DenseLayer {
    path: Sequential,
}

impl DenseLayer {
    /// Number of channels of the bottleneck, divided by the number of channels that the layer adds.
    const BOTTLENECK: usize = 4;

    fn new(runtime: &Runtime, width: usize, growth: usize) -> Result<Self, Error> {
        let between = Self::BOTTLENECK * growth;
        let path = Sequential::new()
            .then("norm1", BatchNorm2d::new(runtime, width)?)
            .then_fn("relu1", Tensor::relu)
            .then("conv1", Conv2d::with(runtime, width, between, [1, 1], ops::Conv2d::default())?)
            .then("norm2", BatchNorm2d::new(runtime, between)?)
            .then_fn("relu2", Tensor::relu)
            .then("conv2", Conv2d::new(runtime, between, growth, 3, 1)?);
        Ok(Self { path })
    }
}

impl Module for DenseLayer {
    fn forward(&mut self, x: &Tensor, mode: Mode) -> Result<Tensor, Error> {
        let added = self.path.forward(x, mode)?;
        Tensor::concat(&[x, &added], 1)
    }

    fn state<'a>(&'a mut self, prefix: &str, found: &mut Vec<(String, State<'a>)>) {
        self.path.state(prefix, found);
    }
}
