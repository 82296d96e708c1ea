//! Resampling along the middle dimension of `[outer, n, inner]`, on a GPU.

#![allow(unsafe_code)]

use super::{Interpolation, Taps};
use crate::device::cuda::{Family, Gpu, Grid, Parameter};
use crate::device::{DeviceError, Place};

pub(super) static FAMILY: Family = Family::new("resize", include_str!("resize.cu"));

/// Rust form of the C++ struct `Taps` in `resize.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Of {
    n: u64,
    size: u64,
    inner: u64,
    sampling: u64,
}

// SAFETY: the struct is `repr(C)` and holds no references. The CUDA source declares a struct with
// equal fields in equal order.
unsafe impl Parameter for Of {}

/// Computes the entries of `y` from the entries of `x`. If `transposed` is set, computes the
/// gradient instead: adds each entry `j` of `x`, times its weights, to the entries of `y` that the
/// taps list for `j`.
pub(super) fn resize(
    gpu: &mut Gpu,
    y: &Place,
    x: &Place,
    Taps { n, size, sampling }: Taps,
    inner: usize,
    transposed: bool,
) -> Result<(), DeviceError> {
    let sampling = match sampling {
        Interpolation::Nearest => 0,
        Interpolation::Linear => 1,
        Interpolation::LinearAlignCorners => 2,
        Interpolation::Area => 3,
    };
    let (of, count) = (Of { n, size, inner: inner as u64, sampling }, y.layout.elements() as u64);
    let (out, x) = (gpu.first(y), gpu.first(x));
    let kernel = FAMILY.kernel(if transposed { "resize_transposed" } else { "resize" });
    // SAFETY: the parameters are those that the kernel declares, and the device has checked the
    // operands. The kernel writes all `count` elements of `y`, and reads entries of `x`. `of` has
    // the number of entries of `x`.
    unsafe { gpu.launch(kernel, Grid::of_threads(count), &[&out, &x, &count, &of]) }
}
