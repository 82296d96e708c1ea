//! What is trained: a network, what it learns from, and how well it does.

mod images;
mod text;

pub use images::ImageTask;
pub use text::TextTask;

use super::failure::Failure;
use remat::nn::{Mode, Module};
use remat::{DType, Error, HostTensor, Runtime, Tensor};
use std::sync::Arc;

/// A kind of network with its data.
pub trait Task: Sync {
    /// What the data consists of: `image`, `window`.
    fn example(&self) -> &'static str;

    /// Examples to learn from.
    fn examples(&self) -> usize;

    /// Examples to test on.
    fn tests(&self) -> usize;

    /// A fresh network.
    fn network(&self, runtime: &Runtime) -> Result<Network, Error>;

    /// Some examples to learn from. What is drawn for them is drawn by `step`.
    fn batch(&self, indices: &[usize], step: usize) -> Batch;

    /// Some examples to test on.
    fn test_batch(&self, indices: &[usize]) -> Batch;

    /// How well it did, in words.
    fn tell(&self, score: &Score) -> String {
        format!("{:.2} % right, loss {:.4}", 100.0 * score.accuracy(), score.mean_loss())
    }

    /// As many bytes as a batch of `n` examples, with nothing in them.
    fn blank(&self, n: usize) -> Result<Batch, Failure>;
}

/// Examples that go through the network together.
#[derive(Clone, Debug)]
pub struct Batch {
    pub inputs: Arc<HostTensor>,
    /// What is to be predicted: a class for each row of the network's output.
    pub labels: Arc<HostTensor>,
}

impl Batch {
    fn new((inputs, labels): (HostTensor, HostTensor)) -> Self {
        Self { inputs: Arc::new(inputs), labels: Arc::new(labels) }
    }
}

/// A network that gives each class a value, for each of its inputs.
pub struct Network {
    pub module: Box<dyn Module>,
    /// How floats that go in are stored, and so what is made of them.
    pub storage: DType,
    /// What an input is called in messages.
    pub inputs: &'static str,
}

/// How well a network did on some examples.
#[derive(Clone, Copy, Debug, Default)]
pub struct Score {
    /// Predictions that were right.
    pub right: usize,
    pub predictions: usize,
    /// Sum of the cross entropies of all predictions. Not finite if one of the outputs is not.
    pub loss: f64,
}

impl Network {
    /// The mean loss of a batch. Every handle goes as soon as the last op that reads it was given.
    pub fn loss(&mut self, runtime: &Runtime, batch: Batch) -> Result<Tensor, Error> {
        let logits = self.logits(runtime, batch.inputs, Mode::Train)?;
        let labels = runtime.put(batch.labels)?;
        runtime.label(&labels, "labels")?;
        logits.cross_entropy(&labels)
    }

    /// How well it does on a batch.
    pub fn score(&mut self, runtime: &Runtime, batch: Batch) -> Result<Score, Error> {
        let logits = self.logits(runtime, batch.inputs, Mode::Infer)?;
        let logits = runtime.get(&logits)?;
        let classes = logits.shape().last().map_or(1, |&classes| classes.max(1));
        let rows = logits.as_f32().expect("logits are floats").chunks(classes);
        let labels = batch.labels.as_i32().expect("labels are integers");
        let mut score = Score::default();
        for (row, &label) in rows.zip(labels) {
            score.right += usize::from(largest(row) == label as usize);
            score.predictions += 1;
            score.loss += cross_entropy(row, label as usize);
        }
        Ok(score)
    }

    /// Values `[n, classes]`.
    fn logits(
        &mut self,
        runtime: &Runtime,
        inputs: Arc<HostTensor>,
        mode: Mode,
    ) -> Result<Tensor, Error> {
        let mut x = runtime.put(inputs)?;
        runtime.label(&x, self.inputs)?;
        if x.dtype() == DType::F32 {
            x = x.cast(self.storage)?;
        }
        let logits = self.module.forward(&x, mode)?.cast(DType::F32)?;
        drop(x);
        match *logits.shape() {
            [.., classes] if logits.rank() != 2 => {
                logits.reshape(&[logits.layout().elements() / classes.max(1), classes])
            }
            _ => Ok(logits),
        }
    }
}

impl Score {
    pub fn add(&mut self, other: Self) {
        self.right += other.right;
        self.predictions += other.predictions;
        self.loss += other.loss;
    }

    /// The part of predictions that were right.
    pub fn accuracy(&self) -> f64 {
        self.right as f64 / self.predictions as f64
    }

    /// The mean cross entropy, in nats.
    pub fn mean_loss(&self) -> f64 {
        self.loss / self.predictions as f64
    }
}

/// Position of the largest value.
fn largest(row: &[f32]) -> usize {
    (1..row.len()).fold(0, |best, i| if row[i] > row[best] { i } else { best })
}

/// `ln sum e^row - row[label]`, in double precision.
fn cross_entropy(row: &[f32], label: usize) -> f64 {
    let most = row.iter().fold(f64::NEG_INFINITY, |most, &x| most.max(x.into()));
    let sum: f64 = row.iter().map(|&x| (f64::from(x) - most).exp()).sum();
    most + sum.ln() - f64::from(row[label])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_those_of_the_softmax() {
        assert!((cross_entropy(&[0.0; 4], 2) - 4f64.ln()).abs() < 1e-12);
        assert!((cross_entropy(&[1000.0, 0.0], 1) - 1000.0).abs() < 1e-9);
        assert!(cross_entropy(&[1000.0, 0.0], 0).abs() < 1e-9);
        assert!(!cross_entropy(&[f32::NAN, 0.0], 0).is_finite());
        assert!(!cross_entropy(&[f32::INFINITY, 0.0], 0).is_finite());
        assert_eq!((largest(&[1.0, 3.0, 3.0]), largest(&[2.0])), (1, 0));
    }
}
