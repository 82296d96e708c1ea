//! Random numbers on a GPU.

#![allow(unsafe_code)]

use super::Distribution;
use crate::device::cuda::{Family, Gpu, Grid, Parameter};
use crate::device::{DeviceError, Place};

pub(super) static FAMILY: Family = Family::new("random", include_str!("random.cu"));

/// Rust form of the C++ struct `Stream` in `random.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Stream {
    key: u64,
    counter: u64,
}

// SAFETY: the struct is `repr(C)` and holds no references. The CUDA source declares a struct with
// equal fields in equal order.
unsafe impl Parameter for Stream {}

/// Rust form of the C++ structs `Uniform`, `Normal` and `Bernoulli` in `random.cu`, which have `N`
/// numbers each.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
struct Draw<const N: usize>([f32; N]);

// SAFETY: the struct is `repr(transparent)` over `N` numbers, which are the fields that the CUDA
// source declares.
unsafe impl<const N: usize> Parameter for Draw<N> {}

/// Fills `y` with the random numbers of the stream that `key` and `counter` identify.
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
        let of = Stream { key, counter };
        // SAFETY: the kernels declare the parameters that are passed: the result, the number of
        // elements of the result, the stream, and the parameters of the distribution. The kernels
        // write `count` elements of `y`, which the device has checked.
        unsafe { gpu.launch(FAMILY.kernel(name), grid, &[&out, &count, &of, draw]) }
    };
    match distribution {
        Distribution::Uniform { low, high } => {
            // Rounding could give the excluded bound `high`, so limit the result to the float below
            // `high`. If the interval is empty, the result is `low`.
            let below = if low < high { high.next_down() } else { low };
            draw("random_uniform", &Draw([low, high - low, below]))
        }
        Distribution::Normal { mean, std } => draw("random_normal", &Draw([mean, std])),
        Distribution::Bernoulli { p } => draw("random_bernoulli", &p),
    }
}
