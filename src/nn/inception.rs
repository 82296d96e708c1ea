use super::{BatchNorm2d, Conv2d, Linear, Mode, Module, Sequential, State, join};
use crate::error::Error;
use crate::op::OpError;
use crate::ops::{self, Pool2d, Tensor};
use crate::runtime::Runtime;

/// Smallest height and width of images for [`inceptionv4`]. For smaller images, the last layers
/// would have no pixels.
const LEAST: usize = 75;

/// Inception-v4 (Szegedy et al., AAAI 2017) for images `[n, channels, h, w]` of at least 75x75
/// pixels; the paper uses 299x299. The first convolution has `width` channels, 32 in the paper. The
/// other convolutions have the paper's numbers of channels, times `width / 32`, rounded up.
/// Parameters have the names of timm's `inception_v4`.
///
/// ```
/// use remat::nn::{inceptionv4, state};
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("16MiB").cpu()?;
/// let mut network = inceptionv4(&runtime, 1, 3, [75, 75], 10)?;
/// assert_eq!(state(&mut network)[0].0, "features.0.conv.weight");
/// assert!(inceptionv4(&runtime, 1, 3, [64, 64], 10).is_err());
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// [`Error::Op`] if the images are too small, the width is 0, or a tensor would have more than
/// `isize::MAX` bytes.
pub fn inceptionv4(
    runtime: &Runtime,
    width: usize,
    channels: usize,
    size: [usize; 2],
    classes: usize,
) -> Result<impl Module + use<>, Error> {
    if size.iter().any(|&side| side < LEAST) {
        let [h, w] = size;
        let message = format!(
            "images of {h}x{w} pixels, expected at least {LEAST}x{LEAST}: make them larger, or take another network"
        );
        return Err(OpError::new("inceptionv4", message).into());
    }
    if width == 0 {
        return Err(OpError::new("inceptionv4", "width 0, expected at least 1").into());
    }
    let net = Builder { runtime, width };
    let mut features = vec![
        net.one(channels, Conv { outputs: 32, ..Conv::STRIDED })?,
        net.conv(32, Conv { outputs: 32, kernel: [3, 3], ..Conv::PIXEL })?,
        net.conv(32, Conv { outputs: 64, ..Conv::square(3) })?,
        net.mixed_3a()?,
        net.mixed_4a()?,
        net.mixed_5a()?,
    ];
    for _ in 0..4 {
        features.push(net.inception_a()?);
    }
    features.push(net.reduction_a()?);
    for _ in 0..7 {
        features.push(net.inception_b()?);
    }
    features.push(net.reduction_b()?);
    for _ in 0..3 {
        features.push(net.inception_c()?);
    }
    let last = Linear::new(runtime, net.scaled(1536), classes)?;
    Ok(InceptionNet { features, last })
}

/// The whole network.
struct InceptionNet {
    features: Vec<Branches>,
    last: Linear,
}

impl Module for InceptionNet {
    fn forward(&mut self, x: &Tensor, mode: Mode) -> Result<Tensor, Error> {
        let mut y = x.clone();
        for block in &mut self.features {
            y = block.forward(&y, mode)?;
        }
        self.last.forward(&y.global_avg_pool()?, mode)
    }

    fn state<'a>(&'a mut self, prefix: &str, found: &mut Vec<(String, State<'a>)>) {
        for (i, block) in self.features.iter_mut().enumerate() {
            block.state(&join(prefix, format_args!("features.{i}")), found);
        }
        self.last.state(&join(prefix, "last_linear"), found);
    }
}

/// Paths that all read one input, and whose outputs are concatenated.
struct Branches(Vec<Branch>);

struct Branch {
    path: Sequential,
    /// Modules that read the path's output, and whose results are concatenated. If the list is
    /// empty, the path's output is the result.
    ends: Vec<Sequential>,
}

impl Branches {
    fn forward(&mut self, x: &Tensor, mode: Mode) -> Result<Tensor, Error> {
        let mut outputs = Vec::new();
        for Branch { path, ends } in &mut self.0 {
            let y = path.forward(x, mode)?;
            if ends.is_empty() {
                outputs.push(y);
            } else {
                for end in ends {
                    outputs.push(end.forward(&y, mode)?);
                }
            }
        }
        match &outputs[..] {
            [only] => Ok(only.clone()),
            all => Tensor::concat(&all.iter().collect::<Vec<_>>(), 1),
        }
    }

