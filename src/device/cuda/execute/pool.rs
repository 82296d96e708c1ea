//! Maxima and means of windows, and their gradients.

use super::windows::{Shape, Windows};
use crate::device::cuda::fault::Numbers;
use crate::device::cuda::gpu::Gpu;
use crate::device::cuda::kernels::POOL;
use crate::device::cuda::launch::Grid;
use crate::device::{DeviceError, Place};
use crate::layout::Layout;
use crate::ops::Pool2d;

/// Elements of a window from which on the lanes of a warp share it.
const LARGE: usize = 32;

/// `large` are the images, `small` the windows; threads belong to elements of `threads`.
fn windows(
    pool: &Pool2d,
    large: &Layout,
    small: &Layout,
    threads: &Layout,
) -> Result<Windows, DeviceError> {
    let sides = |layout: &Layout| [layout.shape()[2], layout.shape()[3]];
    let Pool2d { kernel, stride, padding } = *pool;
    let shape = Shape { image: sides(large), windows: sides(small), kernel, stride, padding };
    Windows::new(&shape, sides(threads))
}

/// The largest element of each window, and its place.
pub(super) fn max(
    gpu: &mut Gpu,
    y: &Place,
    argmax: &Place,
    x: &Place,
    pool: &Pool2d,
) -> Result<(), DeviceError> {
    let of = windows(pool, &x.layout, &y.layout, &y.layout)?;
    let count = y.layout.elements() as u64;
    let (y, argmax, x) = (gpu.first(y), gpu.first(argmax), gpu.first(x));
    let kernel = POOL.counting("max_pool", count);
    gpu.launch(kernel, Grid::of_threads(count), &[&y, &argmax, &x, &count, &of])
}

/// Zeros, plus each element of `dy` at its place.
pub(super) fn max_grad(
    gpu: &mut Gpu,
    dx: &Place,
    argmax: &Place,
    dy: &Place,
    pool: &Pool2d,
) -> Result<(), DeviceError> {
    let of = windows(pool, &dx.layout, &dy.layout, &dx.layout)?;
    let report = gpu.report(Numbers::Argmax, dx.layout.shape()[2] * dx.layout.shape()[3]);
    let count = dx.layout.elements() as u64;
    let (dx, argmax, dy) = (gpu.first(dx), gpu.first(argmax), gpu.first(dy));
    let kernel = POOL.counting("max_pool_grad", count);
    gpu.launch(kernel, Grid::of_threads(count), &[&dx, &argmax, &dy, &count, &of, &report])
}

/// The mean of each window's elements inside the image.
pub(super) fn avg(gpu: &mut Gpu, y: &Place, x: &Place, pool: &Pool2d) -> Result<(), DeviceError> {
    let of = windows(pool, &x.layout, &y.layout, &y.layout)?;
    let count = y.layout.elements() as u64;
    let large = pool.kernel[0].saturating_mul(pool.kernel[1]) >= LARGE;
    let (name, lanes) = if large { ("avg_pool_large", 32) } else { ("avg_pool", 1) };
    let (y, x) = (gpu.first(y), gpu.first(x));
    gpu.launch(POOL.counting(name, count), Grid::of_threads(count * lanes), &[&y, &x, &count, &of])
}

/// Zeros, plus an equal share of each element of `dy` everywhere in its window.
pub(super) fn avg_grad(
    gpu: &mut Gpu,
    dx: &Place,
    dy: &Place,
    pool: &Pool2d,
) -> Result<(), DeviceError> {
    let of = windows(pool, &dx.layout, &dy.layout, &dx.layout)?;
    let count = dx.layout.elements() as u64;
    let (dx, dy) = (gpu.first(dx), gpu.first(dy));
    let kernel = POOL.counting("avg_pool_grad", count);
    gpu.launch(kernel, Grid::of_threads(count), &[&dx, &dy, &count, &of])
}
