//! Batch normalization, by the statistics of a batch or by given ones, and its gradient.

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod grad;
mod infer;
mod train;

pub use grad::BatchNormGrad;
pub use infer::BatchNormInfer;
pub use train::{BatchNorm, BatchNormOutput};

use super::check::{Fault, shaped};
use super::samples::{Draw, Operand, floats};
use super::{FLOAT, Tensor};
use crate::error::Error;
use crate::layout::{Dims, Layout};

/// What a batch normalization knows of each channel: `[c]` each.
#[derive(Clone, Copy, Debug)]
pub struct BatchNormParameters<'a> {
    /// Factor.
    pub gamma: &'a Tensor,
    /// Summand.
    pub beta: &'a Tensor,
    /// Mean of the batches so far.
    pub running_mean: &'a Tensor,
    /// Variance of the batches so far.
    pub running_var: &'a Tensor,
}

impl<'a> BatchNormParameters<'a> {
    /// The inputs of [`BatchNorm`] and [`BatchNormInfer`].
    const fn beside(&self, x: &'a Tensor) -> [&'a Tensor; 5] {
        [x, self.gamma, self.beta, self.running_mean, self.running_var]
    }
}

/// The number of channels of `x`, if all of `vectors` have an element for each.
fn channels(x: &Layout, roles: &[&str], vectors: &[Layout]) -> Result<usize, Fault> {
    let &[_, c, ..] = &**x.shape() else {
        return Err(format!("x is {x} of rank {}, expected at least 2", x.rank()));
    };
    roles.iter().zip(vectors).try_for_each(|(role, vector)| shaped(vector, role, FLOAT, &[c]))?;
    Ok(c)
}

/// `x` as the kernels of the processor see it.
fn seen(x: &Layout) -> cpu::Channels {
    let shape = x.shape();
    cpu::Channels { n: shape[0], c: shape[1], inner: shape[2..].iter().product() }
}

/// A vector with an element for each channel, to lie beside `x`, which has `rank` dimensions: `[1, c, 1, ..]`.
fn beside(vector: &Tensor, rank: usize) -> Result<Tensor, Error> {
    vector.reshape(&Dims::new(&vec![1; rank]).with(1, vector.layout().elements()))
}

/// All axes but that of the channels.
fn others(rank: usize) -> Vec<usize> {
    (0..rank).filter(|&axis| axis != 1).collect()
}

/// Shapes that are worth a test: few channels and many, which lie together or not.
const SHAPES: [&[usize]; 18] = [
    &[2, 3],
    &[1, 1, 1],
    &[2048, 512],
    &[64, 16_384],
    &[2, 400_001],
    &[400_001, 2],
    &[30_001, 33],
    &[501, 4095],
    &[3, 100_001, 3],
    &[300, 50, 7, 9],
    &[64, 64, 2, 2],
    &[2000, 5, 3, 3],
    &[8, 16, 65, 63],
    &[1, 50_001, 16],
    &[1, 50_001, 4, 5],
    &[2, 3, 401, 403],
    &[2, 0, 4],
    &[0, 100_001, 4],
];

/// `x`, `gamma`, `beta`, `running_mean` and `running_var`.
fn operands(shape: &[usize]) -> [Operand; 5] {
    let c = &shape[1..2];
    [floats(shape), floats(c), floats(c), floats(c), floats(c).positive()]
}

/// The same, packed in one way or another.
fn draw_operands(draw: &mut Draw, shape: Dims) -> [Operand; 5] {
    let c = [shape[1]];
    let [gamma, beta, mean] = [(); 3].map(|()| draw.packed(c));
    [draw.packed(shape), gamma, beta, mean, draw.packed(c).positive()]
}

/// Small enough to matter, large enough that nothing is divided by nearly nothing.
fn draw_eps(draw: &mut Draw) -> f32 {
    [0.25, 1.0, 4.0][draw.below(3)]
}

/// `x` of an absurd shape, and a vector for its channels.
fn absurd(draw: &mut Draw) -> [Layout; 2] {
    let shape = draw.absurd_dims();
    let c = Dims::new(&shape[shape.len().min(1)..shape.len().min(2)]);
    [Layout::contiguous(FLOAT, shape), Layout::contiguous(FLOAT, c)]
}
