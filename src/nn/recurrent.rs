//! Recurrent layers: cells that take a step, and layers that unroll them over sequences.

mod gru;
mod lstm;

pub use gru::{Gru, GruCell};
pub use lstm::{Lstm, LstmCell, LstmState};

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

    /// `x [n, inputs]` to `[n, gates * hidden]`.
    fn of_input(&self, x: &Tensor) -> Result<Tensor, Error> {
        x.matmul(&self.weight_ih.t()?)?.add(&self.bias_ih)
    }

    /// `h [n, hidden]` to `[n, gates * hidden]`.
    fn of_hidden(&self, h: &Tensor) -> Result<Tensor, Error> {
        h.matmul(&self.weight_hh.t()?)?.add(&self.bias_hh)
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

/// Part `i` of `[n, gates * hidden]`.
fn gate(of: &Tensor, i: usize, hidden: usize) -> Result<Tensor, Error> {
    of.slice(1, i * hidden..(i + 1) * hidden)
}

/// A cell, as a layer unrolls it.
trait Cell: Send {
    /// What is remembered from step to step.
    type Memory: Clone;

    fn weights(&self) -> &Weights;

    fn weights_mut(&mut self) -> &mut Weights;

    /// A step, of what [`Weights::of_input`] gave. `None`: nothing is remembered, which is as good as zeros.
    fn next(&self, of_input: &Tensor, before: Option<&Self::Memory>)
    -> Result<Self::Memory, Error>;

    /// What goes on to the next layer: `[n, hidden]`.
    fn output(memory: &Self::Memory) -> &Tensor;
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
        let mut y = x.clone();
        let mut last = Vec::with_capacity(self.0.len());
        for (layer, cell) in self.0.iter().enumerate() {
            let [n, length, inputs] = [0, 1, 2].map(|axis| y.shape().get(axis).copied());
            let (Some(n), Some(length @ 1..), Some(inputs), 3) = (n, length, inputs, y.rank())
            else {
                let message =
                    format!("x is {}, expected [n, length, inputs] of at least 1 step", y.layout());
                return Err(crate::op::OpError::new("recurrent", message).into());
            };
            // Of all steps at once: one large product instead of many small ones.
            let of_input = cell.weights().of_input(&y.reshape(&[n * length, inputs])?)?;
            let rows = of_input.shape()[1];
            let of_input = of_input.reshape(&[n, length, rows])?;
            let mut memory = before.and_then(|all| all.get(layer)).cloned();
            let mut outputs = Vec::with_capacity(length);
            for t in 0..length {
                let of_input = of_input.slice(1, t..=t)?.reshape(&[n, rows])?;
                let next = cell.next(&of_input, memory.as_ref())?;
                outputs.push(C::output(&next).clone());
                memory = Some(next);
            }
            y = Tensor::stack(&outputs.iter().collect::<Vec<_>>(), 1)?;
            last.extend(memory);
        }
        Ok((y, last))
    }

    fn state<'a>(&'a mut self, prefix: &str, found: &mut Vec<(String, State<'a>)>) {
        for (layer, cell) in self.0.iter_mut().enumerate() {
            cell.weights_mut().state(prefix, &format!("_l{layer}"), found);
        }
    }
}

/// The next state of a cell as a module: a step with nothing remembered.
fn first_step<C: Cell>(cell: &C, x: &Tensor) -> Result<Tensor, Error> {
    Ok(C::output(&cell.next(&cell.weights().of_input(x)?, None)?).clone())
}
