//! 2-D convolution and its two gradients. The three ops compute `y` from `x` and `weight`, the
//! gradient of `x` from `dy` and `weight`, and the gradient of `weight` from `x` and `dy`.
//!
//! All three ops are linear in each input, so the gradients of each op are the other two ops.

pub(super) mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod forward;
mod grad_input;
mod grad_weight;
mod kernel;
mod one_dimension;
mod shape;
mod transposed;

pub use forward::Conv2d;
pub use grad_input::Conv2dGradInput;
pub use grad_weight::Conv2dGradWeight;
pub use one_dimension::Conv1d;
pub use transposed::ConvTranspose2d;

use super::check::{Fault, of_windows, windows};
use crate::device::conv_shape::span;
use crate::layout::{Dims, Layout};

impl Conv2d {
    /// Number of windows along height and width.
    fn windows(&self, input: [usize; 2], kernel: [usize; 2]) -> Result<[usize; 2], Fault> {
        for (i, side) in ["height", "width"].into_iter().enumerate() {
            if self.dilation[i] == 0 {
                return Err(format!("dilation {side} 0, expected at least 1"));
            }
        }
        // The span of a dilated kernel includes the gaps between the kernel's elements.
        let spans = [0, 1].map(|i| span(kernel[i], self.dilation[i]));
        windows(input, spans, self.stride, self.padding)
    }

    /// Checks the numbers of channels, and returns the number of channels of `x`. Each kernel of
    /// `weight` reads `c` channels, and all kernels together produce `o` channels.
    fn channels(&self, weight: &Layout, c: usize, o: usize) -> Result<usize, Fault> {
        let groups = self.groups;
        if groups == 0 {
            return Err("groups 0, expected at least 1".to_owned());
        }
        if !o.is_multiple_of(groups) {
            return Err(format!(
                "weight {weight} gives {o} channels, expected a multiple of {groups} groups"
            ));
        }
        c.checked_mul(groups).ok_or_else(|| {
            format!("weight {weight} takes {c} channels in each of {groups} groups: too many")
        })
    }
}

/// Fails unless `dy` has an element for each window.
fn expect_windows(
    dy: &Layout,
    input: [usize; 2],
    kernel: [usize; 2],
    conv: Conv2d,
) -> Result<(), Fault> {
    of_windows(dy, conv.windows(input, kernel)?)
}

/// Height and width: the last two dimensions of the shape of images or of a kernel.
pub(super) fn sides(shape: Dims) -> [usize; 2] {
    [shape[2], shape[3]]
}

/// Number of multiplications and additions for `sums` output elements. Each output element is a sum
/// over the window and the input channels of `weight`.
fn flops(sums: usize, weight: &Layout) -> f64 {
    let [channels, kh, kw] = [1, 2, 3].map(|axis| weight.shape()[axis] as f64);
    2.0 * sums as f64 * channels * kh * kw
}

/// Size of `floats` floats in bytes. The size saturates.
const fn bytes(floats: usize) -> u64 {
    (floats as u64).saturating_mul(size_of::<f32>() as u64)
}
