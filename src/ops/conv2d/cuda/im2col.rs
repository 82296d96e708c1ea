//! Images as matrices: what each window sees is a column. For convolutions by matrix products.

#![allow(unsafe_code)]

use super::FAMILY;
use crate::device::DeviceError;
use crate::device::conv_shape::ConvShape;
use crate::device::cuda::windows::{Shape, Windows};
use crate::device::cuda::{Gpu, Grid, Ptr};

/// With a thread for each of so many rows and columns.
fn windows(shape: &ConvShape, threads: [usize; 2]) -> Result<Windows, DeviceError> {
    let of = Shape {
        image: [shape.h, shape.w],
        windows: [shape.h_out(), shape.w_out()],
        kernel: [shape.kh, shape.kw],
        stride: shape.stride,
        padding: shape.padding,
    };
    Windows::new(&of, threads)
}

/// Writes the columns of `images` images at `x`: of each, a matrix `[c * kh * kw, h' * w']`.
///
/// # Safety
/// There are so many images at `x`, and room for as many matrices at `columns`, in the operands and the workspace of the
/// run at hand.
pub(super) unsafe fn im2col(
    gpu: &mut Gpu,
    columns: Ptr,
    x: Ptr,
    shape: &ConvShape,
    images: usize,
) -> Result<(), DeviceError> {
    let [rows, across] = [shape.h_out(), shape.w_out()];
    let of = windows(shape, [rows, across])?;
    let count = (images * shape.c_in * rows * across) as u64;
    let kernel = FAMILY.counting("im2col", count);
    // SAFETY: the kernel's parameters; it reads and writes what the caller promises, a window of one channel for each
    // of `count` threads.
    unsafe { gpu.launch(kernel, Grid::of_threads(count), &[&columns, &x, &count, &of]) }
}

/// Writes `images` images at `x`: each element is the sum of all places that it has in the columns, in a fixed
/// order.
///
/// # Safety
/// There are as many matrices at `columns`, as [`im2col`] makes them, and room for so many images at `x`, in the
/// operands and the workspace of the run at hand.
pub(super) unsafe fn col2im(
    gpu: &mut Gpu,
    x: Ptr,
    columns: Ptr,
    shape: &ConvShape,
    images: usize,
) -> Result<(), DeviceError> {
    let of = windows(shape, [shape.h, shape.w])?;
    let count = (images * shape.c_in * shape.h * shape.w) as u64;
    let kernel = FAMILY.counting("col2im", count);
    // SAFETY: the kernel's parameters; it reads and writes what the caller promises, an element of an image for each of
    // `count` threads.
    unsafe { gpu.launch(kernel, Grid::of_threads(count), &[&x, &columns, &count, &of]) }
}
