//! 2-D convolution and its two gradients. Of `x`, `weight` and `y`, or their gradients, each op computes one from the
//! other two.
//!
//! All three are linear in each of their inputs, so the gradients of each op are the other two ops.

pub(super) mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod forward;
mod grad_input;
mod grad_weight;
mod samples;
mod shape;

pub use forward::Conv2d;
pub use grad_input::Conv2dGradInput;
pub use grad_weight::Conv2dGradWeight;

use super::check::{Fault, of_windows, windows};
use crate::layout::{Dims, Layout};

/// Fails unless `dy` has an element per window.
fn expect_windows(
    dy: &Layout,
    input: [usize; 2],
    kernel: [usize; 2],
    conv: Conv2d,
) -> Result<(), Fault> {
    of_windows(dy, windows(input, kernel, conv.stride, conv.padding)?)
}

/// Height and width of images, or of a kernel.
fn sides(shape: Dims) -> [usize; 2] {
    [shape[2], shape[3]]
}

/// Multiplications and additions of `sums` sums, each over the window and input channels of `weight`.
fn flops(sums: usize, weight: &Layout) -> f64 {
    let [channels, kh, kw] = [1, 2, 3].map(|axis| weight.shape()[axis] as f64);
    2.0 * sums as f64 * channels * kh * kw
}

/// Bytes of this many floats; saturates.
const fn bytes(floats: usize) -> u64 {
    (floats as u64).saturating_mul(size_of::<f32>() as u64)
}
