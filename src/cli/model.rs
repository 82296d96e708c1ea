use clap::ValueEnum;
use clap::builder::PossibleValue;
use remat::nn::{Module, ResNet, mlp, resnet};
use remat::{Error, Runtime};
use std::fmt;
use std::sync::LazyLock;

/// The networks that can be trained by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    Images(ImageModel),
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
        };
        Ok(Box::new(resnet(runtime, kind, channels, [height, width], classes)?))
    }
}

impl ValueEnum for Model {
    fn value_variants<'a>() -> &'a [Self] {
        static ALL: LazyLock<Vec<Model>> = LazyLock::new(|| {
            ImageModel::value_variants().iter().copied().map(Model::Images).collect()
        });
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Self::Images(model) => model.to_possible_value(),
        }
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.to_possible_value().expect("none is hidden").get_name())
    }
}
