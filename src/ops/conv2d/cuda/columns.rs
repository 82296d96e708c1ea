//! Convolutions as matrix products, without cuDNN.
//!
//! The windows of an image are the columns of a matrix, `[c * kh * kw, h_out * w_out]`. The
//! products of each image are
//!
//! ```text
//! y       = weight * columns            weight is [o, c * kh * kw], y and dy are [o, h_out * w_out]
//! columns = weight^T * dy               each pixel of dx is the sum of its occurrences in columns
//! dweight = sum of dy * columns^T       one image after the other
//! ```
//!
//! With groups of channels, the rows of each matrix are divided among the groups, one group after
//! another. cuBLAS computes the products of all groups of an image as one batch.
//!
//! The columns are many times larger than the images, and count against the budget. The device
//! therefore makes the columns of only a few images at a time, called a chunk, just enough to keep
//! the GPU busy. If every pixel is a window of its own, the columns are the image itself.

#![allow(unsafe_code)]

use super::im2col::{col2im, im2col};
use crate::device::DeviceError;
use crate::device::conv_shape::{ConvShape, Kind};
use crate::device::cuda::blas::{self, Form, Products, Side};
use crate::device::cuda::dnn::{Addresses, Task};
use crate::device::cuda::scratch::padded;
use crate::device::cuda::{Gpu, Ptr, Scratch};
use crate::ops::conv2d::bytes;
use std::ops::Range;

/// Smallest and largest number of bytes of a chunk's columns. Between the two bounds, the columns
/// of a chunk have about as many bytes as the input and the output together. A chunk has at least
/// one image, even if the image's columns are larger. The bounds were not tuned on a GPU.
const CHUNK: [u64; 2] = [1 << 20, 64 << 20];

/// Division of the images of a task into chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    /// Number of floats of an image. `result` is the number of floats of the image's `y` or `dy`.
    /// `columns` is the number of floats of the image's columns.
    image: usize,
    result: usize,
    columns: usize,
    /// Number of images in a chunk.
    images: usize,
    /// Whether the columns are the image itself.
    direct: bool,
}

impl Plan {
    fn new(task: &Task) -> Self {
        let shape = &task.shape;
        let windows = shape.h_out() * shape.w_out();
        let columns = (shape.c_in * shape.kh * shape.kw).saturating_mul(windows);
        let direct =
            [shape.kh, shape.kw] == [1, 1] && shape.stride == [1, 1] && shape.padding == [0, 0];
        let [least, most] = CHUNK;
        let chunk = bytes(shape.input_len() + shape.output_len()).clamp(least, most);
        let fit = if direct { shape.n } else { (chunk / bytes(columns)).max(1) as usize };
        // Make chunks of about equal size, so that the last chunk is not much smaller than the
        // other chunks.
        let chunks = shape.n.div_ceil(fit);
        Self {
            image: shape.c_in * shape.h * shape.w,
            result: shape.c_out * windows,
            columns,
            images: shape.n.div_ceil(chunks),
            direct,
        }
    }

    /// Bytes of the columns of a chunk.
    const fn columns_bytes(&self) -> u64 {
        if self.direct { 0 } else { bytes(self.images.saturating_mul(self.columns)) }
    }

    /// Bytes of cuBLAS's workspace: enough for the largest product.
    fn blas_bytes(&self, task: &Task) -> u64 {
        let shape = &task.shape;
        let (floats, sum) = match task.kind {
            Kind::Forward => (self.images * self.result, shape.c_in * shape.kh * shape.kw),
            Kind::GradInput => (self.images.saturating_mul(self.columns), shape.c_out),
            Kind::GradWeight => (shape.weight_len(), shape.h_out() * shape.w_out()),
        };
        let sum = if task.kind == Kind::GradWeight { sum } else { sum / shape.groups };
        blas::workspace(bytes(floats), sum)
    }

    /// Images of each chunk.
    fn chunks(&self, n: usize) -> impl Iterator<Item = Range<usize>> {
        let images = self.images;
        (0..n).step_by(images).map(move |from| from..(from + images).min(n))
    }
}

/// Bytes of workspace of a run. The task is not empty.
pub(super) fn workspace(task: &Task) -> u64 {
    let plan = Plan::new(task);
    padded(plan.columns_bytes()).saturating_add(plan.blas_bytes(task))
}

