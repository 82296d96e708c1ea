//! Burn's `Learner`, with its metrics and data loaders, on plain Burn and under a budget.
//!
//! ```sh
//! cargo run --release --features learner --example learner -- --budget 80%
//! ```

mod side_by_side;

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataloader::{DataLoader, DataLoaderBuilder};
use burn::data::dataset::InMemDataset;
use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{LayerNorm, LayerNormConfig, Linear, LinearConfig, Relu};
use burn::optim::AdamConfig;
use burn::optim::lr_scheduler::constant::ConstantLr;
use burn::tensor::{Device, Int, Tensor, TensorData};
use burn::train::metric::{AccuracyMetric, LossMetric};
use burn::train::{
    ClassificationOutput, InferenceStep, Learner, SupervisedTraining, TrainOutput, TrainStep,
};
use clap::Parser;
use remat_burn::remat::data::{Dataset, Images};
use side_by_side::{Failure, Options, bytes_of};
use std::sync::Arc;

/// Burn's Learner, with its metrics and data loaders, on plain Burn and under a budget
#[derive(Parser)]
#[command(name = "learner")]
struct Args {
    #[command(flatten)]
    options: Options,
    /// Number of passes over all images
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    epochs: u32,
}

#[derive(Module, Debug)]
struct Mlp {
    layers: Vec<Linear>,
    norms: Vec<LayerNorm>,
    last: Linear,
    relu: Relu,
}

impl Mlp {
    fn new(device: &Device) -> Self {
        Self {
            layers: (0..6)
                .map(|i| LinearConfig::new(if i == 0 { 64 } else { 128 }, 128).init(device))
                .collect(),
            norms: (0..6).map(|_| LayerNormConfig::new(128).init(device)).collect(),
            last: LinearConfig::new(128, 10).init(device),
            relu: Relu::new(),
        }
    }

    fn forward(&self, Batch { images, labels }: Batch) -> ClassificationOutput {
        let mut x = images;
        for (layer, norm) in self.layers.iter().zip(&self.norms) {
            x = self.relu.forward(norm.forward(layer.forward(x)));
        }
        let x = self.last.forward(x);
        let loss =
            CrossEntropyLossConfig::new().init(&x.device()).forward(x.clone(), labels.clone());
        ClassificationOutput::new(loss, x, labels)
    }
}

impl TrainStep for Mlp {
    type Input = Batch;
    type Output = ClassificationOutput;

    fn step(&self, batch: Batch) -> TrainOutput<ClassificationOutput> {
        let output = self.forward(batch);
        TrainOutput::new(self, output.loss.backward(), output)
    }
}

impl InferenceStep for Mlp {
    type Input = Batch;
    type Output = ClassificationOutput;

    fn step(&self, batch: Batch) -> ClassificationOutput {
        self.forward(batch)
    }
}

#[derive(Clone, Debug)]
struct Batch {
    images: Tensor<2>,
    labels: Tensor<1, Int>,
}

/// Pixels and digit of an image.
type Digit = (Vec<f32>, i32);

struct Digits;

impl Batcher<Digit, Batch> for Digits {
    fn batch(&self, digits: Vec<Digit>, device: &Device) -> Batch {
        let rows = digits.len();
        let (pixels, labels): (Vec<_>, Vec<_>) = digits.into_iter().unzip();
        Batch {
            images: Tensor::from_data(TensorData::new(pixels.concat(), [rows, 64]), device),
            labels: Tensor::from_data(TensorData::new(labels, [rows]), device),
        }
    }
}

fn loader(images: &Images) -> Arc<dyn DataLoader<Batch>> {
    let (pixels, labels) = images.batch(&(0..images.len()).collect::<Vec<_>>());
    let pixels = pixels.as_f32().expect("pixels are floats").chunks(64).map(<[f32]>::to_vec);
    let labels = labels.as_i32().expect("labels are integers").iter().copied();
    let digits = pixels.zip(labels).collect();
    DataLoaderBuilder::new(Digits).batch_size(256).shuffle(7).build(InMemDataset::new(digits))
}

/// Trains on the model's device, and returns the bytes of all parameters.
fn train(model: Mlp, epochs: u32, checkpointing: bool) -> Result<Vec<u8>, Failure> {
    let Dataset { train, test } = Dataset::digits();
    let logs = std::env::temp_dir().join(format!("remat-burn-learner-{}", std::process::id()));
    let learner = Learner::new(model, AdamConfig::new().init(), ConstantLr::new(1e-3));
    let mut training = SupervisedTraining::new(&logs, loader(&train), loader(&test))
        .metrics((LossMetric::new(), AccuracyMetric::new()))
        .num_epochs(epochs as usize)
        .summary();
    if checkpointing {
        training = training.gradient_checkpointing();
    }
    let result = training.launch(learner);
    let error = result.error.map(|error| error.to_string().into());
    let parameters = bytes_of(&result.model);
    drop(result.renderer);
    std::fs::remove_dir_all(&logs)?;
    error.map_or(Ok(parameters), Err)
}

fn main() -> Result<(), Failure> {
    let Args { options, epochs } = Args::parse();
    let flex = Device::flex();
    flex.seed(1);
    let flex = flex.autodiff();
    // Both training runs begin with the same parameters.
    let model = Mlp::new(&flex);
    let checkpointing = options.checkpointing;
    println!("plain Burn");
    let plain = train(model.clone().fork(&flex), epochs, checkpointing)?;

    println!("under a budget");
    let guard = options.serve(|guard| {
        train(model.clone().fork(&guard.autodiff()), 1, checkpointing).map(|_| ())
    })?;
    let ours = train(model.clone().fork(&guard.autodiff()), epochs, checkpointing)?;
    guard.finish_recording()?;
    println!("{}", guard.summary()?);
    if ours != plain {
        return Err("the parameters are not those of plain Burn".into());
    }
    println!("parameters     the same bits as by plain Burn");
    Ok(())
}
