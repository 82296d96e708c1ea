//! Gather and scatter-add of entries by index, on a GPU.

#![allow(unsafe_code)]

use crate::device::cuda::fault::Numbers;
use crate::device::cuda::launch::THREADS;
use crate::device::cuda::strides::{Divider, inner, width};
use crate::device::cuda::{Family, Gpu, Grid, Parameter};
use crate::device::{DeviceError, Place};

pub(super) static FAMILY: Family = Family::new("index", include_str!("index.cu"));

/// Copies the entries `index` of `x [outer, size, inner]` to `y [outer, n, inner]`.
pub(super) fn gather(
    gpu: &mut Gpu,
    y: &Place,
    x: &Place,
    index: &Place,
    axis: usize,
) -> Result<(), DeviceError> {
    let (size, n) = (x.layout.shape()[axis], y.layout.shape()[axis]);
    let (inner, count) = (inner(&x.layout, axis), y.layout.elements());
    let report = gpu.report(Numbers::Index, size);
    let (out, x, index) = (gpu.first(y), gpu.first(x), gpu.first(index));
    let width = width([out, x], [inner]);
    let units = count as u64 / width;
    let parameters: [&dyn Parameter; 9] = [
        &out,
        &x,
        &index,
        &units,
        &Divider::new(n),
        &Divider::new(inner / width as usize),
        &(size as u64),
        &(width as u32),
        &report,
    ];
    let kernel = FAMILY.counting("gather", units);
    // SAFETY: the parameters are those that the kernel declares, and the device has checked the
    // operands. The kernel writes all `units` of `y`. The kernel reads the `n` elements of `index`,
    // and only those entries of `x` whose index is below `size`.
    unsafe { gpu.launch(kernel, Grid::of_threads(units), &parameters) }
}

/// Number of blocks that keeps any GPU busy.
const BLOCKS: usize = 1024;

/// Rust form of the C++ struct `Scatter` in `index.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Scatter {
    n: u64,
    size: u64,
    inner: u64,
    entries: u64,
    columns: u32,
    across: u32,
    along: u64,
}

// SAFETY: the struct is `repr(C)` and holds no references. The CUDA source declares a struct with
// equal fields in equal order.
unsafe impl Parameter for Scatter {}

/// Fills `x [outer, size, inner]` with zeros, and adds each entry `i` of `y [outer, n, inner]` to
/// the entry `index[i]` of `x`, in the order of `i`.
pub(super) fn scatter_add(
    gpu: &mut Gpu,
    x: &Place,
    y: &Place,
    index: &Place,
    axis: usize,
) -> Result<(), DeviceError> {
    let (size, n) = (x.layout.shape()[axis], y.layout.shape()[axis]);
    let inner = inner(&x.layout, axis);
    let outer = x.layout.elements() / (size * inner);
    let columns = inner.min(THREADS as usize).next_power_of_two();
    let across = inner.div_ceil(columns);
    let entries = size.div_ceil((BLOCKS / (outer * across).min(BLOCKS)).min(size));
    let along = size.div_ceil(entries);
    let of = Scatter {
        n: n as u64,
        size: size as u64,
        inner: inner as u64,
        entries: entries as u64,
        columns: columns as u32,
        across: across as u32,
        along: along as u64,
    };
    let report = gpu.report(Numbers::Index, size);
    let (x, y, index) = (gpu.first(x), gpu.first(y), gpu.first(index));
    let grid = Grid::of_blocks((outer * across * along) as u64);
    // SAFETY: the parameters are those that the kernel declares, and the device has checked the
    // operands. The kernel writes the `[outer, size, inner]` elements of `x`. The kernel reads
    // `[outer, n, inner]` elements of `y` and the `n` elements of `index`. The kernel skips and
    // reports an index that is not below `size`.
    unsafe { gpu.launch(FAMILY.kernel("scatter_add"), grid, &[&x, &y, &index, &of, &report]) }
}

/// Fills `y [n, classes]` with 1 at the index of each row, else 0.
pub(super) fn one_hot(
    gpu: &mut Gpu,
    y: &Place,
    index: &Place,
    classes: usize,
) -> Result<(), DeviceError> {
    let count = y.layout.elements() as u64;
    let report = gpu.report(Numbers::Index, classes);
    let (out, index, classes) = (gpu.first(y), gpu.first(index), Divider::new(classes));
    let kernel = FAMILY.counting("one_hot", count);
    // SAFETY: the parameters are those that the kernel declares, and the device has checked the
    // operands. The kernel writes the `count` elements of `y`, and reads one element of `index` for
    // each row of `y`.
    unsafe {
        gpu.launch(kernel, Grid::of_threads(count), &[&out, &index, &count, &classes, &report])
    }
}
