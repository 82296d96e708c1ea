//! Batch normalization on a GPU.

#![allow(unsafe_code)]

use super::BatchNorm;
use crate::device::cuda::launch::THREADS;
use crate::device::cuda::scratch::padded;
use crate::device::cuda::strides::Divider;
use crate::device::cuda::{Family, Gpu, Grid, Parameter, Ptr, Scratch};
use crate::device::{DeviceError, Place};
use crate::layout::Layout;

pub(super) static FAMILY: Family = Family::new("batch_norm", include_str!("batch_norm.cu"));

/// Value of `HELD` in `batch_norm.cu`: the number of elements that a thread holds in registers. A
/// channel of at most [`WHOLE`] elements is read only once.
const HELD: usize = 16;
const WHOLE: usize = HELD * MOST_THREADS;
/// Number of elements of `x`, and of `dy`, that a thread holds in registers for the gradient. A
/// channel of at most [`WHOLE_GRAD`] elements is read only once.
const HELD_GRAD: usize = 8;
const WHOLE_GRAD: usize = HELD_GRAD * MOST_THREADS;
const MOST_THREADS: usize = 512;

/// Number of thread blocks that keeps any device busy. The number is constant, because results must
/// not depend on the device.
const BLOCKS: usize = 2048;

/// Sizes in bytes of the structs `Terms`, `Moments`, `GradTerms` and `Two` in `batch_norm.cu`.
const TERMS: u64 = 12;
const MOMENTS: u64 = 24;
const GRAD_TERMS: u64 = 16;
const TWO: u64 = 16;

/// Sizes of `x` with all dimensions after the channels merged: `[n, c, inner]`.
struct Shape {
    c: usize,
    inner: usize,
    /// Number of elements of a channel.
    elements: usize,
}

impl Shape {
    fn new(x: &Layout) -> Self {
        let c = x.shape()[1];
        let inner = x.shape()[2..].iter().product();
        Self { c, inner, elements: x.elements() / c.max(1) }
    }

    /// Number of elements of a channel that one thread block adds up. If there are few channels,
    /// each channel is cut into more chunks, so that the whole device has work. Chunks are short,
    /// because a sum of many elements in one thread would be less accurate.
    fn chunk(&self) -> usize {
        let even = (self.c * self.elements / BLOCKS).clamp(4 * 1024, 64 * 1024);
        // Chunks have a minimum length, because a grid has at most 65535 rows.
        even.max(self.elements.div_ceil(32 * 1024)).next_multiple_of(1024)
    }

    fn chunks(&self) -> usize {
        self.elements.div_ceil(self.chunk())
    }

    /// Bytes of the terms of all channels; the terms of one channel take `bytes` bytes.
    fn terms(&self, bytes: u64) -> u64 {
        padded((self.c as u64).saturating_mul(bytes))
    }

    /// Bytes of the partial results of all chunks; one partial result takes `bytes` bytes.
    fn partial(&self, bytes: u64) -> u64 {
        (self.c * self.chunks()) as u64 * bytes
    }

    /// Takes scratch for the terms and the partial results.
    fn take(
        &self,
        scratch: &mut Scratch,
        terms: u64,
        partial: u64,
    ) -> Result<[Ptr; 2], DeviceError> {
        Ok([scratch.take(self.terms(terms))?, scratch.take(self.partial(partial))?])
    }
}

/// Rust form of the C++ struct `Channels` in `batch_norm.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Channels {
    c: Divider,
    inner: Divider,
    count: u64,
    chunk: u64,
    elements: f64,
    width: u32,
}

// SAFETY: the struct is `repr(C)` and holds no references. The CUDA source declares a struct with
// equal fields in equal order. The kernel does not read the padding at the end.
unsafe impl Parameter for Channels {}

impl Channels {
    fn new(shape: &Shape, addresses: &[Ptr]) -> Self {
        let fours = shape.inner.is_multiple_of(4) && addresses.iter().all(|p| p.is_aligned());
        let width = if fours { 4 } else { 1 };
        Self {
            c: Divider::new(shape.c),
            inner: Divider::new(shape.inner / width),
            count: (shape.elements / width) as u64,
            chunk: (shape.chunk() / width) as u64,
            elements: shape.elements as f64,
            width: width as u32,
        }
    }

    /// Grid with one thread block for each channel. Each thread holds up to `held` elements.
    fn whole(&self, shape: &Shape, held: usize) -> Grid {
        let units = self.count as usize;
        let least = units.div_ceil(held / self.width as usize);
        let threads = least.max(units.min(THREADS as usize)).next_multiple_of(32).max(32);
        debug_assert!(threads <= MOST_THREADS);
        Grid { threads: threads as u32, ..Grid::of_blocks(shape.c as u64) }
    }

