//! Trains a convolutional network on handwritten digits, with plain Burn and under a budget.
//!
//! ```sh
//! cargo run --release --example digits -- --budget 50%
//! ```

mod side_by_side;

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig, PaddingConfig2d, Relu};
use burn::tensor::{Device, Int, Tensor, TensorData};
use clap::Parser;
use remat_burn::remat::data::{Batches, Dataset, Images};
use side_by_side::{Failure, Options, Task};

/// A convolutional network learns handwritten digits, by plain Burn and under a budget
#[derive(Parser)]
#[command(name = "digits")]
struct Args {
    #[command(flatten)]
    options: Options,
    /// Number of steps
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
    /// Number of images in each step
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
}

fn main() -> Result<(), Failure> {
    let Args { options, steps, batch } = Args::parse();
    let Dataset { train, test } = Dataset::digits();
    let mut order = Batches::new(train.len(), batch as usize, 0);
    let batches = (0..steps).map(|_| order.next_batch().to_vec()).collect();
    side_by_side::run(&Digits { train, test, batches }, &options)
}

struct Digits {
    train: Images,
    test: Images,
    /// Indices of the images of each step.
    batches: Vec<Vec<usize>>,
}

#[derive(Module, Debug)]
struct Cnn {
    blocks: Vec<Block>,
    pool: MaxPool2d,
    last: Linear,
}

#[derive(Module, Debug)]
struct Block {
    conv: Conv2d,
    norm: BatchNorm,
    relu: Relu,
}

impl Block {
    fn new(from: usize, to: usize, device: &Device) -> Self {
        let conv = Conv2dConfig::new([from, to], [3, 3])
            .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
            .init(device);
        Self { conv, norm: BatchNormConfig::new(to).init(device), relu: Relu::new() }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        self.relu.forward(self.norm.forward(self.conv.forward(x)))
    }
}

impl Cnn {
    /// Maps images of 8 x 8 pixels to ten numbers each.
    fn forward(&self, mut x: Tensor<4>) -> Tensor<2> {
        for (i, block) in self.blocks.iter().enumerate() {
            x = block.forward(x);
            if i % 2 == 1 {
                x = self.pool.forward(x);
            }
        }
        self.last.forward(x.flatten(1, 3))
    }
}

/// Images and labels on a device.
fn batch(images: &Images, which: &[usize], device: &Device) -> (Tensor<4>, Tensor<1, Int>) {
    let (pixels, labels) = images.batch(which);
    let pixels = pixels.as_f32().expect("pixels are floats").to_vec();
    let labels = labels.as_i32().expect("labels are integers").to_vec();
    let [channels, height, width] = images.shape;
    let pixels = TensorData::new(pixels, [which.len(), channels, height, width]);
    let labels = TensorData::new(labels, [which.len()]);
    (Tensor::from_data(pixels, device), Tensor::from_data(labels, device))
}

impl Task for Digits {
    type Model = Cnn;

    fn steps(&self) -> usize {
        self.batches.len()
    }

    fn is_random(&self) -> bool {
        false
    }

    fn model(&self, device: &Device) -> Cnn {
        let widths = [(1, 16), (16, 16), (16, 32), (32, 32)];
        Cnn {
            blocks: widths.map(|(from, to)| Block::new(from, to, device)).into(),
            pool: MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init(),
            last: LinearConfig::new(32 * 2 * 2, 10).init(device),
        }
    }

    fn loss(&self, model: &Cnn, step: usize, device: &Device) -> Tensor<1> {
        let (images, labels) = batch(&self.train, &self.batches[step], device);
        CrossEntropyLossConfig::new().init(device).forward(model.forward(images), labels)
    }

    fn learned(&self, model: Cnn, device: &Device) -> Result<String, Failure> {
        let all: Vec<usize> = (0..self.test.len()).collect();
        let device = device.clone().inner();
        let model = model.valid();
        let mut right = 0;
        for some in all.chunks(self.batches[0].len()) {
            let (images, labels) = batch(&self.test, some, &device);
            let digits = model.forward(images).argmax(1).flatten::<1>(0, 1);
            right += digits.equal(labels).int().sum().try_into_scalar::<i32>()?;
        }
        let share = 100.0 * f64::from(right) / all.len() as f64;
        Ok(format!("{share:.1} % of {} other images are recognized", all.len()))
    }
}
