use super::{Batch, Draw, Network, Part, Score, Task, batch_too_large, gaussians};
use crate::cli::failure::Failure;
use remat::autograd::Tape;
use remat::data::Ring;
use remat::nn::{Mode, Module, UnrolledGan, UnrolledGanSize};
use remat::{DType, Error, HostTensor, Runtime, Tensor};
use std::sync::Arc;

/// Task of generating points that are distributed like a ring of Gaussians. The generator learns
/// through steps of the discriminator.
pub struct RingTask {
    ring: Ring,
}

/// Number of points in an epoch. The number is arbitrary, because the number of points is not
/// limited.
const EXAMPLES: usize = 16_384;
/// Number of points in a test.
const TESTS: usize = 2048;

impl RingTask {
    pub const fn new(seed: u64) -> Self {
        Self { ring: Ring::new(seed) }
    }

    /// Latent numbers and real points. `first` is the position of the first point in the step or
    /// test that `draw` names.
    fn drawn(&self, draw: Draw, first: usize, n: usize) -> Batch {
        let latent = UnrolledGanSize::default().latent;
        // The latent numbers have another seed than the real points.
        let z = gaussians(!self.ring.seed, draw, first * latent..(first + n) * latent);
        let z = HostTensor::f32([n, latent], z).expect("as many as were asked for");
        Batch::new((z, self.ring.batch_from(first, draw.number(), n)))
    }
}

impl Task for RingTask {
    fn example(&self) -> &'static str {
        "point"
    }

    fn examples(&self) -> usize {
        EXAMPLES
    }

    fn tests(&self) -> usize {
        TESTS
    }

    fn network(&self, runtime: &Runtime) -> Result<Box<dyn Network>, Error> {
        let gan = UnrolledGan::new(runtime, UnrolledGanSize::default())?;
        Ok(Box::new(Adversaries { gan, ring: self.ring }))
    }

    fn batch(&self, part: &Part<'_>) -> Batch {
        self.drawn(part.draw(), part.first(), part.indices().len())
    }

    fn test_batch(&self, indices: &[usize]) -> Batch {
        self.drawn(Draw::Test(indices.first().copied().unwrap_or(0)), 0, indices.len())
    }

    fn tell(&self, score: &Score) -> String {
        format!(
            "{} of {} Gaussians found, {:.2} % of points near one",
            score.modes.count_ones(),
            self.ring.modes,
            100.0 * score.accuracy()
        )
    }

    fn blank(&self, n: usize) -> Result<Batch, Failure> {
        let latent = UnrolledGanSize::default().latent;
        // The pages of the zeros are never touched, so they take no memory.
        let zeros = |numbers: usize| {
            HostTensor::zeros(DType::F32, [n, numbers]).map(Arc::new).map_err(|_| {
                batch_too_large(&format!("{n} points"), n as u128 * numbers as u128 * 4)
            })
        };
        Ok(Batch { inputs: zeros(latent)?, labels: zeros(2)?, tree: None })
    }
}

struct Adversaries {
    gan: UnrolledGan,
    ring: Ring,
}

impl Network for Adversaries {
    fn module(&mut self) -> &mut dyn Module {
        &mut self.gan
    }

    /// Sum of the losses of generator and discriminator. Each parameter gets the gradient of its
    /// own network's loss. The value of the sum means little: see [`remat::nn::GanLoss`].
    fn loss(&mut self, runtime: &Runtime, tape: &Tape, batch: Batch) -> Result<Tensor, Error> {
        let (z, real) = (runtime.put(batch.inputs)?, runtime.put(batch.labels)?);
        runtime.label(&z, "latent numbers")?;
        runtime.label(&real, "points")?;
        Ok(self.gan.loss(tape, &real, &z)?.total)
    }

    /// Score of points: the loss of a point is its squared distance from the nearest mean.
    fn score(&mut self, runtime: &Runtime, batch: Batch) -> Result<Score, Error> {
        let z = runtime.put(batch.inputs)?;
        let made = runtime.get(&self.gan.forward(&z, Mode::Infer)?)?;
        let (points, _) = made.as_f32().expect("points are floats").as_chunks::<2>();
        let mut score = Score { predictions: points.len(), ..Score::default() };
        for &point in points {
            let (mode, distance) = self.ring.nearest(point);
            score.loss += distance.powi(2);
            if distance <= 3.0 * f64::from(self.ring.deviation) {
                score.right += 1;
                score.modes |= 1 << mode;
            }
        }
        Ok(score)
    }
}
