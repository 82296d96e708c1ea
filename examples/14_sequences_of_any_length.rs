//! Each step has sequences of a different length, and needs a different amount of memory. A gated
//! recurrent unit learns to remember the first token until the end. The budget is sized for short
//! sequences, but training on long sequences also succeeds.
//!
//! `cargo run --release --example 14_sequences_of_any_length`

use remat::Stats;
use remat::nn::{Embedding, Gru, Linear, State, join};
use remat::optim::Optimizer;
use remat::prelude::*;

const TOKENS: usize = 8;
const HIDDEN: usize = 32;
const BATCH: usize = 32;

/// Network that reads all tokens and predicts the first token.
struct Rememberer {
    embedding: Embedding,
    gru: Gru,
    out: Linear,
}

impl Module for Rememberer {
    fn forward(&mut self, x: &Tensor, mode: Mode) -> Result<Tensor, Error> {
        let (_, last) = self.gru.run(&self.embedding.forward(x, mode)?, None)?;
        self.out.forward(&last[0], mode)
    }

    fn state<'a>(&'a mut self, prefix: &str, found: &mut Vec<(String, State<'a>)>) {
        self.embedding.state(&join(prefix, "embedding"), found);
        self.gru.state(&join(prefix, "gru"), found);
        self.out.state(&join(prefix, "out"), found);
    }
}

/// `BATCH` sequences of `length` tokens, and the first token of each.
fn batch(step: usize, length: usize) -> (Vec<i32>, Vec<i32>) {
    let token = |i: usize| ((i * 2_654_435_761 + step * 40_503) >> 7) % TOKENS;
    let tokens: Vec<i32> = (0..BATCH * length).map(|i| token(i) as i32).collect();
    let first = tokens.iter().copied().step_by(length).collect();
    (tokens, first)
}

fn train(runtime: &Runtime, lengths: impl Iterator<Item = usize>) -> Result<Vec<f32>, Error> {
    let mut network = Rememberer {
        embedding: Embedding::new(runtime, TOKENS, 16)?,
        gru: Gru::new(runtime, 16, HIDDEN, 1)?,
        out: Linear::new(runtime, HIDDEN, TOKENS)?,
    };
    let mut sgd = Optimizer::sgd(0.3, 0.9, 0.0);
    let mut losses = Vec::new();
    for (step, length) in lengths.enumerate() {
        let (tokens, first) = batch(step, length);
        let tokens = runtime.tensor(&[BATCH, length], tokens)?;
        let first = runtime.tensor(&[BATCH], first)?;
        let tape = Tape::new(runtime);
        tape.watch(&mut network);
        let loss = network.forward(&tokens, Mode::Train)?.cross_entropy(&first)?;
        drop((tokens, first));
        sgd.minimize(tape, &loss, &mut network)?;
        runtime.step()?;
        losses.push(loss.item()?);
        if step < 5 || (step + 1).is_multiple_of(50) {
            let Stats { evictions, peak_bytes, .. } = runtime.stats()?;
            let loss = losses[step];
            println!(
                "step {:3}: length {length:2}, loss {loss:.3}, peak {peak_bytes} bytes, {evictions} evictions",
                step + 1
            );
        }
    }
    Ok(losses)
}

fn main() -> Result<(), Error> {
    let short = Runtime::builder().seed(1).cpu()?;
    train(&short, std::iter::repeat_n(16, 3))?;
    let budget = short.stats()?.peak_bytes;
    println!("a budget of {budget} bytes, which is what sequences of 16 take\n");

    let runtime = Runtime::builder().seed(1).budget(budget).cpu()?;
    // The first sequences are short; later sequences have up to 24 tokens.
    let losses = train(&runtime, (0..150).map(|step| 2 + (step * 7) % (3 + step / 7)))?;
    let [first, last] = [&losses[..20], &losses[130..]].map(|of| of.iter().sum::<f32>() / 20.0);
    println!("mean loss {first:.3}, then {last:.3}");
    let stats = runtime.stats()?;
    assert!(last < first && stats.peak_bytes <= budget && stats.evictions > 0);
    Ok(())
}
