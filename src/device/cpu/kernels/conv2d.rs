//! 2-D convolution and its gradients on the cpu.

mod correlate;
mod grad_weight;
mod shape;
mod simd;
#[cfg(test)]
mod tests;
mod windows;

pub use shape::ConvShape;

use correlate::Correlation;
use grad_weight::WeightGradient;
use simd::Level;

/// Floats of scratch that [`forward`] needs.
#[must_use]
pub fn workspace_len_forward(shape: &ConvShape) -> usize {
    Correlation::forward(shape).workspace_len()
}

/// Floats of scratch that [`grad_input`] needs.
#[must_use]
pub fn workspace_len_grad_input(shape: &ConvShape) -> usize {
    Correlation::grad_input(shape).workspace_len()
}

/// Floats of scratch that [`grad_weight`] needs.
#[must_use]
pub fn workspace_len_grad_weight(shape: &ConvShape) -> usize {
    WeightGradient::new(shape).workspace_len()
}

/// `y[n][o] = sum over i, kh, kw of weight[o][i][kh][kw] * x[n][i]` at the window of each output.
///
/// # Panics
/// If a slice does not have the length that `shape` says, or `workspace` is shorter than
/// [`workspace_len_forward`].
pub fn forward(shape: &ConvShape, x: &[f32], weight: &[f32], y: &mut [f32], workspace: &mut [f32]) {
    assert_eq!(x.len(), shape.input_len(), "length of x");
    assert_eq!(weight.len(), shape.weight_len(), "length of weight");
    assert_eq!(y.len(), shape.output_len(), "length of y");
    Correlation::forward(shape).run(Level::detect(), x, weight, y, workspace);
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
    Correlation::grad_input(shape).run(Level::detect(), dy, weight, dx, workspace);
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
    WeightGradient::new(shape).run(Level::detect(), x, dy, dw, workspace);
}
