use super::{Cell, Layers, Mode, Module, State, Weights, gates, step};
use crate::error::Error;
use crate::ops::Tensor;
use crate::runtime::Runtime;

/// A step of a gated recurrent unit (Cho et al., EMNLP 2014), as PyTorch has it:
///
/// ```text
/// r, z, n = weight_ih x + bias_ih            in this order
/// R, Z, N = weight_hh h + bias_hh
/// h' = (1 - sigmoid(z + Z)) tanh(n + sigmoid(r + R) N) + sigmoid(z + Z) h
/// ```
///
/// As a [`Module`], it takes `x [n, inputs]` to the `h'` of a step from zeros.
#[derive(Debug)]
pub struct GruCell {
    weights: Weights,
    hidden: usize,
}

impl GruCell {
    /// Weights and biases drawn evenly from `±1 / sqrt(hidden)`, as PyTorch does.
    ///
    /// # Errors
    /// If a size is absurd.
    pub fn new(runtime: &Runtime, inputs: usize, hidden: usize) -> Result<Self, Error> {
        Ok(Self { weights: Weights::new(runtime, inputs, hidden, 3)?, hidden })
    }

    /// With these weights: `weight_ih [3 * hidden, inputs]`, `weight_hh [3 * hidden, hidden]`, and `bias_ih` and `bias_hh`
    /// of `[3 * hidden]`.
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
        Ok(Self { hidden: weights.hidden(3)?, weights })
    }

    /// A step from `h [n, hidden]`, or from zeros, for `x [n, inputs]`.
    ///
    /// # Errors
    /// If a shape does not fit.
    pub fn step(&self, x: &Tensor, h: Option<&Tensor>) -> Result<Tensor, Error> {
        step(self, x, h)
    }

    /// A step, of what [`Weights::of_input`] gave.
    fn next(
        &self,
        of_input: &Tensor,
        bias: &Tensor,
        before: Option<&Tensor>,
    ) -> Result<Tensor, Error> {
        let hidden = self.hidden;
        let of_input = of_input.add(bias)?;
        let of_hidden = match before {
            Some(h) => self.weights.of_hidden(h)?.add(&self.weights.bias_hh)?,
            None => self.weights.bias_hh.reshape(&[1, 3 * hidden])?,
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
}

impl Cell for GruCell {
    type Memory = Tensor;

    fn weights(&self) -> &Weights {
        &self.weights
    }

    fn weights_mut(&mut self) -> &mut Weights {
        &mut self.weights
    }

    /// That of the input. The other does not come to the same for all gates.
    fn bias(&self) -> Result<Tensor, Error> {
        Ok(self.weights.bias_ih.clone())
    }

    fn steps(
        &self,
        of_input: &Tensor,
        bias: &Tensor,
        before: Option<&Tensor>,
    ) -> Result<(Tensor, Tensor), Error> {
        let [n, rows] = [of_input.shape()[0], of_input.shape()[2]];
        let mut outputs: Vec<Tensor> = Vec::new();
        for of_input in of_input.split(1, 1)? {
            let before = outputs.last().or(before);
            outputs.push(self.next(&of_input.reshape(&[n, rows])?, bias, before)?);
        }
        let y = Tensor::stack(&outputs.iter().collect::<Vec<_>>(), 1)?;
        Ok((y, outputs.pop().expect("at least one step")))
    }
}

impl Module for GruCell {
    fn forward(&mut self, x: &Tensor, _mode: Mode) -> Result<Tensor, Error> {
        step(self, x, None)
    }

    fn state<'a>(&'a mut self, prefix: &str, found: &mut Vec<(String, State<'a>)>) {
        self.weights.state(prefix, "", found);
    }
}

/// Layers of [`GruCell`]s over a sequence: `x [n, length, inputs]` to `[n, length, hidden]`, as PyTorch's with
/// `batch_first`. As a [`Module`], it begins with zeros.
#[derive(Debug)]
pub struct Gru(Layers<GruCell>);

impl Gru {
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
        let cell = |inputs| GruCell::new(runtime, inputs, hidden);
        Ok(Self(Layers::new(inputs, hidden, layers, cell)?))
    }

    /// Layers of these cells, each of which reads what the one before it puts out.
    #[must_use]
    pub const fn of(cells: Vec<GruCell>) -> Self {
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
        before: Option<&[Tensor]>,
    ) -> Result<(Tensor, Vec<Tensor>), Error> {
        self.0.run(x, before)
    }
}

impl Module for Gru {
    fn forward(&mut self, x: &Tensor, _mode: Mode) -> Result<Tensor, Error> {
        Ok(self.0.run(x, None)?.0)
    }

    fn state<'a>(&'a mut self, prefix: &str, found: &mut Vec<(String, State<'a>)>) {
        self.0.state(prefix, found);
    }
}
