//! 2-D convolution and its gradients on the CPU.
//!
//! All three functions copy the image so that the pixels which one kernel element is multiplied with, for all outputs
//! of a strip of rows, are contiguous. For each channel and kernel *column* there is a copy of the rows (a plane),
//! shifted by that column and cropped to the width of the output. Kernel *rows* need no copy of their own: they read
//! the same plane from a row further down. For a 3x3 kernel, padding 1 and an image 4 wide:
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
//! So a convolution is a matrix product, weights times windows, where each row of windows is contiguous in a buffer.
//! The buffer is larger than the image only by the width of the kernel, and it fits in the cache, because images are
//! packed one by one, or strip by strip. No output is computed and thrown away, and if the length of rows is a multiple
//! of a cache line, no vector load straddles two lines. With a stride, planes take every second (third, ...) column,
//! and rows a stride apart become neighbours.
//!
//! - [`forward`] multiplies weights and windows of the input.
//! - [`grad_input`] does the same with `dy` as the image and the kernel rotated by 180 degrees; `correlate.rs` has
//!   both.
//! - [`grad_weight()`] takes dot products of rows of `dy` and windows of the input; see `grad_weight.rs`.
//!
//! Batches of very small images go another way: `unfolded.rs` writes out their windows, and leaves the weights where they
//! are.
//!
//! The inner loops (`simd.rs`) exist for AVX-512, AVX2, NEON and in plain Rust, and are chosen at run time.
//!
//! Results have the same bits for any number of threads: work is split by the shape alone, and partial sums are added
//! in a fixed order. Padding is multiplied as zeros, so that an infinite or NaN gradient or weight gives NaN there.

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

use crate::device::conv_shape::ConvShape;

use correlate::Correlation;
use grad_weight::WeightGradient;
use simd::Level;
use unfolded::Unfolded;

/// Floats of scratch that [`forward`] needs.
#[must_use]
pub fn workspace_len_forward(shape: &ConvShape) -> usize {
    if shape.is_empty() {
        return 0;
    }
    match Unfolded::of(shape) {
        Some(plan) => plan.workspace_len_forward(),
        None => Correlation::forward(shape).workspace_len(),
    }
}

/// Floats of scratch that [`grad_input`] needs.
#[must_use]
pub fn workspace_len_grad_input(shape: &ConvShape) -> usize {
    if shape.is_empty() {
        return 0;
    }
    match Unfolded::of(shape) {
        Some(plan) => plan.workspace_len_grad_input(),
        None => Correlation::grad_input(shape).workspace_len(),
    }
}

/// Floats of scratch that [`grad_weight()`] needs.
#[must_use]
pub fn workspace_len_grad_weight(shape: &ConvShape) -> usize {
    if shape.is_empty() {
        return 0;
    }
    match Unfolded::of(shape) {
        Some(plan) => plan.workspace_len_grad_weight(),
        None => WeightGradient::new(shape).workspace_len(),
    }
}

/// `y[n][o][q] = sum of weight[o][i][k] * x[n][i][q * stride - padding + k]` over channels `i` and kernel elements `k`.
///
/// # Panics
/// If a slice does not have the length that `shape` says, or `workspace` is shorter than
/// [`workspace_len_forward`].
pub fn forward(shape: &ConvShape, x: &[f32], weight: &[f32], y: &mut [f32], workspace: &mut [f32]) {
    assert_eq!(x.len(), shape.input_len(), "length of x");
    assert_eq!(weight.len(), shape.weight_len(), "length of weight");
    assert_eq!(y.len(), shape.output_len(), "length of y");
    if shape.is_empty() {
        return y.fill(0.0);
    }
    forward_at(Level::detect(), shape, x, weight, y, workspace);
}

/// [`forward`] with these inner loops, if nothing is empty.
fn forward_at(
    level: Level,
    shape: &ConvShape,
    x: &[f32],
    weight: &[f32],
    y: &mut [f32],
    workspace: &mut [f32],
) {
    match Unfolded::of(shape) {
        Some(plan) => plan.forward(level, x, weight, y, workspace),
        None => Correlation::forward(shape).run(level, x, weight, y, workspace),
    }
}

/// The gradient of [`forward`] with respect to `x`, given the gradient `dy` of its output.
///
/// # Panics
/// If a slice does not have the length that `shape` says, or `workspace` is shorter than
/// [`workspace_len_grad_input`].
pub fn grad_input(
    shape: &ConvShape,
    dy: &[f32],
    weight: &[f32],
    dx: &mut [f32],
    workspace: &mut [f32],
) {
    assert_eq!(dy.len(), shape.output_len(), "length of dy");
    assert_eq!(weight.len(), shape.weight_len(), "length of weight");
    assert_eq!(dx.len(), shape.input_len(), "length of dx");
    if shape.is_empty() {
        return dx.fill(0.0);
    }
    grad_input_at(Level::detect(), shape, dy, weight, dx, workspace);
}

/// [`grad_input`] with these inner loops, if nothing is empty.
fn grad_input_at(
    level: Level,
    shape: &ConvShape,
    dy: &[f32],
    weight: &[f32],
    dx: &mut [f32],
    workspace: &mut [f32],
) {
    match Unfolded::of(shape) {
        Some(plan) => plan.grad_input(level, dy, weight, dx, workspace),
        None => Correlation::grad_input(shape).run(level, dy, weight, dx, workspace),
    }
}

/// The gradient of [`forward`] with respect to `weight`, given the gradient `dy` of its output.
///
/// # Panics
/// If a slice does not have the length that `shape` says, or `workspace` is shorter than
/// [`workspace_len_grad_weight`].
pub fn grad_weight(
    shape: &ConvShape,
    x: &[f32],
    dy: &[f32],
    dw: &mut [f32],
    workspace: &mut [f32],
) {
    assert_eq!(x.len(), shape.input_len(), "length of x");
    assert_eq!(dy.len(), shape.output_len(), "length of dy");
    assert_eq!(dw.len(), shape.weight_len(), "length of dw");
    if shape.is_empty() {
        return dw.fill(0.0);
    }
    grad_weight_at(Level::detect(), shape, x, dy, dw, workspace);
}

/// [`grad_weight()`] with these inner loops, if nothing is empty.
fn grad_weight_at(
    level: Level,
    shape: &ConvShape,
    x: &[f32],
    dy: &[f32],
    dw: &mut [f32],
    workspace: &mut [f32],
) {
    match Unfolded::of(shape) {
        Some(plan) => plan.grad_weight(level, x, dy, dw, workspace),
        None => WeightGradient::new(shape).run(level, x, dy, dw, workspace),
    }
}
