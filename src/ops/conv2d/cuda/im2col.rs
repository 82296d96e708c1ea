//! im2col and col2im: images as matrices with a column for each window, for convolutions as matrix
//! products.

#![allow(unsafe_code)]

use super::FAMILY;
use crate::device::DeviceError;
use crate::device::conv_shape::ConvShape;
use crate::device::cuda::windows::{Shape, Windows};
use crate::device::cuda::{Gpu, Grid, Ptr};

/// Windows as a parameter of the kernels, which have a thread for each of `threads` rows and
/// columns.
fn windows(shape: &ConvShape, threads: [usize; 2]) -> Result<Windows, DeviceError> {
    let of = Shape {
        image: [shape.h, shape.w],
        windows: [shape.h_out(), shape.w_out()],
        kernel: [shape.kh, shape.kw],
        stride: shape.stride,
        padding: shape.padding,
        dilation: shape.dilation,
    };
    Windows::new(&of, threads)
}

/// Writes the columns of the `images` images at `x`: a matrix `[c * kh * kw, h' * w']` for each
/// image.
///
/// # Safety
/// The caller guarantees `images` images at `x`, and room for as many matrices at `columns`, within
/// the operands and the workspace of the current run.
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
    // SAFETY: the parameters are those that the kernel declares. Each of its `count` threads copies
    // a window of one channel, from the images and to the matrices that the caller guarantees.
    unsafe { gpu.launch(kernel, Grid::of_threads(count), &[&columns, &x, &count, &of]) }
}

/// Writes `images` images at `x`. Each element is the sum of its occurrences in the columns, in a
/// fixed order.
///
/// # Safety
/// The caller guarantees `images` matrices at `columns`, as [`im2col`] makes them, and room for as
/// many images at `x`, within the operands and the workspace of the current run.
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
    // SAFETY: the parameters are those that the kernel declares. Each of its `count` threads writes
    // an element of the images and reads the matrices, all of which the caller guarantees.
    unsafe { gpu.launch(kernel, Grid::of_threads(count), &[&x, &columns, &count, &of]) }
}
