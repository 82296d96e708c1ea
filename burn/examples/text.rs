//! Trains a small transformer to continue a text byte by byte, with plain Burn and under a budget.
//!
//! ```sh
//! cargo run --release --example text -- --budget 40%
//! cargo run --release --example text -- --dropout 0.1
//! ```

mod side_by_side;

use burn::module::Module;
use burn::nn::attention::generate_autoregressive_mask;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::transformer::{
    TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput,
};
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn::tensor::{Device, Int, Tensor, TensorData};
use clap::Parser;
use side_by_side::{Failure, Options, Task};
use std::path::PathBuf;

/// Bytes of context.
const WINDOW: usize = 64;
const WIDTH: usize = 64;
const LAYERS: usize = 4;

/// A small transformer learns to continue a text byte by byte, by plain Burn and under a budget
#[derive(Parser)]
#[command(name = "text")]
struct Args {
    #[command(flatten)]
    options: Options,
    /// Number of steps
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
    /// Number of pieces of text in each step
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// Share of values that dropout sets to 0 in each layer
    #[arg(long, default_value_t = 0.0, value_parser = share)]
    dropout: f64,
    /// Text file to train on [default: the text of the Apache License]
    #[arg(long, value_name = "FILE")]
    text: Option<PathBuf>,
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..1.0).contains(&share) => Ok(share),
        _ => Err("a share is a number from 0 to below 1".to_owned()),
    }
}

fn main() -> Result<(), Failure> {
    let Args { options, steps, batch, dropout, text } = Args::parse();
    let text = match text {
        Some(path) => {
            std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?
        }
        None => include_bytes!("../../LICENSE-APACHE").to_vec(),
    };
    if text.len() < 2 * WINDOW {
        return Err(
            format!("{} bytes are no text: take at least {}", text.len(), 2 * WINDOW).into()
        );
    }
    side_by_side::run(
        &Text { text, steps: steps as usize, batch: batch as usize, dropout },
        &options,
    )
}

struct Text {
    text: Vec<u8>,
    steps: usize,
    batch: usize,
    dropout: f64,
}

#[derive(Module, Debug)]
struct Transformer {
    bytes: Embedding,
    places: Embedding,
    encoder: TransformerEncoder,
    last: Linear,
}

impl Transformer {
    /// Maps rows of bytes to 256 scores for each byte, one for each possible next byte.
    fn forward(&self, bytes: Tensor<2, Int>) -> Tensor<3> {
        let ([rows, length], device) = (bytes.dims(), bytes.device());
        let places = Tensor::arange(0..length as i64, &device).unsqueeze();
        let x = self.bytes.forward(bytes) + self.places.forward(places);
        let mask = generate_autoregressive_mask(rows, length, &device);
        self.last.forward(self.encoder.forward(TransformerEncoderInput::new(x).mask_attn(mask)))
    }
}

fn tensor(bytes: impl IntoIterator<Item = u8>, rows: usize, device: &Device) -> Tensor<2, Int> {
    let bytes: Vec<i32> = bytes.into_iter().map(i32::from).collect();
    let shape = [rows, bytes.len() / rows];
    Tensor::from_data(TensorData::new(bytes, shape), device)
}

impl Task for Text {
    type Model = Transformer;

    fn steps(&self) -> usize {
        self.steps
    }

    fn is_random(&self) -> bool {
        self.dropout > 0.0
    }

    fn model(&self, device: &Device) -> Transformer {
        Transformer {
            bytes: EmbeddingConfig::new(256, WIDTH).init(device),
            places: EmbeddingConfig::new(WINDOW, WIDTH).init(device),
            encoder: TransformerEncoderConfig::new(WIDTH, 4 * WIDTH, 4, LAYERS)
                .with_dropout(self.dropout)
                .with_norm_first(true)
                .init(device),
            last: LinearConfig::new(WIDTH, 256).init(device),
        }
    }

    fn loss(&self, model: &Transformer, step: usize, device: &Device) -> Tensor<1> {
        // Start positions of pieces, spread over the whole text, a prime number of bytes apart.
        let starts = (0..self.batch)
            .map(|row| (step * self.batch + row) * 7919 % (self.text.len() - WINDOW));
        let piece = |start: usize| self.text[start..start + WINDOW].iter().copied();
        let read = tensor(starts.clone().flat_map(piece), self.batch, device);
        let next = tensor(starts.flat_map(|start| piece(start + 1)), self.batch, device);
        let logits = model.forward(read).flatten::<2>(0, 1);
        CrossEntropyLossConfig::new().init(device).forward(logits, next.flatten::<1>(0, 1))
    }

    fn learned(&self, model: Transformer, device: &Device) -> Result<String, Failure> {
        let device = device.clone().inner();
        let model = model.valid();
        let mut text = b"You may reproduce ".to_vec();
        for _ in 0..WINDOW - text.len() {
            let length = text.len();
            let logits = model.forward(tensor(text.iter().copied(), 1, &device));
            let next = logits.slice([0..1, length - 1..length]).flatten::<1>(0, 2).argmax(0);
            text.push(next.try_into_scalar::<i32>()? as u8);
        }
        Ok(format!("{:?}", String::from_utf8_lossy(&text)))
    }
}