/// Runs a task that is not empty.
///
/// # Safety
/// The caller guarantees that the addresses are those of the current run's operands, and that the
/// operands have the sizes of the task. The scratch must be the workspace of the current run.
pub(super) unsafe fn run(
    gpu: &mut Gpu,
    task: &Task,
    addresses: Addresses,
    mut scratch: Scratch,
) -> Result<(), DeviceError> {
    let plan = Plan::new(task);
    let columns = scratch.take(plan.columns_bytes())?;
    let blas = scratch.take(plan.blas_bytes(task))?;
    let run = Run { shape: &task.shape, plan, addresses, columns, blas };
    for images in plan.chunks(task.shape.n) {
        match task.kind {
            Kind::Forward => run.forward(gpu, images)?,
            Kind::GradInput => run.grad_input(gpu, images)?,
            Kind::GradWeight => run.grad_weight(gpu, images)?,
        }
    }
    Ok(())
}

/// A convolution or gradient that is being computed.
struct Run<'a> {
    shape: &'a ConvShape,
    plan: Plan,
    /// Addresses of the operands. The caller of [`run`] guarantees that the addresses are valid.
    addresses: Addresses,
    /// Columns of a chunk, in the workspace: [`Plan::columns_bytes`].
    columns: Ptr,
    /// Workspace of cuBLAS, a part of the run's workspace: [`Plan::blas_bytes`].
    blas: Ptr,
}

impl Run<'_> {
    fn forward(&self, gpu: &mut Gpu, images: Range<usize>) -> Result<(), DeviceError> {
        let Plan { image, result, columns, .. } = self.plan;
        let Addresses { inputs: [x, weight], result: y } = self.addresses;
        let [o, taps, windows] = self.sizes();
        let (x, y) = (at(x, images.start * image), at(y, images.start * result));
        let read = self.columns_of(gpu, x, images.len())?;
        let products = |batch, steps: [usize; 2], read, y| Products {
            batch,
            sizes: [o, taps, windows],
            a: Side { first: weight, form: Form::packed(taps), step: steps[0] },
            b: Side { first: read, form: Form::packed(windows), step: steps[1] },
            y,
            add: false,
            workspace: self.blas,
        };
        if self.shape.groups == 1 {
            // SAFETY: the caller of `run` guarantees the operands and the workspace. The products
            // read the whole weight and the columns of the images, and write the results of the
            // images.
            return unsafe {
                gpu.libraries().blas().multiply(&products(images.len(), [0, columns], read, y))
            };
        }
        for i in 0..images.len() {
            let (read, y) = (at(read, i * columns), at(y, i * result));
            let products = products(self.shape.groups, [o * taps, taps * windows], read, y);
            // SAFETY: the caller of `run` guarantees the operands and the workspace. The products
            // read the whole weight and the columns of one image, and write its result.
            unsafe { gpu.libraries().blas().multiply(&products) }?;
        }
        Ok(())
    }

    fn grad_input(&self, gpu: &mut Gpu, images: Range<usize>) -> Result<(), DeviceError> {
        let Plan { image, result, direct, .. } = self.plan;
        let Addresses { inputs: [dy, weight], result: dx } = self.addresses;
        let [o, taps, windows] = self.sizes();
        let (dy, dx) = (at(dy, images.start * result), at(dx, images.start * image));
        let columns = if direct { dx } else { self.columns };
        let products = |batch, steps: [usize; 2], dy, columns| Products {
            batch,
            sizes: [taps, o, windows],
            a: Side { first: weight, form: Form::transposed(taps), step: steps[0] },
            b: Side { first: dy, form: Form::packed(windows), step: steps[1] },
            y: columns,
            add: false,
            workspace: self.blas,
        };
        if self.shape.groups == 1 {
            let products = products(images.len(), [0, result], dy, columns);
            // SAFETY: the caller of `run` guarantees the operands and the workspace. The products
            // read the whole weight and the results of the images, and write the images or their
            // columns.
            unsafe { gpu.libraries().blas().multiply(&products) }?;
        } else {
            for i in 0..images.len() {
                let (dy, columns) = (at(dy, i * result), at(columns, i * self.plan.columns));
                let products = products(self.shape.groups, [o * taps, o * windows], dy, columns);
                // SAFETY: the caller of `run` guarantees the operands and the workspace. The
                // products read the whole weight and the result of one image, and write the image
                // or its columns.
                unsafe { gpu.libraries().blas().multiply(&products) }?;
            }
        }
        if direct {
            return Ok(());
        }
        // SAFETY: the caller of `run` guarantees the operands and the workspace. `dx` is large
        // enough for the images, and `columns` holds the columns of the images.
        unsafe { col2im(gpu, dx, columns, self.shape, images.len()) }
    }

    fn grad_weight(&self, gpu: &mut Gpu, images: Range<usize>) -> Result<(), DeviceError> {
        let Plan { image, result, columns, .. } = self.plan;
        let Addresses { inputs: [x, dy], result: dweight } = self.addresses;
        let [o, taps, windows] = self.sizes();
        let read = self.columns_of(gpu, at(x, images.start * image), images.len())?;
        for (i, n) in images.enumerate() {
            let (dy, read) = (at(dy, n * result), at(read, i * columns));
            let products = Products {
                batch: self.shape.groups,
                sizes: [o, windows, taps],
                a: Side { first: dy, form: Form::packed(windows), step: o * windows },
                b: Side { first: read, form: Form::transposed(windows), step: taps * windows },
                y: dweight,
                add: n > 0,
                workspace: self.blas,
            };
            // SAFETY: the caller of `run` guarantees the operands and the workspace. The products
            // read the columns and the result of one image, and write the whole weight.
            unsafe { gpu.libraries().blas().multiply(&products) }?;
        }
        Ok(())
    }

    /// Sizes of one group: number of channels of the result, number of rows of the columns, and
    /// number of windows.
    fn sizes(&self) -> [usize; 3] {
        let ConvShape { c_in, c_out, kh, kw, .. } = self.shape.one_group();
        [c_out, c_in * kh * kw, self.shape.h_out() * self.shape.w_out()]
    }

    /// Makes the columns of the `images` images at `x`.
    fn columns_of(&self, gpu: &mut Gpu, x: Ptr, images: usize) -> Result<Ptr, DeviceError> {
        if self.plan.direct {
            return Ok(x);
        }
        // SAFETY: the caller of `run` guarantees the operands and the workspace. `x` holds the
        // images, and `columns` is large enough for the columns of the images.
        unsafe { im2col(gpu, self.columns, x, self.shape, images) }?;
        Ok(self.columns)
    }
}

