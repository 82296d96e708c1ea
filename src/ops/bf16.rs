//! Tensors of `bf16`: stored in half the bytes, computed with in f32.
//!
//! An op whose floats may be [`DType::BF16`] says how it can be cut into pieces ([`Cuts`], by
//! [`Definition::cuts`](super::definition::Definition::cuts)): along which dimension of each operand, or that an operand
//! is needed whole. Its kernels know nothing of `bf16`. They run on one piece after the other, which is widened to f32 in
//! the workspace before and rounded after; pieces are small next to the tensors, so that the workspace does not
//! take what storing saves. How an op is cut depends on shapes alone, so the bits are the same on every run.
//!
//! Operands of both types go together: activations are `bf16`, parameters and statistics f32.

mod cast;
mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod pieces;

pub use cast::Cast;
pub(super) use cpu::MOST as MOST_ON_CPU;
#[cfg(feature = "cuda")]
pub(super) use cuda::MOST as MOST_ON_GPU;
pub(super) use pieces::Pieces;

use super::FLOAT;
use super::check::Fault;
use super::definition::Definition;
use crate::layout::{DType, Dims, Layout};
use crate::op::Outputs;
use smallvec::SmallVec;

/// The type of what is stored in half the bytes.
const NARROW: DType = DType::BF16;

/// What a piece of an op has of each operand.
#[derive(Clone, Debug)]
pub(super) struct Cuts {
    /// Of each input.
    pub inputs: SmallVec<[Cut; 6]>,
    /// Of each output. Those that are updated in place are cut like their inputs.
    pub outputs: SmallVec<[Made; 3]>,
}

/// What a piece has of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// Its entries along this dimension: as many in each operand that is cut.
    Along(usize),
    /// All of it.
    Whole,
}

/// What a piece makes of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Made {
    how: How,
    /// Stored as `bf16`; otherwise as the kernel makes it.
    narrow: bool,
}

/// How an output is put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// From entries along a dimension, or from the only piece.
    Part(Cut),
    /// As the sum of what the pieces make.
    Sum,
}

impl Made {
    /// Like the activations: `bf16`.
    pub const fn activations(cut: Cut) -> Self {
        Self { how: How::Part(cut), narrow: true }
    }

    /// As the kernel makes it: statistics, places.
    pub const fn plain(cut: Cut) -> Self {
        Self { how: How::Part(cut), narrow: false }
    }

    /// The sum of all pieces: the gradient of a parameter.
    pub const fn sum() -> Self {
        Self { how: How::Sum, narrow: false }
    }

    /// The sum of all pieces, rounded once.
    pub const fn sum_of_activations() -> Self {
        Self { how: How::Sum, narrow: true }
    }
}

impl Cuts {
    /// In one piece.
    pub fn none(inputs: usize, outputs: impl IntoIterator<Item = Made>) -> Self {
        Self::new((0..inputs).map(|_| Cut::Whole), outputs)
    }

    /// So.
    pub fn new(
        inputs: impl IntoIterator<Item = Cut>,
        outputs: impl IntoIterator<Item = Made>,
    ) -> Self {
        Self { inputs: inputs.into_iter().collect(), outputs: outputs.into_iter().collect() }
    }

    /// Of an op that computes each element of its only output from those of inputs that broadcast to it.
    pub fn elementwise(inputs: &[Layout], output: &Layout) -> Self {
        let Some(axis) = longest(output.shape(), output.rank()) else {
            return Self::none(inputs.len(), [Made::activations(Cut::Whole)]);
        };
        let shape = output.shape();
        let cut = |x: &Layout| match (axis + x.rank()).checked_sub(shape.len()) {
            Some(own) if x.shape()[own] == shape[axis] => Cut::Along(own),
            _ => Cut::Whole,
        };
        Self::new(inputs.iter().map(cut), [Made::activations(Cut::Along(axis))])
    }
}

/// The longest of the first `among` dimensions, and of these the outermost. None if there are none.
pub(super) fn longest(shape: &Dims, among: usize) -> Option<usize> {
    (0..among).max_by_key(|&axis| (shape[axis], std::cmp::Reverse(axis)))
}

/// Where to cut operands along the longest of their first `among` dimensions.
pub(super) fn along_longest(shape: &Dims, among: usize) -> Cut {
    longest(shape, among).map_or(Cut::Whole, Cut::Along)
}

/// Where to cut operands along the longest dimension but this one.
pub(super) fn along_longest_but(shape: &Dims, axis: usize) -> Cut {
    let others = (0..shape.len()).filter(|&other| other != axis);
    let longest = others.max_by_key(|&other| (shape[other], std::cmp::Reverse(other)));
    longest.map_or(Cut::Whole, Cut::Along)
}

/// Whether it is stored as `bf16`.
pub(super) fn is_narrow(layout: &Layout) -> bool {
    layout.dtype() == NARROW
}

/// As the kernel sees it.
fn wide(layout: &Layout) -> Layout {
    if is_narrow(layout) { layout.with_dtype(FLOAT) } else { *layout }
}

/// The outputs of an op that is given `bf16`, if it can be; `fault` is what it said of these inputs before. Its messages
/// take a `bf16` for an f32.
pub(super) fn infer(
    op: &dyn Definition,
    inputs: &[Layout],
    fault: Fault,
) -> Result<Outputs, Fault> {
    let wanted = op.inputs();
    let widened = inputs.iter().enumerate();
    let widened = widened.map(|(i, x)| if wanted.is_float(i) { wide(x) } else { *x });
    let widened: SmallVec<[Layout; 6]> = widened.collect();
    let mut outputs = wanted.check(&widened).and_then(|()| op.infer(&widened))?;
    let layouts: SmallVec<[Layout; 3]> =
        (0..outputs.len()).map(|i| outputs.layout(i, |i| widened[i])).collect();
    let Some(cuts) = op.cuts(&widened, &layouts) else { return Err(fault) };
    let targets = outputs.targets();
    if let Outputs::Fresh(fresh) | Outputs::Updates { fresh, .. } = &mut outputs {
        for (layout, made) in fresh.iter_mut().zip(&cuts.outputs[targets..]) {
            if made.narrow {
                *layout = layout.with_dtype(NARROW);
            }
        }
    }
    Ok(outputs)
}