    fn state<'a>(&'a mut self, prefix: &str, found: &mut Vec<(String, State<'a>)>) {
        for Branch { path, ends } in &mut self.0 {
            path.state(prefix, found);
            for end in ends {
                end.state(prefix, found);
            }
        }
    }
}

/// Sizes of a convolution. `outputs` is the number of output channels in the paper's network, whose
/// first convolution has 32 channels.
#[derive(Clone, Copy)]
struct Conv {
    outputs: usize,
    kernel: [usize; 2],
    stride: usize,
    padding: [usize; 2],
}

impl Conv {
    /// A 1x1 convolution.
    const PIXEL: Self = Self { outputs: 0, kernel: [1, 1], stride: 1, padding: [0, 0] };
    /// A 3x3 convolution with stride 2, without padding.
    const STRIDED: Self = Self { kernel: [3, 3], stride: 2, ..Self::PIXEL };

    /// A convolution that keeps the size of images.
    const fn sized(kernel: [usize; 2]) -> Self {
        Self { kernel, padding: [kernel[0] / 2, kernel[1] / 2], ..Self::PIXEL }
    }

    const fn square(kernel: usize) -> Self {
        Self::sized([kernel, kernel])
    }

    const fn to(self, outputs: usize) -> Self {
        Self { outputs, ..self }
    }
}

const ONE: Conv = Conv::PIXEL;
const THREE: Conv = Conv::square(3);
const WIDE: Conv = Conv::sized([1, 7]);
const TALL: Conv = Conv::sized([7, 1]);

struct Builder<'a> {
    runtime: &'a Runtime,
    width: usize,
}

