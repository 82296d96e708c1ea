//! Small models, and their training with comparable bits.
#![allow(dead_code)] // Each test uses a part of this module.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::{CrossEntropyLoss, CrossEntropyLossConfig};
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::transformer::{
    TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput,
};
use burn::nn::{
    BatchNorm, BatchNormConfig, Dropout, DropoutConfig, Embedding, EmbeddingConfig, Gelu,
    LayerNorm, LayerNormConfig, Linear, LinearConfig, Lstm, LstmConfig, PaddingConfig2d,
};
use burn::optim::{AdamConfig, GradientsParams, ModuleOptimizer};
use burn::tensor::{Device, Int, Tensor, TensorData};
use remat_rng::SplitMix64;

/// Model that can be trained on synthetic data.
pub trait Net: Module {
    fn new(device: &Device) -> Self;
    fn logits(&self, batch: u64, device: &Device) -> Tensor<2>;
}

/// Result of a training, bit by bit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub losses: Vec<u32>,
    /// Hash of all parameters.
    pub params: u64,
}

/// Model in training with Adam, step by step.
pub struct Training<N> {
    device: Device,
    /// The model; `None` only after a step that failed.
    model: Option<N>,
    optim: ModuleOptimizer,
    loss_of: CrossEntropyLoss,
    losses: Vec<u32>,
}

impl<N: Net> Training<N> {
    pub fn new(device: &Device) -> Self {
        Self {
            device: device.clone(),
            model: Some(N::new(device).map(&mut Fill(0))),
            optim: AdamConfig::new().init(),
            loss_of: CrossEntropyLossConfig::new().init(device),
            losses: Vec::new(),
        }
    }

    /// Runs one step. Fails if the loss cannot be read.
    pub fn step(&mut self) -> Result<(), String> {
        let step = self.losses.len() as u64;
        let model = self.model.take().ok_or("a step before failed")?;
        let logits = model.logits(step % 4, &self.device);
        let rows = logits.dims()[0] as i32;
        let classes = (0..rows).map(|i| (i * 7 + step as i32 % 4) % 10).collect::<Vec<i32>>();
        let classes = TensorData::new(classes, [rows as usize]);
        let classes = Tensor::<1, Int>::from_data(classes, &self.device);
        let loss = self.loss_of.forward(logits, classes);
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        let model = self.optim.step(1e-3, model, grads);
        let loss = loss.try_into_scalar::<f32>().map_err(|error| error.to_string())?;
        self.losses.push(loss.to_bits());
        self.model = Some(model);
        Ok(())
    }

    pub fn outcome(self) -> Outcome {
        let mut bits = Bits(0xcbf2_9ce4_8422_2325);
        self.model.iter().for_each(|model| model.visit(&mut bits));
        Outcome { losses: self.losses, params: bits.0 }
    }
}

/// Trains for `steps` steps, and calls `end` after each.
pub fn train<N: Net>(device: &Device, steps: u64, mut end: impl FnMut()) -> Outcome {
    let mut training = Training::<N>::new(device);
    for _ in 0..steps {
        training.step().unwrap();
        end();
    }
    training.outcome()
}

#[derive(Module, Debug)]
pub struct Mlp {
    layers: Vec<Linear>,
    norms: Vec<LayerNorm>,
    last: Linear,
    gelu: Gelu,
    dropout: Dropout,
}

impl Mlp {
    fn with(device: &Device, dropout: f64) -> Self {
        Self {
            layers: (0..12).map(|_| LinearConfig::new(128, 128).init(device)).collect(),
            norms: (0..12).map(|_| LayerNormConfig::new(128).init(device)).collect(),
            last: LinearConfig::new(128, 10).init(device),
            gelu: Gelu::new(),
            dropout: DropoutConfig::new(dropout).init(),
        }
    }
}

impl Net for Mlp {
    fn new(device: &Device) -> Self {
        Self::with(device, 0.0)
    }

