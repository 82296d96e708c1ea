//! im2col and col2im: conversions between images and matrices that have one column for each window.
//! With such matrices, a convolution is a matrix product.

#![allow(unsafe_code)]

use super::FAMILY;
use crate::device::DeviceError;
use crate::device::conv_shape::ConvShape;
use crate::device::cuda::windows::{Shape, Windows};
use crate::device::cuda::{Gpu, Grid, Ptr};

/// Makes the parameter of the kernels that describes the windows. A kernel runs one thread for each
/// pixel of an area of `threads` rows and columns.
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
/// The caller guarantees that `x` points to `images` images, and `columns` points to memory for as
/// many matrices. The images and the matrices lie within the operands and the workspace of the
/// current run.
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
    // SAFETY: the parameters are those that the kernel declares. Each of the `count` threads copies
    // a window of one channel from the images to the matrices. The caller guarantees the images and
    // the memory for the matrices.
    unsafe { gpu.launch(kernel, Grid::of_threads(count), &[&columns, &x, &count, &of]) }
}

/// Writes `images` images to `x`. Each element is the sum of all copies of the element in the
/// columns, added in a fixed order.
///
/// # Safety
/// The caller guarantees that `columns` points to `images` matrices in the format of [`im2col`],
/// and `x` points to memory for as many images. The images and the matrices lie within the operands
/// and the workspace of the current run.
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
    // SAFETY: the parameters are those that the kernel declares. Each of the `count` threads reads
    // the matrices and writes one element of the images. The caller guarantees the matrices and the
    // memory for the images.
    unsafe { gpu.launch(kernel, Grid::of_threads(count), &[&x, &columns, &count, &of]) }
}
