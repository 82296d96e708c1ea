use super::{Batch, Draw, Network, Part, Score, Task, batch_too_large, gaussians};
use crate::cli::failure::Failure;
use remat::autograd::Tape;
use remat::data::{Dataset, Images};
use remat::nn::{Mode, Module, UNet, Upsampling, unet};
use remat::{DType, Error, HostTensor, Runtime, Tensor};
use std::sync::Arc;

/// Task of removing noise. A U-Net learns to output the clean image for a noisy image. The classes
/// of the images are not used.
pub struct DenoiseTask {
    pub data: Dataset,
    /// Storage type of activations.
    pub storage: DType,
    /// Seed of the noise.
    pub seed: u64,
}

/// Standard deviation of the noise. The standard deviation of the pixels is about 1.
const NOISE: f32 = 0.5;
/// Channels of the network at full size.
const WIDTH: usize = 32;
/// Largest number of halvings of an image.
const DEPTH: u32 = 4;

impl DenoiseTask {
    /// Adds noise to images. `first` is the position of the first image in the step or test that
    /// `draw` names.
    fn noisy(&self, images: &Images, indices: &[usize], draw: Draw, first: usize) -> Batch {
        let (clean, _) = images.batch(indices);
        let values = clean.as_f32().expect("pixels are floats");
        let start = first * images.shape.iter().product::<usize>();
        let noise = gaussians(self.seed, draw, start..start + values.len());
        let noisy = values.iter().zip(noise).map(|(x, noise)| x + NOISE * noise).collect();
        let noisy = HostTensor::f32(*clean.shape(), noisy).expect("as many as before");
        Batch::new((noisy, clean))
    }
}

impl Task for DenoiseTask {
    fn example(&self) -> &'static str {
        "image"
    }

    fn examples(&self) -> usize {
        self.data.train.len()
    }

    fn tests(&self) -> usize {
        self.data.test.len()
    }

    fn network(&self, runtime: &Runtime) -> Result<Box<dyn Network>, Error> {
        let [channels, height, width] = self.data.train.shape;
        // After all halvings, the smaller side has at least two pixels, unless it had fewer than
        // four pixels before.
        let halves = height.min(width).max(1).ilog2().saturating_sub(1).clamp(1, DEPTH);
        let of = UNet { width: WIDTH, depth: halves as usize, up: Upsampling::Transposed };
        let module = unet(runtime, of, channels, channels)?;
        Ok(Box::new(Denoiser { module: Box::new(module), storage: self.storage }))
    }

    fn batch(&self, part: &Part<'_>) -> Batch {
        self.noisy(&self.data.train, part.indices(), part.draw(), part.first())
    }

    fn test_batch(&self, indices: &[usize]) -> Batch {
        let draw = Draw::Test(indices.first().copied().unwrap_or(0));
        self.noisy(&self.data.test, indices, draw, 0)
    }

    fn tell(&self, score: &Score) -> String {
        let loss = score.mean_loss();
        format!(
            "mean squared error {loss:.4}, before denoising {:.4}; {:.2} % of pixels improved",
            NOISE * NOISE,
            100.0 * score.accuracy()
        )
    }

    fn blank(&self, n: usize) -> Result<Batch, Failure> {
        let [channels, height, width] = self.data.train.shape;
        // The pages of the zeros are never touched, so they take no memory.
        let zeros = || {
            HostTensor::zeros(DType::F32, [n, channels, height, width]).map(Arc::new).map_err(
                |_| {
                    let elements =
                        [channels, height, width].iter().fold(n as u128, |n, &m| n * m as u128);
                    let what = format!("{n} images of {channels}x{height}x{width}");
                    batch_too_large(&what, elements.saturating_mul(4))
                },
            )
        };
        Ok(Batch { inputs: zeros()?, labels: zeros()?, tree: None })
    }
}

struct Denoiser {
    module: Box<dyn Module>,
    storage: DType,
}

impl Denoiser {
    fn cleaned(
        &mut self,
        runtime: &Runtime,
        inputs: Arc<HostTensor>,
        mode: Mode,
    ) -> Result<Tensor, Error> {
        let x = runtime.put(inputs)?;
        runtime.label(&x, "images")?;
        let x = x.cast(self.storage)?;
        self.module.forward(&x, mode)?.cast(DType::F32)
    }
}

impl Network for Denoiser {
    fn module(&mut self) -> &mut dyn Module {
        &mut *self.module
    }

    fn loss(&mut self, runtime: &Runtime, _tape: &Tape, batch: Batch) -> Result<Tensor, Error> {
        let found = self.cleaned(runtime, batch.inputs, Mode::Train)?;
        let clean = runtime.put(batch.labels)?;
        runtime.label(&clean, "clean images")?;
        found.mse_loss(&clean)
    }

    fn score(&mut self, runtime: &Runtime, batch: Batch) -> Result<Score, Error> {
        let found = self.cleaned(runtime, Arc::clone(&batch.inputs), Mode::Infer)?;
        let found = runtime.get(&found)?;
        let floats = |all: &HostTensor| all.as_f32().expect("pixels are floats").to_vec();
        let [noisy, clean, found] = [floats(&batch.inputs), floats(&batch.labels), floats(&found)];
        let mut score = Score { predictions: clean.len(), ..Score::default() };
        for ((noisy, clean), found) in noisy.iter().zip(&clean).zip(&found) {
            score.right += usize::from((found - clean).abs() < (noisy - clean).abs());
            score.loss += f64::from(found - clean).powi(2);
        }
        Ok(score)
    }
}
