use super::{Gates, Recurrent, RecurrentCell, Weights};
use crate::error::Error;
use crate::ops::{AfterSteps, Tensor};

/// A step of a long short-term memory (Hochreiter and Schmidhuber, 1997, with the forget gate of
/// Gers et al., 2000):
///
/// ```text
/// i, f, g, o = weight_ih x + bias_ih + weight_hh h + bias_hh      in this order, as in PyTorch
/// c' = sigmoid(f) c + sigmoid(i) tanh(g)
/// h' = sigmoid(o) tanh(c')
/// ```
///
/// As a [`Module`](crate::nn::Module), the cell computes one step from a memory of zeros: it maps
/// `x [n, inputs]` to `h'`.
pub type LstmCell = RecurrentCell<LstmGates>;

/// Layers of [`LstmCell`]s over a sequence; see [`Recurrent`].
pub type Lstm = Recurrent<LstmGates>;

/// Gates of an [`LstmCell`].
#[derive(Debug)]
pub enum LstmGates {}

/// Memory of an [`LstmCell`]: two tensors of `[n, hidden]`.
#[derive(Clone, Debug)]
pub struct LstmState {
    /// Output of the step.
    pub h: Tensor,
    /// Cell state, which is not part of the output.
    pub c: Tensor,
}

impl Gates for LstmGates {
    const COUNT: usize = 4;

    type Memory = LstmState;

    /// Sum of `bias_ih` and `bias_hh`, for all gates.
    fn bias(weights: &Weights) -> Result<Tensor, Error> {
        weights.bias_ih.add(&weights.bias_hh)
    }

    fn steps(
        weights: &Weights,
        of_input: &Tensor,
        bias: &Tensor,
        before: Option<&LstmState>,
    ) -> Result<(Tensor, LstmState), Error> {
        let before = before.map(|LstmState { h, c }| [h, c]);
        let AfterSteps { y, h, c } = of_input.lstm_steps(&weights.weight_hh, bias, before)?;
        Ok((y, LstmState { h, c }))
    }

    fn output(memory: LstmState) -> Tensor {
        memory.h
    }
}