    fn logits(&self, batch: u64, device: &Device) -> Tensor<2> {
        let mut x = Tensor::from_data(
            TensorData::new(numbers(1000 + batch, 2048 * 128, 1.0), [2048, 128]),
            device,
        );
        for (layer, norm) in self.layers.iter().zip(&self.norms) {
            x = self.dropout.forward(self.gelu.forward(norm.forward(layer.forward(x))));
        }
        self.last.forward(x)
    }
}

#[derive(Module, Debug)]
pub struct MlpDropout {
    mlp: Mlp,
}

impl Net for MlpDropout {
    fn new(device: &Device) -> Self {
        Self { mlp: Mlp::with(device, 0.2) }
    }

    fn logits(&self, batch: u64, device: &Device) -> Tensor<2> {
        self.mlp.logits(batch, device)
    }
}

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
            Conv2dConfig::new([from, 8], [3, 3])
                .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
                .init(device)
        };
        Self {
            convs: [1, 8, 8, 8, 8, 8, 8, 8].map(conv).into(),
            norms: (0..8).map(|_| BatchNormConfig::new(8).init(device)).collect(),
            pool: MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init(),
            last: LinearConfig::new(8 * 3 * 3, 10).init(device),
        }
    }

    fn logits(&self, batch: u64, device: &Device) -> Tensor<2> {
        let data = TensorData::new(numbers(batch, 32 * 12 * 12, 1.0), [32, 1, 12, 12]);
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
            embedding: EmbeddingConfig::new(50, 32).init(device),
            encoder: TransformerEncoderConfig::new(32, 64, 4, 6).with_dropout(dropout).init(device),
            last: LinearConfig::new(32, 10).init(device),
        }
    }
}

impl Net for Transformer {
    fn new(device: &Device) -> Self {
        Self::with(device, 0.0)
    }

    fn logits(&self, batch: u64, device: &Device) -> Tensor<2> {
        let words = numbers(batch, 32 * 24, 1.0);
        let words: Vec<i32> = words.iter().map(|x| ((x + 1.0) * 24.9) as i32).collect();
        let words = Tensor::<2, Int>::from_data(TensorData::new(words, [32, 24]), device);
        let x = self.embedding.forward(words);
        let x = self.encoder.forward(TransformerEncoderInput::new(x));
        self.last.forward(x).flatten(0, 1)
    }
}

#[derive(Module, Debug)]
pub struct TransformerDropout {
    transformer: Transformer,
}

impl Net for TransformerDropout {
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
            lstm: LstmConfig::new(8, 16, true).init(device),
            last: LinearConfig::new(16, 10).init(device),
        }
    }

    fn logits(&self, batch: u64, device: &Device) -> Tensor<2> {
        let data = TensorData::new(numbers(batch, 16 * 12 * 8, 1.0), [16, 12, 8]);
        let (x, _) = self.lstm.forward(Tensor::from_data(data, device), None);
        self.last.forward(x).flatten(0, 1)
    }
}

/// Pseudo-random numbers from `-scale` to `scale`.
pub fn numbers(seed: u64, count: usize, scale: f32) -> Vec<f32> {
    let mut numbers = SplitMix64::new(seed);
    let mut unit = || (numbers.next() >> 40) as f32 / (1u64 << 24) as f32;
    (0..count).map(|_| unit() * 2.0 * scale - scale).collect()
}

/// Mapper that sets the same parameters on each device.
pub struct Fill(pub u64);

impl ModuleMapper for Fill {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        self.0 += 1;
        let (id, tensor, mapper) = param.consume();
        let (dims, device) = (tensor.dims(), tensor.device());
        let count: usize = dims.iter().product();
        let values = match D {
            1 => vec![(self.0 % 2) as f32; count],
            _ => numbers(self.0, count, (3.0 / (count / dims[0]) as f32).sqrt()),
        };
        let tensor = Tensor::from_data(TensorData::new(values, dims), &device).require_grad();
        Param::from_mapped_value(id, tensor, mapper)
    }
}

pub struct Bits(pub u64);

impl ModuleVisitor for Bits {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        for byte in param.val().into_data().as_bytes() {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}
