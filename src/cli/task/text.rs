use super::{Batch, Classifier, Network, Part, Score, Task, batch_too_large};
use crate::cli::failure::Failure;
use crate::cli::model::TextModel;
use crate::cli::sizes::SizeArgs;
use remat::data::Text;
use remat::nn::{Module, gpt, lstm};
use remat::{DType, Dims, Error, HostTensor, Runtime};
use std::sync::Arc;

/// Task of predicting each token of a text from the tokens before it.
pub struct TextTask {
    model: TextModel,
    sizes: SizeArgs,
    text: Text,
    /// Tokens in a window.
    context: usize,
    /// Storage type of activations.
    storage: DType,
    /// Seed of the shifts of windows.
    seed: u64,
}

impl TextTask {
    /// A task for a text. Fails if the text is too short for a window.
    pub fn new(
        model: TextModel,
        sizes: SizeArgs,
        text: Text,
        storage: DType,
        seed: u64,
    ) -> Result<Self, Failure> {
        let context = sizes.context(model);
        if text.train(context).is_empty() || text.test(context).is_empty() {
            let (len, tokens) = (text.len(), text.token_name());
            return Err(Failure::usage(format!(
                "the text has {len} {tokens}s, too few: the test takes a tenth, which needs {context} and one more; \
                 lower --context, or choose a longer text"
            )));
        }
        Ok(Self { model, sizes, text, context, storage, seed })
    }

    /// A task without a text, for a network that is already trained.
    pub fn untaught(model: TextModel, sizes: SizeArgs, storage: DType) -> Self {
        let text = Text::of_tokens(Vec::new(), 0);
        Self { model, sizes, text, context: sizes.context(model), storage, seed: 0 }
    }

    /// Makes a batch whose labels, the next tokens, are a one-dimensional tensor.
    fn flat((tokens, next): (HostTensor, HostTensor)) -> Batch {
        let labels = next.as_i32().expect("tokens are integers").to_vec();
        let labels = HostTensor::i32([labels.len()], labels).expect("as many");
        Batch::new((tokens, labels))
    }
}

impl Task for TextTask {
    fn example(&self) -> &'static str {
        "window"
    }

    fn examples(&self) -> usize {
        self.text.train(self.context).len()
    }

    fn tests(&self) -> usize {
        self.text.test(self.context).len()
    }

    fn network(&self, runtime: &Runtime) -> Result<Box<dyn Network>, Error> {
        let module: Box<dyn Module> = match self.model {
            TextModel::Gpt | TextModel::Gpt2 => {
                Box::new(gpt(runtime, &self.sizes.gpt(self.model))?.storage(self.storage))
            }
            TextModel::Lstm => Box::new(lstm(runtime, self.sizes.lstm(self.storage))?),
        };
        let inputs = if self.text.token_name() == "byte" { "bytes" } else { "tokens" };
        Ok(Box::new(Classifier { module, storage: self.storage, inputs }))
    }

    fn batch(&self, part: &Part<'_>) -> Batch {
        let (windows, step) = (self.text.train(self.context), part.step as u64);
        Self::flat(windows.shifted_from(part.first(), part.indices(), self.seed, step))
    }

    fn test_batch(&self, indices: &[usize]) -> Batch {
        Self::flat(self.text.test(self.context).batch(indices))
    }

    fn tell(&self, score: &Score) -> String {
        let bits = score.mean_loss() / std::f64::consts::LN_2;
        format!(
            "{bits:.4} bits a {}, {:.2} % right",
            self.text.token_name(),
            100.0 * score.accuracy()
        )
    }

    fn blank(&self, n: usize) -> Result<Batch, Failure> {
        let context = self.context;
        // The pages of the zeros are never touched, so they take no memory.
        let zeros = |dims: Dims| {
            HostTensor::zeros(DType::I32, dims).map(Arc::new).map_err(|_| {
                let what = format!("{n} windows of {context} {}s", self.text.token_name());
                batch_too_large(&what, (n as u128).saturating_mul(4 * context as u128))
            })
        };
        let all = n.saturating_mul(context);
        Ok(Batch { inputs: zeros([n, context].into())?, labels: zeros([all].into())?, tree: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::command::{Cli, Command};
    use clap::Parser as _;

    #[test]
    fn bits_are_told_in_place_of_nats() {
        let of = |context: &'static str| {
            let args = ["remat", "train", "lstm", "--context", context];
            let Some(Command::Train(args)) = Cli::parse_from(args).command else { panic!() };
            TextTask::new(TextModel::Lstm, args.sizes, Text::moby_dick(), DType::F32, 0)
        };
        let task = of("100").unwrap();
        let score = Score {
            right: 1,
            predictions: 4,
            loss: 12.0 * std::f64::consts::LN_2,
            ..Score::default()
        };
        assert_eq!(task.tell(&score), "3.0000 bits a byte, 25.00 % right");
        let batch = task.batch(&Part::whole(&[2, 5], 0));
        assert_eq!(
            (batch.inputs.shape().to_vec(), batch.labels.shape().to_vec()),
            (vec![2, 100], vec![200])
        );
        assert_eq!(batch.inputs.as_i32().unwrap()[1], batch.labels.as_i32().unwrap()[0]);
        assert!(of("1048576").is_err());
    }
}
