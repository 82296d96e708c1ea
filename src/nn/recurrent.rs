//! Recurrent layers: cells that take a step, and layers that unroll them over sequences.

mod gru;
mod lstm;
mod model;

pub use gru::{Gru, GruCell};
pub use lstm::{Lstm, LstmCell, LstmState};
pub use model::{LstmSize, lstm};

use super::{Mode, Module, State, join};
use crate::error::Error;
use crate::ops::Tensor;
use crate::runtime::Runtime;
use std::marker::PhantomData;

/// The weights of a cell: of the input and of what is remembered, they make a sum for each gate of each unit.
#[derive(Debug)]
pub struct Weights {
    /// `[gates * hidden, inputs]`
    weight_ih: Tensor,
    /// `[gates * hidden, hidden]`
    weight_hh: Tensor,
    /// `[gates * hidden]`, both. One would do, but PyTorch has two.
    bias_ih: Tensor,
    bias_hh: Tensor,
}

impl Weights {
    /// Drawn evenly from `±1 / sqrt(hidden)`, as PyTorch does.
    fn new(runtime: &Runtime, inputs: usize, hidden: usize, gates: usize) -> Result<Self, Error> {
        let bound = 1.0 / (hidden.max(1) as f32).sqrt();
        let rows = gates * hidden;
        let draw = |shape: &[usize]| runtime.uniform(shape, -bound..bound);
        Ok(Self {
            weight_ih: draw(&[rows, inputs])?,
            weight_hh: draw(&[rows, hidden])?,
            bias_ih: draw(&[rows])?,
            bias_hh: draw(&[rows])?,
        })
    }

    /// Units.
    fn hidden(&self) -> usize {
        self.weight_hh.shape().last().copied().unwrap_or(0)
    }

    /// Fails unless these are weights of so many gates.
    fn check(&self, gates: usize) -> Result<(), Error> {
        let Self { weight_ih, weight_hh, bias_ih, bias_hh } = self;
        let hidden = self.hidden();
        let rows = hidden.saturating_mul(gates);
        let fits = weight_ih.rank() == 2
            && weight_ih.shape()[0] == rows
            && *weight_hh.shape() == [rows, hidden]
            && [bias_ih, bias_hh].iter().all(|bias| *bias.shape() == [rows]);
        if fits {
            return Ok(());
        }
        let [ih, hh, b, c] = [weight_ih, weight_hh, bias_ih, bias_hh].map(Tensor::layout);
        let message = format!(
            "weights are {ih} and {hh}, biases {b} and {c}, expected {gates} rows for each unit in all"
        );
        Err(crate::op::OpError::new("recurrent", message).into())
    }

    /// `x [n, inputs]` to `[n, gates * hidden]`, without bias: that would take as much memory again.
    fn of_input(&self, x: &Tensor) -> Result<Tensor, Error> {
        x.matmul(&self.weight_ih.t()?)
    }

    /// Products of steps: `x [n, t, inputs]` to `[n, t, gates * hidden]`, in one large product instead of many small ones.
    fn of_inputs(&self, x: &Tensor) -> Result<Tensor, Error> {
        let [n, t, inputs] = [0, 1, 2].map(|axis| x.shape()[axis]);
        let of_input = self.of_input(&x.reshape(&[n * t, inputs])?)?;
        let rows = of_input.shape()[1];
        of_input.reshape(&[n, t, rows])
    }

    /// `h [n, hidden]` to `[n, gates * hidden]`, without bias.
    fn of_hidden(&self, h: &Tensor) -> Result<Tensor, Error> {
        h.matmul(&self.weight_hh.t()?)
    }

    /// With names that end in `suffix`, such as `weight_ih_l0`.
    fn state<'a>(&'a mut self, prefix: &str, suffix: &str, found: &mut Vec<(String, State<'a>)>) {
        for (name, tensor) in [
            ("weight_ih", &mut self.weight_ih),
            ("weight_hh", &mut self.weight_hh),
            ("bias_ih", &mut self.bias_ih),
            ("bias_hh", &mut self.bias_hh),
        ] {
            found.push((join(prefix, format_args!("{name}{suffix}")), State::Parameter(tensor)));
        }
    }
}

/// The parts of `[n, gates * hidden]`.
fn gates<const N: usize>(of: &Tensor, hidden: usize) -> Result<[Tensor; N], Error> {
    let parts = of.split(hidden.max(1), 1)?;
    parts.try_into().map_err(|_| {
        let message = format!("{} has not {N} gates of {hidden} units", of.layout());
        crate::op::OpError::new("recurrent", message).into()
    })
}

/// The gates of a cell: how many there are, and what is done with their sums.
pub trait Gates: Send {
    /// Gates of each unit.
    const COUNT: usize;

    /// The memory from step to step.
    type Memory: Clone;

    /// The bias of each step, which is computed once.
    fn bias(weights: &Weights) -> Result<Tensor, Error>;

    /// Steps, of what [`Weights::of_input`] gave, `[n, t, gates * hidden]` of at least one step: what goes on to the next
    /// layer, `[n, t, hidden]`, and what is remembered. `before`: `None` is as good as zeros.
    fn steps(
        weights: &Weights,
        of_input: &Tensor,
        bias: &Tensor,
        before: Option<&Self::Memory>,
    ) -> Result<(Tensor, Self::Memory), Error>;

    /// The output of a step, as it is remembered.
    fn output(memory: Self::Memory) -> Tensor;
}

/// A cell that takes a step: a [`GruCell`] or an [`LstmCell`]. As a [`Module`], it takes `x [n, inputs]` to the `h'` of a
/// step from zeros.
#[derive(Debug)]
pub struct RecurrentCell<G> {
    weights: Weights,
    gates: PhantomData<G>,
}

