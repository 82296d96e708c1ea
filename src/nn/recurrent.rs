//! Recurrent layers: cells that compute one step, and layers that apply cells to every step of a
//! sequence.

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

/// Weights of a cell. The value of each gate is the input times `weight_ih`, plus the memory times
/// `weight_hh`, plus the biases.
#[derive(Debug)]
pub struct Weights {
    /// `[gates * hidden, inputs]`
    weight_ih: Tensor,
    /// `[gates * hidden, hidden]`
    weight_hh: Tensor,
    /// Two biases of `[gates * hidden]` each, as in PyTorch. For most gates, a single bias would
    /// suffice, because the two biases are added.
    bias_ih: Tensor,
    bias_hh: Tensor,
}

impl Weights {
    /// Draws all weights uniformly from `±1 / sqrt(hidden)`, as in PyTorch.
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

    /// Number of units.
    fn hidden(&self) -> usize {
        self.weight_hh.shape().last().copied().unwrap_or(0)
    }

    /// Fails unless the weights and biases have the shapes for `gates` gates.
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

    /// Multiplies an input by its weights: `x [n, inputs]` to `[n, gates * hidden]`, without bias.
    /// Adding the bias here would need memory for a second tensor `[n, gates * hidden]`.
    fn of_input(&self, x: &Tensor) -> Result<Tensor, Error> {
        x.matmul(&self.weight_ih.t()?)
    }

    /// Multiplies the inputs of all steps by their weights: `x [n, t, inputs]` to
    /// `[n, t, gates * hidden]`. One large product is faster than many small products.
    fn of_inputs(&self, x: &Tensor) -> Result<Tensor, Error> {
        let [n, t, inputs] = [0, 1, 2].map(|axis| x.shape()[axis]);
        let of_input = self.of_input(&x.reshape(&[n * t, inputs])?)?;
        let rows = of_input.shape()[1];
        of_input.reshape(&[n, t, rows])
    }

    /// Multiplies the memory of a cell by its weights: `h [n, hidden]` to `[n, gates * hidden]`,
    /// without bias.
    fn of_hidden(&self, h: &Tensor) -> Result<Tensor, Error> {
        h.matmul(&self.weight_hh.t()?)
    }

    /// Adds all weights to `found`, with names that end in `suffix`, such as `weight_ih_l0`.
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

/// Splits `[n, gates * hidden]` into one part for each gate.
fn gates<const N: usize>(of: &Tensor, hidden: usize) -> Result<[Tensor; N], Error> {
    let parts = of.split(hidden.max(1), 1)?;
    parts.try_into().map_err(|_| {
        let message = format!("{} does not have {N} gates of {hidden} units", of.layout());
        crate::op::OpError::new("recurrent", message).into()
    })
}

/// Gates of a cell: their number, and the computation of the next memory from the values of the
/// gates.
pub trait Gates: Send {
    /// Number of gates of each unit.
    const COUNT: usize;

    /// Memory of a cell between steps.
    type Memory: Clone;

    /// Bias that is added at each step. Callers compute the bias once for a sequence.
    fn bias(weights: &Weights) -> Result<Tensor, Error>;

    /// Runs the steps of a sequence. `of_input` is the result of [`Weights::of_inputs`],
    /// `[n, t, gates * hidden]` with at least one step. `before` is the memory before the first
    /// step; `None` stands for zeros. Returns the input of the next layer, `[n, t, hidden]`, and
    /// the memory after the last step.
    fn steps(
        weights: &Weights,
        of_input: &Tensor,
        bias: &Tensor,
        before: Option<&Self::Memory>,
    ) -> Result<(Tensor, Self::Memory), Error>;

    /// Output of a step, taken from the memory after the step.
    fn output(memory: Self::Memory) -> Tensor;
}

/// A cell that computes one step: a [`GruCell`] or an [`LstmCell`]. As a [`Module`], a cell
/// computes one step from a memory of zeros, and maps `x [n, inputs]` to the new memory `h'`.
///
/// ```
/// use remat::nn::LstmCell;
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("1MiB").cpu()?;
/// let cell = LstmCell::new(&runtime, 3, 4)?;
/// let x = runtime.normal(&[2, 3], 0.0, 1.0)?;
/// let first = cell.step(&x, None)?;
/// let second = cell.step(&x, Some(&first))?;
/// assert_eq!((second.h.shape(), second.c.shape()), (&[2, 4][..], &[2, 4][..]));
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct RecurrentCell<G> {
    weights: Weights,
    gates: PhantomData<G>,
}

impl<G: Gates> RecurrentCell<G> {
    /// Makes a cell with weights and biases drawn uniformly from `±1 / sqrt(hidden)`, as in
    /// PyTorch.
    ///
    /// ```
    /// use remat::nn::{GruCell, parameters};
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let mut cell = GruCell::new(&runtime, 3, 4)?;
    /// let (name, weight) = parameters(&mut cell).next().unwrap();
    /// assert_eq!((name.as_str(), weight.shape()), ("weight_ih", &[12, 3][..]));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if a tensor would have more than `isize::MAX` bytes.
    pub fn new(runtime: &Runtime, inputs: usize, hidden: usize) -> Result<Self, Error> {
        let weights = Weights::new(runtime, inputs, hidden, G::COUNT)?;
        Ok(Self { weights, gates: PhantomData })
    }

