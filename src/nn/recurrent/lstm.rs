use super::{Cell, Layers, Mode, Module, State, Weights, step};
use crate::error::Error;
use crate::ops::{AfterSteps, Tensor};
use crate::runtime::Runtime;

/// A step of a long short-term memory (Hochreiter and Schmidhuber, 1997, with the forget gate of Gers et al., 2000):
///
/// ```text
/// i, f, g, o = weight_ih x + bias_ih + weight_hh h + bias_hh      in this order, as in PyTorch
/// c' = sigmoid(f) c + sigmoid(i) tanh(g)
/// h' = sigmoid(o) tanh(c')
/// ```
///
/// As a [`Module`], it takes `x [n, inputs]` to the `h'` of a step from zeros.
#[derive(Debug)]
pub struct LstmCell {
    weights: Weights,
}

/// What an [`LstmCell`] remembers, `[n, hidden]` each.
#[derive(Clone, Debug)]
pub struct LstmState {
    /// What it puts out.
    pub h: Tensor,
    /// What it keeps to itself.
    pub c: Tensor,
}

impl LstmCell {
    /// Weights and biases drawn evenly from `±1 / sqrt(hidden)`, as PyTorch does.
    ///
    /// # Errors
    /// If a size is absurd.
    pub fn new(runtime: &Runtime, inputs: usize, hidden: usize) -> Result<Self, Error> {
        Ok(Self { weights: Weights::new(runtime, inputs, hidden, 4)? })
    }

    /// With these weights: `weight_ih [4 * hidden, inputs]`, `weight_hh [4 * hidden, hidden]`, and `bias_ih` and `bias_hh`
    /// of `[4 * hidden]`.
    ///
    /// # Errors
    /// If their shapes do not fit each other.
    pub fn of(
        weight_ih: Tensor,
        weight_hh: Tensor,
        bias_ih: Tensor,
        bias_hh: Tensor,
    ) -> Result<Self, Error> {
        let weights = Weights { weight_ih, weight_hh, bias_ih, bias_hh };
        weights.hidden(4)?;
        Ok(Self { weights })
    }

    /// A step from `before`, or from zeros, for `x [n, inputs]`.
    ///
    /// # Errors
    /// If a shape does not fit.
    pub fn step(&self, x: &Tensor, before: Option<&LstmState>) -> Result<LstmState, Error> {
        step(self, x, before)
    }
}

impl Cell for LstmCell {
    type Memory = LstmState;

    fn weights(&self) -> &Weights {
        &self.weights
    }

    fn weights_mut(&mut self) -> &mut Weights {
        &mut self.weights
    }

    /// Both, of all gates.
    fn bias(&self) -> Result<Tensor, Error> {
        self.weights.bias_ih.add(&self.weights.bias_hh)
    }

    fn steps(
        &self,
        of_input: &Tensor,
        bias: &Tensor,
        before: Option<&LstmState>,
    ) -> Result<(Tensor, LstmState), Error> {
        let before = before.map(|LstmState { h, c }| [h, c]);
        let AfterSteps { y, h, c } = of_input.lstm_steps(&self.weights.weight_hh, bias, before)?;
        Ok((y, LstmState { h, c }))
    }
}

impl Module for LstmCell {
    fn forward(&mut self, x: &Tensor, _mode: Mode) -> Result<Tensor, Error> {
        Ok(step(self, x, None)?.h)
    }

    fn state<'a>(&'a mut self, prefix: &str, found: &mut Vec<(String, State<'a>)>) {
        self.weights.state(prefix, "", found);
    }
}

/// Layers of [`LstmCell`]s over a sequence: `x [n, length, inputs]` to `[n, length, hidden]`, as PyTorch's with
/// `batch_first`. As a [`Module`], it begins with zeros.
#[derive(Debug)]
pub struct Lstm(Layers<LstmCell>);

impl Lstm {
    /// So many layers of so many units. Weights and biases are drawn evenly from `±1 / sqrt(hidden)`, as PyTorch does.
    ///
    /// # Errors
    /// If a size is absurd.
    pub fn new(
        runtime: &Runtime,
        inputs: usize,
        hidden: usize,
        layers: usize,
    ) -> Result<Self, Error> {
        let cell = |inputs| LstmCell::new(runtime, inputs, hidden);
        Ok(Self(Layers::new(inputs, hidden, layers, cell)?))
    }

    /// Layers of these cells, each of which reads what the one before it puts out.
    #[must_use]
    pub const fn of(cells: Vec<LstmCell>) -> Self {
        Self(Layers(cells))
    }

    /// The outputs of the last layer, and what each layer remembers after the last step. `before`: what they remember at
    /// the beginning, if not zeros.
    ///
    /// # Errors
    /// If a shape does not fit, or there is no step.
    pub fn run(
        &self,
        x: &Tensor,
        before: Option<&[LstmState]>,
    ) -> Result<(Tensor, Vec<LstmState>), Error> {
        self.0.run(x, before)
    }
}

impl Module for Lstm {
    fn forward(&mut self, x: &Tensor, _mode: Mode) -> Result<Tensor, Error> {
        Ok(self.0.run(x, None)?.0)
    }

    fn state<'a>(&'a mut self, prefix: &str, found: &mut Vec<(String, State<'a>)>) {
        self.0.state(prefix, found);
    }
}
