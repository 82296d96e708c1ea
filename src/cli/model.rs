use clap::ValueEnum;
use remat::nn::{ResNet, Sequential, mlp, resnet};
use remat::{Error, Runtime};
use std::fmt;

/// The networks that can be trained by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub enum Model {
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

impl Model {
    /// A fresh network for images of this shape.
    pub fn build(
        self,
        runtime: &Runtime,
        [channels, height, width]: [usize; 3],
        classes: usize,
    ) -> Result<Sequential, Error> {
        let kind = match self {
            Self::Mlp => return mlp(runtime, channels * height * width, &HIDDEN, classes),
            Self::ResNet20 => ResNet::Cifar { n: 3 },
            Self::ResNet32 => ResNet::Cifar { n: 5 },
            Self::ResNet110 => ResNet::Cifar { n: 18 },
            Self::ResNet1202 => ResNet::Cifar { n: 200 },
            Self::ResNet18 => ResNet::R18,
            Self::ResNet50 => ResNet::R50,
        };
        resnet(runtime, kind, channels, [height, width], classes)
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.to_possible_value().expect("none is hidden").get_name())
    }
}
