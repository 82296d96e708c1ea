//! Images as matrices: what each window sees is a column. For convolutions by matrix products.

#![allow(unsafe_code)]

use super::pool::{sides, steps};
use super::steps::Divider;
use crate::device::DeviceError;
use crate::device::cuda::gpu::Gpu;
use crate::device::cuda::kernels::COLUMNS;
use crate::device::cuda::launch::{Grid, Parameter, Ptr};
use crate::layout::DType;
use crate::ops::Conv2d;
use std::ops::Range;

/// What windows look at, and how.
#[derive(Clone, Copy, Debug)]
pub(in crate::device::cuda) struct Images {
    /// Channels of an image.
    pub c: usize,
    /// Height and width of an image.
    pub size: [usize; 2],
    /// Height and width of a window.
    pub kernel: [usize; 2],
    /// Stride and padding.
    pub conv: Conv2d,
}

/// `Windows` of `columns.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Windows {
    rows: Divider,
    columns: Divider,
    images: Divider,
    channels: Divider,
    size: [i32; 2],
    windows: [i32; 2],
    kernel: [i32; 2],
    stride: [i32; 2],
    padding: [i32; 2],
}

// SAFETY: numbers.
unsafe impl Parameter for Windows {}

impl Images {
    /// Windows down and across an image.
    pub(in crate::device::cuda) fn windows(&self) -> [usize; 2] {
        let Conv2d { stride, padding } = self.conv;
        [0, 1].map(|i| (self.size[i] + 2 * padding[i] - self.kernel[i]) / stride[i] + 1)
    }

    /// Elements of the columns of so many images: a matrix `[c * kh * kw, images * h' * w']`.
    pub(in crate::device::cuda) fn elements(&self, images: usize) -> usize {
        let product = |sides: [usize; 2]| sides[0] * sides[1];
        self.c * product(self.kernel) * images * product(self.windows())
    }

    /// Where an image begins.
    fn image(&self, first: Ptr, i: usize) -> Ptr {
        first.plus((i * self.c * self.size[0] * self.size[1] * DType::F32.bytes()) as u64)
    }

    fn parameters(&self, images: usize, threads: [usize; 2]) -> Result<Windows, DeviceError> {
        let [rows, columns] = threads.map(Divider::new);
        Ok(Windows {
            rows,
            columns,
            images: Divider::new(images),
            channels: Divider::new(self.c),
            size: sides(self.size, "image")?,
            windows: sides(self.windows(), "image")?,
            kernel: sides(self.kernel, "window")?,
            stride: steps(self.conv.stride),
            padding: sides(self.conv.padding, "padding")?,
        })
    }
}

/// Writes the columns of some images of a batch `[n, c, h, w]` at `x`.
pub(in crate::device::cuda) fn im2col(
    gpu: &mut Gpu,
    x: Ptr,
    columns: Ptr,
    shape: &Images,
    images: Range<usize>,
) -> Result<(), DeviceError> {
    let windows = shape.windows();
    let of = shape.parameters(images.len(), windows)?;
    let count = (images.len() * shape.c * windows[0] * windows[1]) as u64;
    if count == 0 {
        return Ok(());
    }
    let x = shape.image(x, images.start);
    let kernel = COLUMNS.kernel("im2col", count);
    gpu.launch(kernel, Grid::of_threads(count), &[&columns, &x, &count, &of])
}

/// Writes some images of a batch `[n, c, h, w]` at `x`: each element is the sum of all places that it has in
/// the columns, in a fixed order.
pub(in crate::device::cuda) fn col2im(
    gpu: &mut Gpu,
    x: Ptr,
    columns: Ptr,
    shape: &Images,
    images: Range<usize>,
) -> Result<(), DeviceError> {
    let of = shape.parameters(images.len(), shape.size)?;
    let count = (images.len() * shape.c * shape.size[0] * shape.size[1]) as u64;
    if count == 0 {
        return Ok(());
    }
    let x = shape.image(x, images.start);
    let kernel = COLUMNS.kernel("col2im", count);
    gpu.launch(kernel, Grid::of_threads(count), &[&x, &columns, &count, &of])
}