    /// Makes a cell with the given weights: `weight_ih [gates * hidden, inputs]`, `weight_hh
    /// [gates * hidden, hidden]`, and `bias_ih` and `bias_hh` of `[gates * hidden]`. A [`GruCell`]
    /// has 3 gates, an [`LstmCell`] has 4.
    ///
    /// ```
    /// use remat::nn::GruCell;
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let (weight, bias) = (runtime.zeros(&[6, 2])?, runtime.zeros(&[6])?);
    /// let cell = GruCell::of(weight.clone(), weight, bias.clone(), bias)?;
    /// // All sums are 0, so the new memory is half of the old one.
    /// let before = runtime.full(&[1, 2], 8.0)?;
    /// let after = cell.step(&runtime.ones(&[1, 2])?, Some(&before))?;
    /// assert_eq!(after.to_vec::<f32>()?, [4.0, 4.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if the shapes of the weights and biases do not agree.
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

    /// Computes a step for `x [n, inputs]` from the memory `before`, or from a memory of zeros if
    /// `before` is `None`. Returns the new memory.
    ///
    /// ```
    /// use remat::nn::GruCell;
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let cell = GruCell::new(&runtime, 3, 4)?;
    /// let x = runtime.normal(&[2, 3], 0.0, 1.0)?;
    /// let first = cell.step(&x, None)?;
    /// assert_eq!(cell.step(&x, Some(&first))?.shape(), [2, 4]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if `x` or the memory does not have the shape that the cell requires.
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

/// Minimum number of rows when the inputs of a piece of the sequence are multiplied by the weights.
/// The matrix product has one row for each step of the piece and each entry of the batch.
const ROWS: usize = 512;

/// Smallest and largest number of steps of a piece of the sequence.
const STEPS: [usize; 2] = [8, 64];

/// Number of steps of a piece of the sequence. Sequences are cut into pieces, so that the values
/// that one piece keeps for its gradient can be evicted together.
fn piece(n: usize, length: usize) -> usize {
    let steps = ROWS.div_ceil(n.max(1)).clamp(STEPS[0], STEPS[1]);
    length.div_ceil(length.div_ceil(steps))
}

/// Layers of cells over a sequence, a [`Gru`] or an [`Lstm`]: `x [n, length, inputs]` to
/// `[n, length, hidden]`, like PyTorch's layers with `batch_first`. As a [`Module`], the layers
/// start from memories of zeros.
///
/// ```
/// use remat::nn::Gru;
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("1MiB").cpu()?;
/// let mut gru = Gru::new(&runtime, 3, 4, 2)?;
/// let x = runtime.normal(&[2, 5, 3], 0.0, 1.0)?;
/// assert_eq!(gru.forward(&x, Mode::Train)?.shape(), [2, 5, 4]);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Recurrent<G>(Vec<RecurrentCell<G>>);

impl<G: Gates> Recurrent<G> {
    /// Makes `layers` layers of `hidden` units each. Weights and biases are drawn uniformly from
    /// `±1 / sqrt(hidden)`, as in PyTorch.
    ///
    /// ```
    /// use remat::nn::{Lstm, parameters};
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let mut lstm = Lstm::new(&runtime, 3, 4, 2)?;
    /// let names: Vec<String> = parameters(&mut lstm).map(|(name, _)| name).collect();
    /// assert_eq!(names[..2], ["weight_ih_l0", "weight_hh_l0"]);
    /// assert_eq!(names.len(), 8);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if a tensor would have more than `isize::MAX` bytes.
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

    /// Makes layers of the given cells. Each layer reads the output of the previous layer.
    ///
    /// ```
    /// use remat::nn::{Gru, GruCell};
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let cells = vec![GruCell::new(&runtime, 3, 8)?, GruCell::new(&runtime, 8, 4)?];
    /// let mut gru = Gru::of(cells);
    /// let x = runtime.normal(&[2, 5, 3], 0.0, 1.0)?;
    /// assert_eq!(gru.forward(&x, Mode::Infer)?.shape(), [2, 5, 4]);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub const fn of(cells: Vec<RecurrentCell<G>>) -> Self {
        Self(cells)
    }

    /// Runs all layers over a sequence. `before` holds the memory of each layer before the first
    /// step; `None` stands for zeros. Returns the outputs of the last layer, and the memory of each
    /// layer after the last step.
    ///
    /// # Errors
    /// [`Error::Op`] if the shape of `x` or of a memory is wrong, or the sequence has no step.
    ///
    /// ```
    /// use remat::nn::Lstm;
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let lstm = Lstm::new(&runtime, 3, 4, 2)?;
    /// let x = runtime.normal(&[2, 5, 3], 0.0, 1.0)?;
    /// let (y, memory) = lstm.run(&x, None)?;
    /// assert_eq!((y.shape(), memory.len()), (&[2, 5, 4][..], 2));
    /// // The sequence goes on.
    /// let (y, _) = lstm.run(&x, Some(&memory))?;
    /// # Ok::<(), Error>(())
    /// ```
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
