use super::{Gates, Recurrent, RecurrentCell, Weights, gates};
use crate::error::Error;
use crate::ops::Tensor;

/// A step of a gated recurrent unit (Cho et al., EMNLP 2014), as in PyTorch:
///
/// ```text
/// r, z, n = weight_ih x + bias_ih            in this order
/// R, Z, N = weight_hh h + bias_hh
/// h' = (1 - sigmoid(z + Z)) tanh(n + sigmoid(r + R) N) + sigmoid(z + Z) h
/// ```
///
/// As a [`Module`](crate::nn::Module), the cell computes one step from a memory of zeros: it maps
/// `x [n, inputs]` to `h'`.
pub type GruCell = RecurrentCell<GruGates>;

/// Layers of [`GruCell`]s over a sequence; see [`Recurrent`].
pub type Gru = Recurrent<GruGates>;

/// Gates of a [`GruCell`].
#[derive(Debug)]
pub enum GruGates {}

impl Gates for GruGates {
    const COUNT: usize = 3;

    type Memory = Tensor;

    /// Bias of the input only. `bias_hh` is not included, because in the gate `n`, it is multiplied
    /// by `r`, which differs from step to step.
    fn bias(weights: &Weights) -> Result<Tensor, Error> {
        Ok(weights.bias_ih.clone())
    }

    fn steps(
        weights: &Weights,
        of_input: &Tensor,
        bias: &Tensor,
        before: Option<&Tensor>,
    ) -> Result<(Tensor, Tensor), Error> {
        let [n, rows] = [of_input.shape()[0], of_input.shape()[2]];
        let mut outputs: Vec<Tensor> = Vec::new();
        for of_input in of_input.split(1, 1)? {
            let before = outputs.last().or(before);
            outputs.push(next(weights, &of_input.reshape(&[n, rows])?, bias, before)?);
        }
        let y = Tensor::stack(&outputs.iter().collect::<Vec<_>>(), 1)?;
        Ok((y, outputs.pop().expect("at least one step")))
    }

    fn output(memory: Tensor) -> Tensor {
        memory
    }
}

/// Computes the memory after a step. `of_input` is the result of [`Weights::of_input`].
fn next(
    weights: &Weights,
    of_input: &Tensor,
    bias: &Tensor,
    before: Option<&Tensor>,
) -> Result<Tensor, Error> {
    let hidden = weights.hidden();
    let of_input = of_input.add(bias)?;
    let of_hidden = match before {
        Some(h) => weights.of_hidden(h)?.add(&weights.bias_hh)?,
        None => weights.bias_hh.reshape(&[1, 3 * hidden])?,
    };
    let [r_input, z_input, n_input] = gates(&of_input, hidden)?;
    let [r_hidden, z_hidden, n_hidden] = gates(&of_hidden, hidden)?;
    let (r, z) = (r_input.add(&r_hidden)?.sigmoid()?, z_input.add(&z_hidden)?.sigmoid()?);
    let new = n_input.add(&r.mul(&n_hidden)?)?.tanh()?;
    // (1 - z) n + z h = n + z (h - n)
    let back = match before {
        Some(h) => h.sub(&new)?,
        None => new.neg()?,
    };
    new.add(&z.mul(&back)?)
}
