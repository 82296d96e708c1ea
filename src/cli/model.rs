use clap::ValueEnum;
use clap::builder::PossibleValue;
use remat::nn::{Module, ResNet, densenet121, inceptionv4, mlp, resnet};
use remat::{Error, Runtime};
use std::fmt;
use std::sync::LazyLock;

/// The networks that can be trained by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    Images(ImageModel),
    Own(OwnModel),
}

/// Those that have a task of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub enum OwnModel {
    /// Takes noise out of images, at several sizes
    UNet,
    /// A different tree at every step, with --data trees
    TreeLstm,
    /// A generator that learns through steps of its adversary, with --data ring
    #[value(name = "unrolled-gan")]
    UnrolledGan,
}

/// Those that tell classes of images apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub enum ImageModel {
    /// Fully connected, for quick tries
    Mlp,
    /// 3 stages of 3 blocks, for small images
    ResNet20,
    /// 3 stages of 5 blocks
    ResNet32,
    /// 3 stages of 18 blocks
    ResNet110,
    /// 3 stages of 200 blocks: many small tensors
    ResNet1202,
    /// 4 stages, up to 512 channels
    ResNet18,
    /// 4 stages of bottlenecks, up to 2048 channels
    ResNet50,
    /// 4 blocks, each layer of which reads all before it
    DenseNet121,
    /// Branches of many shapes, for images of 75 pixels and more
    InceptionV4,
}

/// Widths of the hidden layers of `mlp`.
const HIDDEN: [usize; 4] = [64; 4];

impl ImageModel {
    /// A fresh network for images of this shape.
    pub fn build(
        self,
        runtime: &Runtime,
        [channels, height, width]: [usize; 3],
        classes: usize,
    ) -> Result<Box<dyn Module>, Error> {
        let kind = match self {
            Self::Mlp => {
                let pixels = channels * height * width;
                return Ok(Box::new(mlp(runtime, pixels, &HIDDEN, classes)?));
            }
            Self::ResNet20 => ResNet::Cifar { n: 3 },
            Self::ResNet32 => ResNet::Cifar { n: 5 },
            Self::ResNet110 => ResNet::Cifar { n: 18 },
            Self::ResNet1202 => ResNet::Cifar { n: 200 },
            Self::ResNet18 => ResNet::R18,
            Self::ResNet50 => ResNet::R50,
            Self::DenseNet121 => {
                return Ok(Box::new(densenet121(runtime, channels, [height, width], classes)?));
            }
            Self::InceptionV4 => {
                return Ok(Box::new(inceptionv4(runtime, 32, channels, [height, width], classes)?));
            }
        };
        Ok(Box::new(resnet(runtime, kind, channels, [height, width], classes)?))
    }
}

impl ValueEnum for Model {
    fn value_variants<'a>() -> &'a [Self] {
        static ALL: LazyLock<Vec<Model>> = LazyLock::new(|| {
            let images = ImageModel::value_variants().iter().copied().map(Model::Images);
            images.chain(OwnModel::value_variants().iter().copied().map(Model::Own)).collect()
        });
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Self::Images(model) => model.to_possible_value(),
            Self::Own(model) => model.to_possible_value(),
        }
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.to_possible_value().expect("none is hidden").get_name())
    }
}