    /// Grid with one thread block for each chunk of each channel.
    fn chunks(shape: &Shape) -> Grid {
        let mut grid = Grid::of_blocks(shape.c as u64);
        grid.blocks[1] = shape.chunks() as u32;
        grid
    }

    /// Number of units, of `width` elements each, in the whole tensor.
    const fn units(&self, shape: &Shape) -> u64 {
        self.count * shape.c as u64
    }
}

/// Rust form of the C++ struct `Training` in `batch_norm.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Training {
    gamma: Ptr,
    beta: Ptr,
    old_mean: Ptr,
    old_var: Ptr,
    mean: Ptr,
    inv_std: Ptr,
    new_mean: Ptr,
    new_var: Ptr,
    momentum: f64,
    eps: f64,
}

// SAFETY: the struct is `repr(C)` and holds no references. The CUDA source declares a struct with
// equal fields in equal order.
unsafe impl Parameter for Training {}

/// Rust form of the C++ struct `Grad` in `batch_norm.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Grad {
    gamma: Ptr,
    mean: Ptr,
    inv_std: Ptr,
    dgamma: Ptr,
    dbeta: Ptr,
}

// SAFETY: the struct is `repr(C)` and holds no references. The CUDA source declares a struct with
// equal fields in equal order.
unsafe impl Parameter for Grad {}

/// Bytes of workspace of [`train`].
pub(super) fn workspace_of_train(x: &Layout) -> u64 {
    let shape = Shape::new(x);
    if shape.elements <= WHOLE { 0 } else { shape.terms(TERMS) + shape.partial(MOMENTS) }
}

/// Bytes of workspace of [`grad`].
pub(super) fn workspace_of_grad(x: &Layout) -> u64 {
    let shape = Shape::new(x);
    if shape.elements <= WHOLE_GRAD { 0 } else { shape.terms(GRAD_TERMS) + shape.partial(TWO) }
}

/// Bytes of workspace of [`infer`].
pub(super) fn workspace_of_infer(x: &Layout) -> u64 {
    Shape::new(x).terms(TERMS)
}

/// Computes `y = (x - mean) * inv_std * gamma + beta` with the statistics of `x`. Also computes the
/// statistics, and the updated running statistics.
pub(super) fn train(
    gpu: &mut Gpu,
    outputs: &[Place],
    inputs: &[Place],
    op: &BatchNorm,
    mut scratch: Scratch,
) -> Result<(), DeviceError> {
    let (shape, first) = (Shape::new(&inputs[0].layout), |place: &Place| gpu.first(place));
    let [x, gamma, beta, old_mean, old_var] = std::array::from_fn(|i| first(&inputs[i]));
    let [y, mean, inv_std, new_mean, new_var] = std::array::from_fn(|i| first(&outputs[i]));
    let (momentum, eps) = (op.momentum.into(), op.eps.into());
    let with = Training {
        gamma,
        beta,
        old_mean,
        old_var,
        mean,
        inv_std,
        new_mean,
        new_var,
        momentum,
        eps,
    };
    let of = Channels::new(&shape, &[x, y]);
    if shape.elements <= WHOLE {
        let grid = of.whole(&shape, HELD);
        let kernel = FAMILY.kernel("batch_norm_whole");
        // SAFETY: the parameters are those that the kernel declares, and the device has checked the
        // operands. The kernel reads `x` and the input vectors in `with`, and writes `y` and the
        // output vectors in `with`. Each vector has one element for each channel.
        return unsafe { gpu.launch(kernel, grid, &[&y, &x, &of, &with]) };
    }
    let [terms, partial] = shape.take(&mut scratch, TERMS, MOMENTS)?;
    let kernel = FAMILY.counting("batch_norm_chunks", of.count);
    // SAFETY: the parameters are those that the kernel declares, and the device has checked the
    // operands. The kernel reads `x`, and writes the moments of each chunk of each channel to
    // `partial`, which is large enough.
    unsafe { gpu.launch(kernel, Channels::chunks(&shape), &[&partial, &x, &of])? };
    let (c, chunks) = (shape.c as u64, shape.chunks() as u32);
    let kernel = FAMILY.kernel("batch_norm_join");
    let parameters: [&dyn Parameter; 5] = [&terms, &partial, &c, &chunks, &with];
    // SAFETY: the parameters are those that the kernel declares, and the device has checked the
    // operands. The kernel reads the moments in `partial` and the input vectors in `with`. The
    // kernel writes the output vectors in `with`, and the terms of each channel to `terms`, which
    // is large enough.
    unsafe { gpu.launch(kernel, Grid::of_threads(c * 32), &parameters)? };
    normalize(gpu, y, x, terms, &shape)
}

