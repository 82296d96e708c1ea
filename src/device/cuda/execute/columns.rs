//! Images as matrices: what each window sees is a column. For convolutions by matrix products.

#![allow(unsafe_code)]

use super::pool::{sides, steps};
use super::steps::Divider;
use crate::device::DeviceError;
use crate::device::cpu::ConvShape;
use crate::device::cuda::gpu::Gpu;
use crate::device::cuda::kernels::COLUMNS;
use crate::device::cuda::launch::{Grid, Parameter, Ptr};

/// `Windows` of `columns.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Windows {
    rows: Divider,
    columns: Divider,
    size: [i32; 2],
    windows: [i32; 2],
    kernel: [i32; 2],
    stride: [i32; 2],
    padding: [i32; 2],
}

// SAFETY: numbers.
unsafe impl Parameter for Windows {}

impl Windows {
    /// With a thread for each of so many rows and columns.
    fn new(shape: &ConvShape, [rows, columns]: [usize; 2]) -> Result<Self, DeviceError> {
        Ok(Self {
            rows: Divider::new(rows),
            columns: Divider::new(columns),
            size: sides([shape.h, shape.w], "image")?,
            windows: sides([shape.h_out(), shape.w_out()], "image")?,
            kernel: sides([shape.kh, shape.kw], "window")?,
            stride: steps(shape.stride),
            padding: sides(shape.padding, "padding")?,
        })
    }
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
    let of = Windows::new(shape, [rows, across])?;
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
    let of = Windows::new(shape, [shape.h, shape.w])?;
    let count = (images * shape.c_in * shape.h * shape.w) as u64;
    let kernel = COLUMNS.counting("col2im", count);
    gpu.launch(kernel, Grid::of_threads(count), &[&x, &columns, &count, &of])
}
