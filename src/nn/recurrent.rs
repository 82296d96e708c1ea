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

/// What a step of a cell is made of: of the input and of what it remembers, a sum for each gate of each unit.
#[derive(Debug)]
struct Weights {
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

    /// Units, if these are weights of so many gates.
    fn hidden(&self, gates: usize) -> Result<usize, Error> {
        let Self { weight_ih, weight_hh, bias_ih, bias_hh } = self;
        let hidden = weight_hh.shape().last().copied().unwrap_or(0);
        let rows = hidden.saturating_mul(gates);
        let fits = weight_ih.rank() == 2
            && weight_ih.shape()[0] == rows
            && *weight_hh.shape() == [rows, hidden]
            && [bias_ih, bias_hh].iter().all(|bias| *bias.shape() == [rows]);
        if fits {
            return Ok(hidden);
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

    /// The same of steps: `x [n, t, inputs]` to `[n, t, gates * hidden]`, in one large product instead of many small ones.
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

/// A cell, as a layer unrolls it.
trait Cell: Send {
    /// What is remembered from step to step.
    type Memory: Clone;

    fn weights(&self) -> &Weights;

    fn weights_mut(&mut self) -> &mut Weights;

    /// What is the same in each step, and is computed once.
    fn bias(&self) -> Result<Tensor, Error>;

    /// Steps, of what [`Weights::of_input`] gave, `[n, t, gates * hidden]` of at least one step: what goes on to the next
    /// layer, `[n, t, hidden]`, and what is remembered. `before`: `None` is as good as zeros.
    fn steps(
        &self,
        of_input: &Tensor,
        bias: &Tensor,
        before: Option<&Self::Memory>,
    ) -> Result<(Tensor, Self::Memory), Error>;
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

/// Cells above each other, each of which reads what the one below it put out.
#[derive(Debug)]
struct Layers<C>(Vec<C>);

impl<C: Cell> Layers<C> {
    fn new(
        inputs: usize,
        hidden: usize,
        layers: usize,
        cell: impl Fn(usize) -> Result<C, Error>,
    ) -> Result<Self, Error> {
        let of = |layer| cell(if layer == 0 { inputs } else { hidden });
        Ok(Self((0..layers).map(of).collect::<Result<_, _>>()?))
    }

    /// `x [n, length, inputs]` to `[n, length, hidden]`, and what each layer remembers at the end.
    fn run(
        &self,
        x: &Tensor,
        before: Option<&[C::Memory]>,
    ) -> Result<(Tensor, Vec<C::Memory>), Error> {
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
        for (layer, cell) in self.0.iter().enumerate() {
            let bias = cell.bias()?;
            let mut memory = before.and_then(|all| all.get(layer)).cloned();
            for piece in &mut pieces {
                let of_input = cell.weights().of_inputs(piece)?;
                let (y, next) = cell.steps(&of_input, &bias, memory.as_ref())?;
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

    fn state<'a>(&'a mut self, prefix: &str, found: &mut Vec<(String, State<'a>)>) {
        for (layer, cell) in self.0.iter_mut().enumerate() {
            cell.weights_mut().state(prefix, &format!("_l{layer}"), found);
        }
    }
}

/// One step of a cell, for `x [n, inputs]`.
fn step<C: Cell>(cell: &C, x: &Tensor, before: Option<&C::Memory>) -> Result<C::Memory, Error> {
    let of_input = cell.weights().of_input(x)?;
    let [n, rows] = [of_input.shape()[0], of_input.shape()[1]];
    Ok(cell.steps(&of_input.reshape(&[n, 1, rows])?, &cell.bias()?, before)?.1)
}