/// Address `floats` floats after `first`.
const fn at(first: Ptr, floats: usize) -> Ptr {
    first.plus(bytes(floats))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(kind: Kind, [n, c_in, size, c_out, kernel]: [usize; 5]) -> Task {
        let shape = ConvShape {
            n,
            c_in,
            h: size,
            w: size,
            c_out,
            kh: kernel,
            kw: kernel,
            stride: [1, 1],
            padding: [kernel / 2, kernel / 2],
            dilation: [1, 1],
            groups: 1,
        };
        Task { kind, shape, aligned: true }
    }

    #[test]
    fn chunks_hold_all_images_once_and_are_no_larger_than_they_may() {
        for n in [1, 2, 17, 200, 1000] {
            let task = task(Kind::Forward, [n, 64, 32, 64, 3]);
            let (plan, shape) = (Plan::new(&task), task.shape);
            let operands = bytes(shape.input_len() + shape.output_len());
            assert!(plan.columns_bytes() <= operands.clamp(bytes(plan.columns), 64 << 20));
            let images: Vec<usize> = plan.chunks(n).flatten().collect();
            assert_eq!(images, (0..n).collect::<Vec<_>>());
            let smallest = plan.chunks(n).map(|chunk| chunk.len()).min().unwrap();
            assert!(plan.images - smallest < plan.chunks(n).count());
        }
        // The columns of one image are larger than a chunk.
        let large = Plan::new(&task(Kind::Forward, [3, 512, 256, 1, 3]));
        assert_eq!((large.images, large.chunks(3).count()), (1, 3));
        assert!(large.columns_bytes() > CHUNK[1]);
        // A small batch is cut into two equal chunks.
        let small = Plan::new(&task(Kind::Forward, [64, 1, 28, 2, 3]));
        assert_eq!(small.images, 32);
    }

    #[test]
    fn windows_of_one_pixel_need_no_columns() {
        let plain = task(Kind::GradInput, [8, 64, 32, 64, 1]);
        assert_eq!(workspace(&plain), blas::workspace(8 * 64 * 32 * 32 * 4, 64));
        let mut strided = plain;
        strided.shape.stride = [2, 2];
        assert!(!Plan::new(&strided).direct);
        let mut wide = plain;
        wide.shape.padding = [0, 1];
        assert!(!Plan::new(&wide).direct);
    }

    #[test]
    fn workspaces_hold_columns_and_cublas() {
        // A chunk has one image.
        let columns = (300 * 9) * (20 * 20) * 4;
        let bytes = |kind| workspace(&task(kind, [2, 300, 20, 500, 3]));
        let [forward, grad_input, grad_weight] = [
            blas::workspace(500 * 400 * 4, 2700),
            blas::workspace(columns, 500),
            blas::workspace(500 * 2700 * 4, 400),
        ];
        assert_eq!(bytes(Kind::Forward), padded(columns) + forward);
        assert_eq!(bytes(Kind::GradInput), padded(columns) + grad_input);
        assert_eq!(bytes(Kind::GradWeight), padded(columns) + grad_weight);
    }
}
