//! Tensors of `bf16`, which have half the bytes of f32 tensors. Ops on `bf16` tensors compute in
//! f32.
//!
//! An op that accepts [`DType::BF16`] declares how it can be cut into pieces:
//! [`Definition::cuts`](super::definition::Definition::cuts) returns [`Cuts`]. For each operand,
//! [`Cuts`] names the dimension along which the operand is cut, or says that each piece needs the
//! whole operand. The kernels of the op compute in f32 only, and run on one piece after another.
//! Before a piece runs, its inputs are widened to f32 in the workspace. After the piece has run,
//! its outputs are rounded to `bf16`. Pieces are small compared with the tensors, so the workspace
//! is smaller than the memory that `bf16` saves. The cuts of an op depend only on shapes, so every
//! run gives the same bits.
//!
//! One op may have both `bf16` and f32 operands, such as `bf16` activations and f32 parameters.

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

/// Narrow type: a tensor of this type takes half the bytes of an f32 tensor.
const NARROW: DType = DType::BF16;

/// Description of how an op is cut into pieces: the part of each operand that belongs to a piece.
#[derive(Clone, Debug)]
pub(super) struct Cuts {
    /// Cut of each input.
    pub inputs: SmallVec<[Cut; 6]>,
    /// Cut of each output. An output that is updated in place is cut like the input that holds its
    /// old value.
    pub outputs: SmallVec<[Made; 3]>,
}

/// Part of an input that a piece reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// A range of entries along the given dimension. All operands that are cut must have equally
    /// many entries along their dimensions.
    Along(usize),
    /// The whole input.
    Whole,
}

/// Part of an output that a piece writes, and the type of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Made {
    how: How,
    /// Whether the output is stored as `bf16`, instead of the type that the kernel writes.
    narrow: bool,
}

/// How an output is made from the results of the pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// Each piece writes its own range of entries along a dimension. With [`Cut::Whole`], the op
    /// runs as one piece, which writes the whole output.
    Part(Cut),
    /// The output is the sum of the results of all pieces.
    Sum,
}

impl Made {
    /// An output that is cut, and stored as `bf16` like the activations.
    pub const fn activations(cut: Cut) -> Self {
        Self { how: How::Part(cut), narrow: true }
    }

    /// An output that is cut, and stored in the type that the kernel writes: statistics, or
    /// positions of elements.
    pub const fn plain(cut: Cut) -> Self {
        Self { how: How::Part(cut), narrow: false }
    }

    /// A sum over all pieces, stored in f32: the gradient of a parameter.
    pub const fn sum() -> Self {
        Self { how: How::Sum, narrow: false }
    }

    /// A sum over all pieces that is rounded to `bf16` only once, after the last piece.
    pub const fn sum_of_activations() -> Self {
        Self { how: How::Sum, narrow: true }
    }
}

impl Cuts {
    /// Cuts of an op that runs in one piece.
    pub fn none(inputs: usize, outputs: impl IntoIterator<Item = Made>) -> Self {
        Self::new((0..inputs).map(|_| Cut::Whole), outputs)
    }

    /// Cuts input `i` as `inputs[i]` says, and output `i` as `outputs[i]` says.
    pub fn new(
        inputs: impl IntoIterator<Item = Cut>,
        outputs: impl IntoIterator<Item = Made>,
    ) -> Self {
        Self { inputs: inputs.into_iter().collect(), outputs: outputs.into_iter().collect() }
    }

    /// Cuts of an elementwise op with one output, whose inputs broadcast to the output.
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

/// The longest of the first `among` dimensions; the outermost dimension on a tie. `None` if `among`
/// is 0.
pub(super) fn longest(shape: &Dims, among: usize) -> Option<usize> {
    (0..among).max_by_key(|&axis| (shape[axis], std::cmp::Reverse(axis)))
}

/// A cut along the longest of the first `among` dimensions.
pub(super) fn along_longest(shape: &Dims, among: usize) -> Cut {
    longest(shape, among).map_or(Cut::Whole, Cut::Along)
}

/// A cut along the longest dimension other than `axis`.
pub(super) fn along_longest_but(shape: &Dims, axis: usize) -> Cut {
    let others = (0..shape.len()).filter(|&other| other != axis);
    let longest = others.max_by_key(|&other| (shape[other], std::cmp::Reverse(other)));
    longest.map_or(Cut::Whole, Cut::Along)
}

/// Whether a tensor is stored as `bf16`.
pub(super) fn is_narrow(layout: &Layout) -> bool {
    layout.dtype() == NARROW
}

/// Layout of an operand as the kernel sees it, with f32 in place of `bf16`.
fn wide(layout: &Layout) -> Layout {
    if is_narrow(layout) { layout.with_dtype(FLOAT) } else { *layout }
}

/// Infers the outputs of an op if some inputs are `bf16`. `fault` is the error that the op returned
/// for the inputs. The function returns `fault` if the op cannot be cut. In the messages of other
/// errors, f32 stands for the type of a `bf16` input.
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
