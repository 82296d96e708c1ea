//! Images as matrices: what each window sees is a column. For convolutions by matrix products.

use super::windows::{Shape, Windows};
use crate::device::DeviceError;
use crate::device::cpu::ConvShape;
use crate::device::cuda::gpu::Gpu;
use crate::device::cuda::kernels::COLUMNS;
use crate::device::cuda::launch::{Grid, Ptr};

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
pub(in crate::device::cuda) fn im2col(
    gpu: &mut Gpu,
    columns: Ptr,
    x: Ptr,
    shape: &ConvShape,
    images: usize,
) -> Result<(), DeviceError> {
    let [rows, across] = [shape.h_out(), shape.w_out()];
    let of = windows(shape, [rows, across])?;
    let count = (images * shape.c_in * rows * across) as u64;
    let kernel = COLUMNS.counting("im2col", count);
    gpu.launch(kernel, Grid::of_threads(count), &[&columns, &x, &count, &of])
}

/// Writes `images` images at `x`: each element is the sum of all places that it has in the columns, in a fixed
/// order.
pub(in crate::device::cuda) fn col2im(
    gpu: &mut Gpu,
    x: Ptr,
    columns: Ptr,
    shape: &ConvShape,
    images: usize,
) -> Result<(), DeviceError> {
    let of = windows(shape, [shape.h, shape.w])?;
    let count = (images * shape.c_in * shape.h * shape.w) as u64;
    let kernel = COLUMNS.counting("col2im", count);
    gpu.launch(kernel, Grid::of_threads(count), &[&x, &columns, &count, &of])
}
