use super::{Batch, Classifier, Network, Score, Task};
use crate::cli::failure::{Failure, batch_too_large};
use crate::cli::model::{SizeArgs, TextModel};
use remat::data::Text;
use remat::{DType, Error, HostTensor, Runtime};
use std::sync::Arc;

/// Predicting each byte of a text from those before it.
pub struct TextTask {
    pub model: TextModel,
    pub size: SizeArgs,
    pub text: Text,
    /// How activations are stored.
    pub storage: DType,
    /// Of where windows begin.
    pub seed: u64,
}

impl TextTask {
    /// Fails unless there is a window to learn from and one to test on.
    pub fn check(self, source: &dyn std::fmt::Display) -> Result<Self, Failure> {
        let context = self.size.context;
        if self.text.test(context).is_empty() {
            let bytes = self.text.bytes().len();
            return Err(Failure::usage(format!(
                "{source} has {bytes} bytes, of which a tenth is for the test: too few for --context {context}; \
                 lower that, or give a longer text"
            )));
        }
        Ok(self)
    }
}

impl Task for TextTask {
    fn example(&self) -> &'static str {
        "window"
    }

    fn examples(&self) -> usize {
        self.text.train(self.size.context).len()
    }

    fn tests(&self) -> usize {
        self.text.test(self.size.context).len()
    }

    fn network(&self, runtime: &Runtime) -> Result<Box<dyn Network>, Error> {
        let module = self.model.build(runtime, &self.size, self.storage)?;
        Ok(Box::new(Classifier { module, storage: self.storage, inputs: "bytes" }))
    }

    /// Windows that begin up to one length later, so that no two passes over the text have the same.
    fn batch(&self, indices: &[usize], step: usize) -> Batch {
        Batch::new(self.text.train(self.size.context).shifted(indices, self.seed, step as u64))
    }

    fn test_batch(&self, indices: &[usize]) -> Batch {
        Batch::new(self.text.test(self.size.context).batch(indices))
    }

    fn tell(&self, score: &Score) -> String {
        let bits = score.mean_loss() / std::f64::consts::LN_2;
        format!("{bits:.3} bits a byte, {:.2} % right", 100.0 * score.accuracy())
    }

    fn blank(&self, n: usize) -> Result<Batch, Failure> {
        let context = self.size.context;
        // Their pages are never touched, so they take no memory.
        let zeros = || {
            HostTensor::zeros(DType::I32, [n, context]).map(Arc::new).map_err(|_| {
                let bytes = (n as u128).saturating_mul(4 * context as u128);
                batch_too_large(&format!("{n} windows of {context} bytes"), bytes)
            })
        };
        Ok(Batch { inputs: zeros()?, labels: zeros()?, tree: None })
    }
}
