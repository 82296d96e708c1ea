use super::{Batch, Classifier, Network, Part, Task, batch_too_large};
use crate::cli::failure::Failure;
use crate::cli::model::ImageModel;
use crate::cli::sizes::SizeArgs;
use remat::data::{Augment, Dataset, Images};
use remat::nn::{Module, ResNet, densenet121, inceptionv4, mlp, resnet, vit};
use remat::{DType, Dims, Error, HostTensor, Runtime};
use std::sync::Arc;

/// Task of classifying images.
pub struct ImageTask {
    pub model: ImageModel,
    pub sizes: SizeArgs,
    pub data: Dataset,
    pub augment: Augment,
    /// Storage type of activations.
    pub storage: DType,
    /// Seed of the random changes to images.
    pub seed: u64,
}

/// Widths of the hidden layers of `mlp`.
const HIDDEN: [usize; 4] = [64; 4];

impl ImageTask {
    /// Makes a fresh network for the images.
    fn module(&self, runtime: &Runtime) -> Result<Box<dyn Module>, Error> {
        let &Images { shape, classes, .. } = &self.data.train;
        let [channels, height, width] = shape;
        let kind = match self.model {
            ImageModel::Mlp => {
                let pixels = channels * height * width;
                return Ok(Box::new(mlp(runtime, pixels, &HIDDEN, classes)?));
            }
            ImageModel::ResNet20 => ResNet::Cifar { n: 3 },
            ImageModel::ResNet32 => ResNet::Cifar { n: 5 },
            ImageModel::ResNet110 => ResNet::Cifar { n: 18 },
            ImageModel::ResNet1202 => ResNet::Cifar { n: 200 },
            ImageModel::ResNet18 => ResNet::R18,
            ImageModel::ResNet50 => ResNet::R50,
            ImageModel::DenseNet121 => {
                return Ok(Box::new(densenet121(runtime, channels, [height, width], classes)?));
            }
            ImageModel::InceptionV4 => {
                return Ok(Box::new(inceptionv4(runtime, 32, channels, [height, width], classes)?));
            }
            ImageModel::Vit => return Ok(Box::new(vit(runtime, &self.sizes.vit(shape, classes))?)),
        };
        Ok(Box::new(resnet(runtime, kind, channels, [height, width], classes)?))
    }
}

impl Task for ImageTask {
    fn example(&self) -> &'static str {
        "image"
    }

    fn examples(&self) -> usize {
        self.data.train.len()
    }

    fn tests(&self) -> usize {
        self.data.test.len()
    }

    fn remarks(&self) -> &[String] {
        self.data.train.remarks()
    }

    fn network(&self, runtime: &Runtime) -> Result<Box<dyn Network>, Error> {
        let module = self.module(runtime)?;
        Ok(Box::new(Classifier { module, storage: self.storage, inputs: "images" }))
    }

    fn batch(&self, part: &Part<'_>) -> Batch {
        let images = &self.data.train;
        let (mut pixels, labels) = images.batch(part.indices());
        if self.augment != Augment::default() {
            let shape = *pixels.shape();
            let mut values = pixels.as_f32().expect("pixels are floats").to_vec();
            let (seed, step) = (self.seed, part.step as u64);
            self.augment.apply_from(part.first(), images, &mut values, seed, step);
            pixels = HostTensor::f32(shape, values).expect("as many as before");
        }
        Batch::new((pixels, labels))
    }

    fn test_batch(&self, indices: &[usize]) -> Batch {
        Batch::new(self.data.test.batch(indices))
    }

    fn images(&self) -> Option<&Images> {
        Some(&self.data.train)
    }

    fn blank(&self, n: usize) -> Result<Batch, Failure> {
        let shape = self.data.train.shape;
        let [channels, height, width] = shape;
        // The pages of the zeros are never touched, so they take no memory.
        let zeros = |dtype, dims: Dims| {
            HostTensor::zeros(dtype, dims).map(Arc::new).map_err(|_| {
                let elements = shape.iter().fold(n as u128, |n, &m| n * m as u128);
                let what = format!("{n} images of {channels}x{height}x{width}");
                batch_too_large(&what, elements.saturating_mul(4))
            })
        };
        Ok(Batch {
            inputs: zeros(DType::F32, [n, channels, height, width].into())?,
            labels: zeros(DType::I32, [n].into())?,
            tree: None,
        })
    }
}
