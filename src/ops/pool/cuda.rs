//! Maxima and means of windows, and their gradients.

#![allow(unsafe_code)]

use super::{Pool2d, image};
use crate::device::cuda::fault::Numbers;
use crate::device::cuda::windows::{Shape, Windows};
use crate::device::cuda::{Family, Gpu, Grid};
use crate::device::{DeviceError, Place};
use crate::layout::Layout;

pub(super) static FAMILY: Family = Family::new("pool", include_str!("pool.cu"));

/// Elements of a window from which on the lanes of a warp share it.
const LARGE: usize = 32;

/// `large` are the images, `small` the windows; threads belong to elements of `threads`.
fn windows(
    pool: &Pool2d,
    large: &Layout,
    small: &Layout,
    threads: &Layout,
) -> Result<Windows, DeviceError> {
    let Pool2d { kernel, stride, padding } = *pool;
    let shape = Shape { image: image(large), windows: image(small), kernel, stride, padding };
    Windows::new(&shape, image(threads))
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
    let kernel = FAMILY.counting("max_pool", count);
    // SAFETY: the kernel's parameters; it writes `count` elements of `y` and of `argmax`, and reads the windows
    // of `x` that `of` says, cut to its images.
    unsafe { gpu.launch(kernel, Grid::of_threads(count), &[&y, &argmax, &x, &count, &of]) }
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
    let report = gpu.report(Numbers::Argmax, image(&dx.layout).iter().product());
    let count = dx.layout.elements() as u64;
    let (dx, argmax, dy) = (gpu.first(dx), gpu.first(argmax), gpu.first(dy));
    let kernel = FAMILY.counting("max_pool_grad", count);
    // SAFETY: the kernel's parameters; it writes `count` elements of `dx`, and reads `argmax` and `dy`, which
    // have an element for each window of `of`. Places are compared only.
    unsafe {
        gpu.launch(kernel, Grid::of_threads(count), &[&dx, &argmax, &dy, &count, &of, &report])
    }
}

/// The element of `x` at each place.
pub(super) fn max_pick(
    gpu: &mut Gpu,
    y: &Place,
    argmax: &Place,
    x: &Place,
    pool: &Pool2d,
) -> Result<(), DeviceError> {
    let of = windows(pool, &x.layout, &y.layout, &y.layout)?;
    let report = gpu.report(Numbers::Argmax, image(&x.layout).iter().product());
    let count = y.layout.elements() as u64;
    let (y, argmax, x) = (gpu.first(y), gpu.first(argmax), gpu.first(x));
    let kernel = FAMILY.counting("max_pool_pick", count);
    // SAFETY: the kernel's parameters; it writes `count` elements of `y`, reads as many of `argmax`, and of the
    // images of `x` only places that `report` allows, which are inside.
    unsafe { gpu.launch(kernel, Grid::of_threads(count), &[&y, &argmax, &x, &count, &of, &report]) }
}

/// The mean of each window's elements inside the image.
pub(super) fn avg(gpu: &mut Gpu, y: &Place, x: &Place, pool: &Pool2d) -> Result<(), DeviceError> {
    let of = windows(pool, &x.layout, &y.layout, &y.layout)?;
    let count = y.layout.elements() as u64;
    let large = pool.kernel[0].saturating_mul(pool.kernel[1]) >= LARGE;
    let (name, lanes) = if large { ("avg_pool_large", 32) } else { ("avg_pool", 1) };
    let (y, x) = (gpu.first(y), gpu.first(x));
    let (kernel, grid) = (FAMILY.counting(name, count), Grid::of_threads(count * lanes));
    // SAFETY: the kernel's parameters; it writes `count` elements of `y`, and reads the windows of `x` that `of`
    // says, cut to its images.
    unsafe { gpu.launch(kernel, grid, &[&y, &x, &count, &of]) }
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
    let kernel = FAMILY.counting("avg_pool_grad", count);
    // SAFETY: the kernel's parameters; it writes `count` elements of `dx`, and reads `dy`, which has an element
    // for each window of `of`.
    unsafe { gpu.launch(kernel, Grid::of_threads(count), &[&dx, &dy, &count, &of]) }
}
