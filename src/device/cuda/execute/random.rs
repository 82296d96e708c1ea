//! Random numbers.

#![allow(unsafe_code)]

use crate::device::cuda::gpu::Gpu;
use crate::device::cuda::kernels::RANDOM;
use crate::device::cuda::launch::{Grid, Parameter};
use crate::device::{DeviceError, Place};
use crate::ops::Distribution;

/// `Stream` of `random.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Stream {
    key: u64,
    counter: u64,
}

// SAFETY: two numbers.
unsafe impl Parameter for Stream {}

/// `Uniform`, `Normal` or `Bernoulli` of `random.cu`: so many numbers.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
struct Draw<const N: usize>([f32; N]);

// SAFETY: numbers.
unsafe impl<const N: usize> Parameter for Draw<N> {}

/// Draws all of `y` from one stream.
pub(super) fn random(
    gpu: &mut Gpu,
    y: &Place,
    distribution: Distribution,
    key: u64,
    counter: u64,
) -> Result<(), DeviceError> {
    let (out, count) = (gpu.first(y), y.layout.elements() as u64);
    let mut draw = |name: &'static str, draw: &dyn Parameter| {
        let grid = Grid::of_threads(count.div_ceil(4));
        gpu.launch(RANDOM.kernel(name), grid, &[&out, &count, &Stream { key, counter }, draw])
    };
    match distribution {
        Distribution::Uniform { low, high } => {
            // Rounding could reach `high`, which is excluded; nothing else is left where it is `low`.
            let below = if low < high { high.next_down() } else { low };
            draw("random_uniform", &Draw([low, high - low, below]))
        }
        Distribution::Normal { mean, std } => draw("random_normal", &Draw([mean, std])),
        Distribution::Bernoulli { p } => draw("random_bernoulli", &p),
    }
}