impl<G: Gates> RecurrentCell<G> {
    /// Weights and biases drawn evenly from `±1 / sqrt(hidden)`, as PyTorch does.
    ///
    /// # Errors
    /// If a size is absurd.
    pub fn new(runtime: &Runtime, inputs: usize, hidden: usize) -> Result<Self, Error> {
        let weights = Weights::new(runtime, inputs, hidden, G::COUNT)?;
        Ok(Self { weights, gates: PhantomData })
    }

    /// With these weights: `weight_ih [gates * hidden, inputs]`, `weight_hh [gates * hidden, hidden]`, and `bias_ih` and
    /// `bias_hh` of `[gates * hidden]`. A [`GruCell`] has 3 gates, an [`LstmCell`] has 4.
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
        weights.check(G::COUNT)?;
        Ok(Self { weights, gates: PhantomData })
    }

    /// A step from what was remembered, or from zeros, for `x [n, inputs]`.
    ///
    /// # Errors
    /// If a shape does not fit.
    pub fn step(&self, x: &Tensor, before: Option<&G::Memory>) -> Result<G::Memory, Error> {
        let of_input = self.weights.of_input(x)?;
        let [n, rows] = [of_input.shape()[0], of_input.shape()[1]];
        let of_input = of_input.reshape(&[n, 1, rows])?;
        Ok(G::steps(&self.weights, &of_input, &G::bias(&self.weights)?, before)?.1)
    }
}

impl<G: Gates> Module for RecurrentCell<G> {
    fn forward(&mut self, x: &Tensor, _mode: Mode) -> Result<Tensor, Error> {
        Ok(G::output(self.step(x, None)?))
    }

    fn state<'a>(&'a mut self, prefix: &str, found: &mut Vec<(String, State<'a>)>) {
        self.weights.state(prefix, "", found);
    }
}

/// Rows that products of weights and inputs should have at least, of all steps of a piece of a sequence.
const ROWS: usize = 512;

/// Steps of a piece at least, and at most.
const STEPS: [usize; 2] = [8, 64];

/// Steps of each of the pieces that sequences are cut into. What a piece keeps for its gradient is evicted as one.
fn piece(n: usize, length: usize) -> usize {
    let steps = ROWS.div_ceil(n.max(1)).clamp(STEPS[0], STEPS[1]);
    length.div_ceil(length.div_ceil(steps))
}

/// Layers of cells over a sequence, a [`Gru`] or an [`Lstm`]: `x [n, length, inputs]` to `[n, length, hidden]`, as PyTorch's
/// with `batch_first`. As a [`Module`], it begins with zeros.
#[derive(Debug)]
pub struct Recurrent<G>(Vec<RecurrentCell<G>>);

impl<G: Gates> Recurrent<G> {
    /// Layers of `hidden` units each. Weights and biases are drawn evenly from `±1 / sqrt(hidden)`, as PyTorch does.
    ///
    /// # Errors
    /// If a size is absurd.
    pub fn new(
        runtime: &Runtime,
        inputs: usize,
        hidden: usize,
        layers: usize,
    ) -> Result<Self, Error> {
        let of =
            |layer| RecurrentCell::new(runtime, if layer == 0 { inputs } else { hidden }, hidden);
        Ok(Self((0..layers).map(of).collect::<Result<_, _>>()?))
    }

    /// Layers of these cells, each of which reads what the one before it puts out.
    #[must_use]
    pub const fn of(cells: Vec<RecurrentCell<G>>) -> Self {
        Self(cells)
    }

    /// The outputs of the last layer, and what each layer remembers after the last step. `before`: what they remember at
    /// the beginning, if not zeros.
    ///
    /// # Errors
    /// If a shape does not fit, or there is no step.
    pub fn run(
        &self,
        x: &Tensor,
        before: Option<&[G::Memory]>,
    ) -> Result<(Tensor, Vec<G::Memory>), Error> {
        let (n, length) = match *x.shape() {
            [n, length, _] if length > 0 => (n, length),
            _ => {
                let message =
                    format!("x is {}, expected [n, length, inputs] of at least 1 step", x.layout());
                return Err(crate::op::OpError::new("recurrent", message).into());
            }
        };
        let mut pieces = x.split(piece(n, length), 1)?;
        let mut last = Vec::with_capacity(self.0.len());
        for (layer, RecurrentCell { weights, .. }) in self.0.iter().enumerate() {
            let bias = G::bias(weights)?;
            let mut memory = before.and_then(|all| all.get(layer)).cloned();
            for piece in &mut pieces {
                let of_input = weights.of_inputs(piece)?;
                let (y, next) = G::steps(weights, &of_input, &bias, memory.as_ref())?;
                (*piece, memory) = (y, Some(next));
            }
            last.extend(memory);
        }
        let y = match &*pieces {
            [piece] => piece.clone(),
            pieces => Tensor::concat(&pieces.iter().collect::<Vec<_>>(), 1)?,
        };
        Ok((y, last))
    }
}

impl<G: Gates> Module for Recurrent<G> {
    fn forward(&mut self, x: &Tensor, _mode: Mode) -> Result<Tensor, Error> {
        Ok(self.run(x, None)?.0)
    }

    fn state<'a>(&'a mut self, prefix: &str, found: &mut Vec<(String, State<'a>)>) {
        for (layer, cell) in self.0.iter_mut().enumerate() {
            cell.weights.state(prefix, &format!("_l{layer}"), found);
        }
    }
}
