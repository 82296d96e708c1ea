//! Max and average pooling, and their gradients, on a GPU.

#![allow(unsafe_code)]

use super::{Pool2d, image};
use crate::device::cuda::fault::Numbers;
use crate::device::cuda::windows::{Shape, Windows};
use crate::device::cuda::{Family, Gpu, Grid};
use crate::device::{DeviceError, Place};
use crate::layout::Layout;

pub(super) static FAMILY: Family = Family::new("pool", include_str!("pool.cu"));

/// Smallest number of elements of a window for which the lanes of a warp share the window.
const LARGE: usize = 32;

/// Makes the parameter of the kernels that describes the windows of a pooling. `large` is the
/// layout of the images, and `small` has one element for each window. The kernel runs one thread
/// for each element of `threads`.
fn windows(
    pool: &Pool2d,
    large: &Layout,
    small: &Layout,
    threads: &Layout,
) -> Result<Windows, DeviceError> {
    let Pool2d { kernel, stride, padding } = *pool;
    let (image_size, windows, dilation) = (image(large), image(small), [1, 1]);
    let shape = Shape { image: image_size, windows, kernel, stride, padding, dilation };
    Windows::new(&shape, image(threads))
}

/// Finds the largest element of each window, and the index of this element in the image.
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
    // SAFETY: the parameters are those that the kernel declares, and the device has checked the
    // operands. The kernel writes `count` elements of `y` and of `argmax`, and reads the windows
    // that `of` describes, cropped to the images of `x`.
    unsafe { gpu.launch(kernel, Grid::of_threads(count), &[&y, &argmax, &x, &count, &of]) }
}

/// Fills `dx` with zeros, and adds each element of `dy` at the pixel that `argmax` gives.
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
    // SAFETY: the parameters are those that the kernel declares, and the device has checked the
    // operands. The kernel writes `count` elements of `dx`, and reads `argmax` and `dy`, which have
    // an element for each window of `of`. The kernel compares the values of `argmax` with indices,
    // and never uses them as addresses.
    unsafe {
        gpu.launch(kernel, Grid::of_threads(count), &[&dx, &argmax, &dy, &count, &of, &report])
    }
}

/// Copies the pixels of `x` that `argmax` gives.
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
    // SAFETY: the parameters are those that the kernel declares, and the device has checked the
    // operands. The kernel writes `count` elements of `y`, and reads `count` elements of `argmax`.
    // The kernel checks that each pixel of `x` is inside the image before it reads the pixel.
    unsafe { gpu.launch(kernel, Grid::of_threads(count), &[&y, &argmax, &x, &count, &of, &report]) }
}

/// Computes the mean of each window, over the elements that are inside the image.
pub(super) fn avg(gpu: &mut Gpu, y: &Place, x: &Place, pool: &Pool2d) -> Result<(), DeviceError> {
    let of = windows(pool, &x.layout, &y.layout, &y.layout)?;
    let count = y.layout.elements() as u64;
    let large = pool.kernel[0].saturating_mul(pool.kernel[1]) >= LARGE;
    let (name, lanes) = if large { ("avg_pool_large", 32) } else { ("avg_pool", 1) };
    let (y, x) = (gpu.first(y), gpu.first(x));
    let (kernel, grid) = (FAMILY.counting(name, count), Grid::of_threads(count * lanes));
    // SAFETY: the parameters are those that the kernel declares, and the device has checked the
    // operands. The kernel writes `count` elements of `y`, and reads the windows that `of`
    // describes, cropped to the images of `x`.
    unsafe { gpu.launch(kernel, grid, &[&y, &x, &count, &of]) }
}

/// Fills `dx` with zeros. For each window, divides its element of `dy` equally among the pixels of
/// the window, and adds the shares to `dx`.
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
    // SAFETY: the parameters are those that the kernel declares, and the device has checked the
    // operands. The kernel writes `count` elements of `dx`, and reads `dy`, which has an element
    // for each window of `of`.
    unsafe { gpu.launch(kernel, Grid::of_threads(count), &[&dx, &dy, &count, &of]) }
}