/// Computes `y = (x - running_mean) / sqrt(running_var + eps) * gamma + beta`.
pub(super) fn infer(
    gpu: &mut Gpu,
    y: &Place,
    inputs: &[Place],
    eps: f32,
    mut scratch: Scratch,
) -> Result<(), DeviceError> {
    let shape = Shape::new(&inputs[0].layout);
    let [x, gamma, beta, mean, var] = std::array::from_fn(|i| gpu.first(&inputs[i]));
    let terms = scratch.take(shape.terms(TERMS))?;
    let (y, c) = (gpu.first(y), shape.c as u64);
    let parameters: [&dyn Parameter; 7] = [&terms, &gamma, &beta, &mean, &var, &c, &eps];
    let kernel = FAMILY.kernel("batch_norm_infer");
    // SAFETY: the parameters are those that the kernel declares, and the device has checked the
    // operands. The kernel reads four vectors with one element for each of the `c` channels, and
    // writes the terms of each channel to `terms`, which is large enough.
    unsafe { gpu.launch(kernel, Grid::of_threads(c), &parameters)? };
    normalize(gpu, y, x, terms, &shape)
}

fn normalize(gpu: &mut Gpu, y: Ptr, x: Ptr, terms: Ptr, shape: &Shape) -> Result<(), DeviceError> {
    let of = Channels::new(shape, &[x, y]);
    let units = of.units(shape);
    let kernel = FAMILY.counting("normalize", units);
    // SAFETY: the parameters are those that the kernel declares, and the device has checked the
    // operands. The kernel reads `units` units of `x` and the terms of each channel, and writes
    // `units` units of `y`.
    unsafe { gpu.launch(kernel, Grid::of_threads(units), &[&y, &x, &terms, &units, &of]) }
}

/// Computes the gradients of `x`, `gamma` and `beta`.
pub(super) fn grad(
    gpu: &mut Gpu,
    outputs: &[Place],
    inputs: &[Place],
    mut scratch: Scratch,
) -> Result<(), DeviceError> {
    let shape = Shape::new(&inputs[0].layout);
    let [x, gamma, mean, inv_std, dy] = std::array::from_fn(|i| gpu.first(&inputs[i]));
    let [dx, dgamma, dbeta] = std::array::from_fn(|i| gpu.first(&outputs[i]));
    let with = Grad { gamma, mean, inv_std, dgamma, dbeta };
    let of = Channels::new(&shape, &[x, dy, dx]);
    if shape.elements <= WHOLE_GRAD {
        let grid = of.whole(&shape, HELD_GRAD);
        let kernel = FAMILY.kernel("batch_norm_grad_whole");
        // SAFETY: the parameters are those that the kernel declares, and the device has checked the
        // operands. The kernel reads `x`, `dy` and the input vectors in `with`, and writes `dx` and
        // the output vectors in `with`. Each vector has one element for each channel.
        return unsafe { gpu.launch(kernel, grid, &[&dx, &x, &dy, &of, &with]) };
    }
    let [terms, partial] = shape.take(&mut scratch, GRAD_TERMS, TWO)?;
    let kernel = FAMILY.counting("batch_norm_grad_chunks", of.count);
    let parameters: [&dyn Parameter; 5] = [&partial, &x, &dy, &mean, &of];
    // SAFETY: the parameters are those that the kernel declares, and the device has checked the
    // operands. The kernel reads `x`, `dy` and `mean`, and writes the sums of each chunk of each
    // channel to `partial`, which is large enough.
    unsafe { gpu.launch(kernel, Channels::chunks(&shape), &parameters)? };
    let (c, chunks) = (shape.c as u64, shape.chunks() as u32);
    let kernel = FAMILY.kernel("batch_norm_grad_join");
    let parameters: [&dyn Parameter; 6] = [&terms, &partial, &c, &chunks, &of.elements, &with];
    // SAFETY: the parameters are those that the kernel declares, and the device has checked the
    // operands. The kernel reads the sums in `partial` and the input vectors in `with`. The kernel
    // writes the output vectors in `with`, and the terms of each channel to `terms`, which is large
    // enough.
    unsafe { gpu.launch(kernel, Grid::of_threads(c * 32), &parameters)? };
    let units = of.units(&shape);
    let kernel = FAMILY.counting("batch_norm_grad_apply", units);
    // SAFETY: the parameters are those that the kernel declares, and the device has checked the
    // operands. The kernel reads `units` units of `x` and `dy` and the terms of each channel, and
    // writes `units` units of `dx`.
    unsafe { gpu.launch(kernel, Grid::of_threads(units), &[&dx, &x, &dy, &terms, &units, &of]) }
}