impl Builder<'_> {
    /// Number of channels that this network has in place of the paper's `channels`.
    const fn scaled(&self, channels: usize) -> usize {
        (channels * self.width).div_ceil(32)
    }

    /// A convolution with batch norm and relu. `inputs` is the actual number of input channels,
    /// after scaling by the width.
    fn basic(&self, inputs: usize, of: Conv) -> Result<Sequential, Error> {
        let outputs = self.scaled(of.outputs);
        let conv = ops::Conv2d::new([of.stride; 2], of.padding);
        Ok(Sequential::new()
            .then("conv", Conv2d::with(self.runtime, inputs, outputs, of.kernel, conv)?)
            .then("bn", BatchNorm2d::new(self.runtime, outputs)?.eps(1e-3))
            .then_fn("relu", Tensor::relu))
    }

    /// A block of one convolution. `channels` is the actual number of input channels, after scaling
    /// by the width.
    fn one(&self, channels: usize, of: Conv) -> Result<Branches, Error> {
        Ok(Branches(vec![Branch { path: self.basic(channels, of)?, ends: Vec::new() }]))
    }

    fn conv(&self, inputs: usize, of: Conv) -> Result<Branches, Error> {
        self.one(self.scaled(inputs), of)
    }

    /// A chain of convolutions, named `name.0`, `name.1`, ..
    fn path(&self, name: &str, mut inputs: usize, convs: &[Conv]) -> Result<Branch, Error> {
        let mut path = Sequential::new();
        for (i, &conv) in convs.iter().enumerate() {
            path = path.then(format!("{name}.{i}"), self.basic(self.scaled(inputs), conv)?);
            inputs = conv.outputs;
        }
        Ok(Branch { path, ends: Vec::new() })
    }

    /// A single convolution named `name`.
    fn single(&self, name: &str, inputs: usize, conv: Conv) -> Result<Branch, Error> {
        let path = Sequential::new().then(name, self.basic(self.scaled(inputs), conv)?);
        Ok(Branch { path, ends: Vec::new() })
    }

    /// Average pooling over 3x3 pixels, and then a convolution.
    fn pooled(&self, name: &str, inputs: usize, conv: Conv) -> Result<Branch, Error> {
        let path = Sequential::new()
            .then_fn("pool", |x| {
                x.avg_pool2d(Pool2d { kernel: [3, 3], stride: [1, 1], padding: [1, 1] })
            })
            .then(format!("{name}.1"), self.basic(self.scaled(inputs), conv)?);
        Ok(Branch { path, ends: Vec::new() })
    }

    /// Max pooling over 3x3 pixels with stride 2.
    fn largest() -> Branch {
        let path = Sequential::new().then_fn("pool", |x| {
            x.max_pool2d(Pool2d { kernel: [3, 3], stride: [2, 2], padding: [0, 0] })
        });
        Branch { path, ends: Vec::new() }
    }

    fn mixed_3a(&self) -> Result<Branches, Error> {
        Ok(Branches(vec![Self::largest(), self.single("conv", 64, Conv::STRIDED.to(96))?]))
    }

    fn mixed_4a(&self) -> Result<Branches, Error> {
        let valid = Conv { padding: [0, 0], ..THREE };
        let right = [ONE.to(64), WIDE.to(64), TALL.to(64), valid.to(96)];
        Ok(Branches(vec![
            self.path("branch0", 160, &[ONE.to(64), valid.to(96)])?,
            self.path("branch1", 160, &right)?,
        ]))
    }

    fn mixed_5a(&self) -> Result<Branches, Error> {
        Ok(Branches(vec![self.single("conv", 192, Conv::STRIDED.to(192))?, Self::largest()]))
    }

    fn inception_a(&self) -> Result<Branches, Error> {
        Ok(Branches(vec![
            self.single("branch0", 384, ONE.to(96))?,
            self.path("branch1", 384, &[ONE.to(64), THREE.to(96)])?,
            self.path("branch2", 384, &[ONE.to(64), THREE.to(96), THREE.to(96)])?,
            self.pooled("branch3", 384, ONE.to(96))?,
        ]))
    }

    fn reduction_a(&self) -> Result<Branches, Error> {
        let middle = [ONE.to(192), THREE.to(224), Conv::STRIDED.to(256)];
        Ok(Branches(vec![
            self.single("branch0", 384, Conv::STRIDED.to(384))?,
            self.path("branch1", 384, &middle)?,
            Self::largest(),
        ]))
    }

    fn inception_b(&self) -> Result<Branches, Error> {
        let long = [ONE.to(192), TALL.to(192), WIDE.to(224), TALL.to(224), WIDE.to(256)];
        Ok(Branches(vec![
            self.single("branch0", 1024, ONE.to(384))?,
            self.path("branch1", 1024, &[ONE.to(192), WIDE.to(224), TALL.to(256)])?,
            self.path("branch2", 1024, &long)?,
            self.pooled("branch3", 1024, ONE.to(128))?,
        ]))
    }

    fn reduction_b(&self) -> Result<Branches, Error> {
        let right = [ONE.to(256), WIDE.to(256), TALL.to(320), Conv::STRIDED.to(320)];
        Ok(Branches(vec![
            self.path("branch0", 1024, &[ONE.to(192), Conv::STRIDED.to(192)])?,
            self.path("branch1", 1024, &right)?,
            Self::largest(),
        ]))
    }

    fn inception_c(&self) -> Result<Branches, Error> {
        let (wide, tall) = (Conv::sized([1, 3]), Conv::sized([3, 1]));
        let named = |path: Sequential, name: &str, inputs, conv| {
            Ok::<_, Error>(path.then(name, self.basic(self.scaled(inputs), conv)?))
        };
        let end = |name: &str, inputs, conv| named(Sequential::new(), name, inputs, conv);
        let middle = named(Sequential::new(), "branch1_0", 1536, ONE.to(384))?;
        let right = named(Sequential::new(), "branch2_0", 1536, ONE.to(384))?;
        let right = named(right, "branch2_1", 384, tall.to(448))?;
        let right = named(right, "branch2_2", 448, wide.to(512))?;
        let ends_of_middle =
            vec![end("branch1_1a", 384, wide.to(256))?, end("branch1_1b", 384, tall.to(256))?];
        let ends_of_right =
            vec![end("branch2_3a", 512, wide.to(256))?, end("branch2_3b", 512, tall.to(256))?];
        Ok(Branches(vec![
            self.single("branch0", 1536, ONE.to(256))?,
            Branch { path: middle, ends: ends_of_middle },
            Branch { path: right, ends: ends_of_right },
            self.pooled("branch3", 1536, ONE.to(256))?,
        ]))
    }
}
