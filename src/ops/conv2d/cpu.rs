//! 2-D convolution and its gradients on the CPU.
//!
//! The convolution and its two gradients all compute with a rearranged copy of the image. In the
//! copy, all pixels by which one kernel element is multiplied for a strip of output rows are
//! contiguous. Each channel and each kernel *column* has its own copy of the image rows, called a
//! plane. A plane is shifted by the kernel column, and cropped to the width of the output. All
//! kernel *rows* share one plane: each kernel row starts reading one row below the previous kernel
//! row. The figure shows the planes for a 3x3 kernel, padding 1 and an image of 4 columns:
//!
//! ```text
//!   image          plane 0 (left)    plane 1 (middle)   plane 2 (right)
//!                  0 0 0 0  <- k.row 0 reads from here  0 0 0 0
//!   a b c d        0 a b c  <- k.row 1    a b c d       b c d 0
//!   e f g h        0 e f g  <- k.row 2    e f g h       f g h 0
//!   i j k l        0 i j k                i j k l       j k l 0
//!                  0 0 0 0                0 0 0 0       0 0 0 0
//!
//!   left element of the middle kernel row, at all 12 outputs:  0 a b c 0 e f g 0 i j k
//! ```
//!
//! A convolution is therefore a matrix product, weights times windows, and each row of the windows
//! matrix is contiguous in a buffer. The buffer has as many elements as the image times the width
//! of the kernel. The buffer fits in the cache, because images are packed one by one, or strip by
//! strip. Every computed output is used. If the length of rows is a multiple of a cache line, no
//! vector load straddles two cache lines. With a stride `s`, a plane has only every `s`-th column
//! of the image, and rows that are `s` apart become neighbours in the plane.
//!
//! - [`Kind::Forward`] multiplies weights and windows of the input.
//! - [`Kind::GradInput`] multiplies weights and windows of `dy`, with the kernel rotated by 180
//!   degrees. `correlate.rs` implements `Kind::GradInput` and `Kind::Forward`.
//! - [`Kind::GradWeight`] takes dot products of rows of `dy` and windows of the input; see
//!   `grad_weight.rs`.
//!
//! `unfolded.rs` computes convolutions of batches of very small images. The code in `unfolded.rs`
//! copies each window of the images to a row of a matrix, and does not pack the weights.
//!
//! The inner loops (`simd.rs`) exist for AVX-512, AVX2, NEON and in plain Rust. The instruction set
//! is chosen at run time.
//!
//! Results have the same bits for any number of threads. The split of the work depends only on the
//! shape, and partial sums are added in a fixed order. The padding is multiplied like any other
//! zeros, so that padding times an infinite or NaN weight or gradient gives NaN.

mod correlate;
mod grad_weight;
#[allow(
    unsafe_code,
    reason = "vector loads and stores, and code compiled for a detected processor"
)]
pub(in crate::ops) mod simd;
mod strided;
#[cfg(test)]
mod tests;
mod turned;
mod unfolded;
mod windows;

use crate::device::conv_shape::{ConvShape, Kind};

use correlate::Correlation;
use grad_weight::WeightGradient;
use simd::Level;
use unfolded::Unfolded;

/// Number of scratch floats that [`run`] needs.
#[must_use]
pub fn workspace_len(kind: Kind, shape: &ConvShape) -> usize {
    if shape.is_empty() {
        return 0;
    }
    match (kind, Unfolded::of(shape)) {
        (Kind::Forward, Some(plan)) => plan.workspace_len_forward(),
        (Kind::Forward, None) => Correlation::forward(shape).workspace_len(),
        (Kind::GradInput, Some(plan)) => plan.workspace_len_grad_input(),
        (Kind::GradInput, None) => Correlation::grad_input(shape).workspace_len(),
        (Kind::GradWeight, Some(plan)) => plan.workspace_len_grad_weight(),
        (Kind::GradWeight, None) => WeightGradient::new(shape).workspace_len(),
    }
}

/// Computes a convolution or one of its gradients. `a` and `b` are the operands, in the order in
/// which the description of the [`Kind`] names them. The convolution is `y[n][o][q] = sum of
/// weight[o][i][k] * x[n][i][q * stride - padding + k * dilation]` over channels `i` and kernel
/// elements `k`.
///
/// # Panics
/// If a slice does not have the length that `shape` says, or `workspace` is shorter than
/// [`workspace_len`].
pub fn run(
    kind: Kind,
    shape: &ConvShape,
    [a, b]: [&[f32]; 2],
    result: &mut [f32],
    workspace: &mut [f32],
) {
    let [x, weight, y] = [shape.input_len(), shape.weight_len(), shape.output_len()];
    let lens = match kind {
        Kind::Forward => [x, weight, y],
        Kind::GradInput => [y, weight, x],
        Kind::GradWeight => [x, y, weight],
    };
    assert_eq!([a.len(), b.len(), result.len()], lens, "lengths of operands");
    if shape.is_empty() {
        return result.fill(0.0);
    }
    run_at(Level::detect(), kind, shape, [a, b], result, workspace);
}

/// Computes like [`run`], with the inner loops for the instruction set `level`. No operand is
/// empty.
fn run_at(
    level: Level,
    kind: Kind,
    shape: &ConvShape,
    [a, b]: [&[f32]; 2],
    result: &mut [f32],
    workspace: &mut [f32],
) {
    match (kind, Unfolded::of(shape)) {
        (Kind::Forward, Some(plan)) => plan.forward(level, a, b, result, workspace),
        (Kind::Forward, None) => Correlation::forward(shape).run(level, a, b, result, workspace),
        (Kind::GradInput, Some(plan)) => plan.grad_input(level, a, b, result, workspace),
        (Kind::GradInput, None) => {
            Correlation::grad_input(shape).run(level, a, b, result, workspace)
        }
        (Kind::GradWeight, Some(plan)) => plan.grad_weight(level, a, b, result, workspace),
        (Kind::GradWeight, None) => WeightGradient::new(shape).run(level, a, b, result, workspace),
    }
}
