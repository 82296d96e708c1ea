use super::{Mode, Module};
use crate::error::Error;
use crate::layout::DType;
use crate::op::OpError;
use crate::ops;
use crate::runtime::Runtime;
use std::ops::ControlFlow;

/// Settings for the continuation of a text; see [`generate`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Number of tokens to generate.
    pub length: usize,
    /// Maximum number of tokens that the network reads: the last `context` tokens of the text.
    pub context: usize,
    /// Divisor of the logits. The lower the temperature, the more often likely tokens are chosen.
    /// At 0, the likeliest token is always chosen.
    pub temperature: f32,
    /// Number of the likeliest tokens from which the next token is chosen; `None` for all tokens.
    pub top_k: Option<usize>,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Default for Sampling {
    /// Generates 100 tokens from a context of 128 tokens, with temperature 1, all tokens allowed,
    /// and seed 0.
    fn default() -> Self {
        Self { length: 100, context: 128, temperature: 1.0, top_k: None, seed: 0 }
    }
}

/// Continues a text with a network, such as a [`gpt`](super::gpt), that computes logits
/// `[n, t, vocabulary]` for texts `[n, t]`. Each new token is drawn from the probabilities that the
/// network computes from the text so far. The function calls `told` with each new token, and `told`
/// may end the text.
///
/// Random numbers come from Philox4x32-10: the key is the seed, and the counter is the number of
/// the token. A second call with equal network, prompt and sampling therefore gives the same text.
///
/// ```
/// use remat::nn::{Gpt, Sampling, generate, gpt};
/// use remat::prelude::*;
/// use std::ops::ControlFlow;
///
/// let runtime = Runtime::builder().budget("4MiB").seed(1).cpu()?;
/// let sizes = Gpt { vocabulary: 256, context: 8, layers: 1, width: 16, heads: 2, dropout: 0.0 };
/// let mut network = gpt(&runtime, &sizes)?;
/// let prompt = b"Call me ".map(i32::from);
/// let sampling = Sampling { length: 10, context: 8, ..Sampling::default() };
/// let mut text = Vec::new();
/// generate(&runtime, &mut network, &prompt, sampling, |token| {
///     text.push(token);
///     ControlFlow::Continue(())
/// })?;
/// assert_eq!(text.len(), 10);
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// [`Error::Op`] if the prompt is empty, the temperature is negative or not finite, `top_k` or the
/// context is 0, or the network's logits are not finite. Also errors of the network, for a token
/// outside its vocabulary or for a context that is too long for the network.
pub fn generate(
    runtime: &Runtime,
    network: &mut dyn Module,
    prompt: &[i32],
    sampling: Sampling,
    mut told: impl FnMut(i32) -> ControlFlow<()>,
) -> Result<(), Error> {
    let fail = |message: String| Err(OpError::new("generate", message).into());
    let Sampling { length, context, temperature, top_k, .. } = sampling;
    if prompt.is_empty() {
        return fail("the prompt is empty, expected at least 1 token".to_owned());
    }
    if !(temperature.is_finite() && temperature >= 0.0) {
        return fail(format!(
            "temperature is {temperature}, expected a finite number of at least 0"
        ));
    }
    if top_k == Some(0) || context == 0 {
        let what = if context == 0 { "context" } else { "top_k" };
        return fail(format!("{what} is 0, expected at least 1"));
    }
    let mut text = prompt.to_vec();
    for i in 0..length {
        let seen = &text[text.len().saturating_sub(context)..];
        let x = runtime.tensor(&[1, seen.len()], seen.to_vec())?;
        let logits = network.forward(&x, Mode::Infer)?;
        drop(x);
        let vocabulary = *logits.shape().last().unwrap_or(&0);
        let rows = logits.layout().elements() / vocabulary.max(1);
        if rows != seen.len() {
            return fail(format!(
                "the network makes {} from tokens [1, {}], expected [1, {1}, vocabulary]",
                logits.layout(),
                seen.len()
            ));
        }
        let last = logits.reshape(&[rows, vocabulary])?.slice(0, rows - 1..)?;
        drop(logits);
        let last: Vec<f32> = last.cast(DType::F32)?.to_vec()?;
        let Some(token) = sampling.choose(&last, ops::unit(sampling.seed, i as u64)) else {
            return fail("the network gives logits that are not finite".to_owned());
        };
        let token = token as i32;
        text.push(token);
        // Drop older tokens, which the network no longer reads.
        if text.len() > 2 * context {
            text.drain(..text.len() - context);
        }
        runtime.step()?;
        if told(token).is_break() {
            break;
        }
    }
    Ok(())
}

impl Sampling {
    /// Token that `number` in `[0, 1)` selects according to the probabilities. `None` if a logit is
    /// not finite.
    fn choose(&self, logits: &[f32], number: f32) -> Option<usize> {
        if logits.iter().any(|x| !x.is_finite()) {
            return None;
        }
        let mut order: Vec<usize> = (0..logits.len()).collect();
        order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
        order.truncate(self.top_k.unwrap_or(usize::MAX));
        let most = logits[*order.first()?];
        if self.temperature == 0.0 {
            return order.first().copied();
        }
        let weight =
            |&token: &usize| (f64::from(logits[token] - most) / f64::from(self.temperature)).exp();
        let mut left = order.iter().map(weight).sum::<f64>() * f64::from(number);
        let found = order.iter().find(|token| {
            left -= weight(token);
            left < 0.0
        });
        // Because of rounding, the probabilities may add up to less than `number`. If they do, take
        // the last token.
        found.or(order.last()).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_chosen_as_often_as_they_are_likely() {
        let logits = [0.0, 3.0f32.ln(), -1000.0, 6.0f32.ln()];
        let share = |sampling: Sampling| {
            let mut counts = [0; 4];
            for i in 0..20_000 {
                counts[sampling.choose(&logits, ops::unit(5, i)).unwrap()] += 1;
            }
            counts.map(|count| f64::from(count) / 20_000.0)
        };
        let near = |found: [f64; 4], expected: [f64; 4]| {
            assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 0.01), "{found:?}");
        };
        let all = Sampling::default();
        near(share(all), [0.1, 0.3, 0.0, 0.6]);
        near(share(Sampling { top_k: Some(2), ..all }), [0.0, 1.0 / 3.0, 0.0, 2.0 / 3.0]);
        near(
            share(Sampling { temperature: 0.5, ..all }),
            [1.0 / 46.0, 9.0 / 46.0, 0.0, 36.0 / 46.0],
        );
        near(share(Sampling { temperature: 0.0, ..all }), [0.0, 0.0, 0.0, 1.0]);
        near(share(Sampling { top_k: Some(1), ..all }), [0.0, 0.0, 0.0, 1.0]);
        assert_eq!(all.choose(&[0.0, f32::NAN], 0.5), None);
        assert_eq!(all.choose(&[0.0, f32::INFINITY], 0.5), None);
    }
}
