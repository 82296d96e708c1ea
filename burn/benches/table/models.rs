//! Models of the table: so large that tensors take most of the memory, and so small that measuring
//! a model takes about a minute.

use crate::common::{Net, numbers};
use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::transformer::{
    TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput,
};
use burn::nn::{
    BatchNorm, BatchNormConfig, Embedding, EmbeddingConfig, Linear, LinearConfig, Lstm, LstmConfig,
    PaddingConfig2d,
};
use burn::tensor::{Device, Int, Tensor, TensorData};

#[derive(Module, Debug)]
pub struct Cnn {
    convs: Vec<Conv2d>,
    norms: Vec<BatchNorm>,
    pool: MaxPool2d,
    last: Linear,
}

impl Net for Cnn {
    fn new(device: &Device) -> Self {
        let conv = |from| {
            Conv2dConfig::new([from, 16], [3, 3])
                .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
                .init(device)
        };
        Self {
            convs: [1, 16, 16, 16, 16, 16, 16, 16].map(conv).into(),
            norms: (0..8).map(|_| BatchNormConfig::new(16).init(device)).collect(),
            pool: MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init(),
            last: LinearConfig::new(16 * 4 * 4, 10).init(device),
        }
    }

    fn logits(&self, batch: u64, device: &Device) -> Tensor<2> {
        let data = TensorData::new(numbers(batch, 64 * 16 * 16, 1.0), [64, 1, 16, 16]);
        let mut x = Tensor::<4>::from_data(data, device);
        for (i, (conv, norm)) in self.convs.iter().zip(&self.norms).enumerate() {
            x = burn::tensor::activation::relu(norm.forward(conv.forward(x)));
            if i % 4 == 3 {
                x = self.pool.forward(x);
            }
        }
        self.last.forward(x.flatten(1, 3))
    }
}

#[derive(Module, Debug)]
pub struct Transformer {
    embedding: Embedding,
    encoder: TransformerEncoder,
    last: Linear,
}

impl Transformer {
    fn with(device: &Device, dropout: f64) -> Self {
        Self {
            embedding: EmbeddingConfig::new(50, 64).init(device),
            encoder: TransformerEncoderConfig::new(64, 256, 4, 6)
                .with_dropout(dropout)
                .init(device),
            last: LinearConfig::new(64, 10).init(device),
        }
    }
}

impl Net for Transformer {
    fn new(device: &Device) -> Self {
        Self::with(device, 0.0)
    }

    fn logits(&self, batch: u64, device: &Device) -> Tensor<2> {
        let words = numbers(batch, 16 * 48, 1.0);
        let words: Vec<i32> = words.iter().map(|x| ((x + 1.0) * 24.9) as i32).collect();
        let words = Tensor::<2, Int>::from_data(TensorData::new(words, [16, 48]), device);
        let x = self.embedding.forward(words);
        let x = self.encoder.forward(TransformerEncoderInput::new(x));
        self.last.forward(x).flatten(0, 1)
    }
}

#[derive(Module, Debug)]
pub struct WithDropout {
    transformer: Transformer,
}

impl Net for WithDropout {
    fn new(device: &Device) -> Self {
        Self { transformer: Transformer::with(device, 0.1) }
    }

    fn logits(&self, batch: u64, device: &Device) -> Tensor<2> {
        self.transformer.logits(batch, device)
    }
}

#[derive(Module, Debug)]
pub struct Recurrent {
    lstm: Lstm,
    last: Linear,
}

impl Net for Recurrent {
    fn new(device: &Device) -> Self {
        Self {
            lstm: LstmConfig::new(32, 64, true).init(device),
            last: LinearConfig::new(64, 10).init(device),
        }
    }

    fn logits(&self, batch: u64, device: &Device) -> Tensor<2> {
        let data = TensorData::new(numbers(batch, 128 * 32 * 32, 1.0), [128, 32, 32]);
        let (x, _) = self.lstm.forward(Tensor::from_data(data, device), None);
        // Takes the last position of each sequence.
        self.last.forward(x.slice([0..128, 31..32]).flatten(1, 2))
    }
}
