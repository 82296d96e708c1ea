//! Copying elements.

#![allow(unsafe_code)]

use super::row;
use crate::device::cuda::launch::TILE;
use crate::device::cuda::steps::{Divider, Steps, in_fours, width};
use crate::device::cuda::{Family, Gpu, Grid, Parameter, Ptr};
use crate::device::walk::Walk;
use crate::device::{DeviceError, Place};
use crate::layout::{DType, Dims, Layout};

pub(super) static FAMILY: Family = Family::new("copy", include_str!("copy.cu"));

/// Copies the elements of `layout` to `out`, packed in row-major order. The first is at `x`.
///
/// # Safety
/// The elements are those of an operand of the run at hand, and there is room for as many at `out`, in an output or the
/// workspace.
pub(in crate::ops) unsafe fn copy(
    gpu: &mut Gpu,
    out: Ptr,
    x: Ptr,
    layout: &Layout,
) -> Result<(), DeviceError> {
    let count = layout.elements() as u64;
    if count == 0 {
        return Ok(());
    }
    if layout.is_contiguous() {
        let grid = Grid::of_blocks(count.div_ceil(TILE));
        // SAFETY: the kernel's parameters; it writes and reads `count` elements, which are there as the caller promises.
        return unsafe { gpu.launch(FAMILY.kernel("copy_packed"), grid, &[&out, &x, &count]) };
    }
    if let Some((turn, tiles)) = Turn::new(layout) {
        let grid = Grid::of_blocks(tiles);
        let kernel = FAMILY.counting("copy_turned", tiles);
        // SAFETY: the kernel's parameters; `turn` visits each element of `layout` once.
        return unsafe { gpu.launch(kernel, grid, &[&out, &x, &turn]) };
    }
    let walk = Walk::new(layout.shape(), [layout.strides()]);
    let width = if out.is_aligned() && in_fours(&walk, [x]) { 4 } else { 1 };
    let units = count / width as u64;
    let parameters: [&dyn Parameter; 4] = [&out, &x, &units, &Steps::new(&walk, width)];
    let kernel = FAMILY.counting("copy_strided", units);
    // SAFETY: the kernel's parameters; it writes `count` elements, and reads them within `layout`.
    unsafe { gpu.launch(kernel, Grid::of_threads(units), &parameters) }
}

/// `SIDE` of `copy.cu`: rows and columns of the tiles of a transposition.
const SIDE: usize = 32;

/// `Turn` of `copy.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Turn {
    tiles: [Divider; 2],
    rows: u64,
    columns: u64,
    pitch: u64,
    row: u64,
    outer: Steps<2>,
}

// SAFETY: numbers.
unsafe impl Parameter for Turn {}

impl Turn {
    /// How to transpose in tiles, and the number of tiles. `None` if neighbouring elements of `layout` are neighbours
    /// in memory already, or there are too few of them in either direction.
    fn new(layout: &Layout) -> Option<(Self, u64)> {
        let packed = Layout::contiguous(layout.dtype(), *layout.shape());
        let walk = Walk::new(layout.shape(), [layout.strides(), packed.strides()]);
        let mut loops: Vec<(usize, [usize; 2])> = walk.loops().collect();
        let (columns, [pitch, _]) = loops.pop()?;
        let at = loops.iter().position(|&(_, [step, _])| step == 1)?;
        let (rows, [_, row]) = loops.remove(at);
        if pitch <= 1 || columns < 8 || rows < 8 {
            return None;
        }
        let sizes: Vec<usize> = loops.iter().map(|&(size, _)| size).collect();
        let [x, y]: [Vec<usize>; 2] =
            [0, 1].map(|k| loops.iter().map(|(_, steps)| steps[k]).collect());
        let outer = Walk::new(&Dims::new(&sizes), [&Dims::new(&x), &Dims::new(&y)]);
        let tiles = [columns.div_ceil(SIDE), rows.div_ceil(SIDE)];
        let count = tiles[0] as u64 * tiles[1] as u64 * sizes.iter().product::<usize>() as u64;
        let turn = Self {
            tiles: tiles.map(Divider::new),
            rows: rows as u64,
            columns: columns as u64,
            pitch: pitch as u64,
            row: row as u64,
            outer: Steps::new(&outer, 1),
        };
        Some((turn, count))
    }
}

/// `y` are the elements of `x`, packed.
pub(super) fn contiguous(gpu: &mut Gpu, y: &Place, x: &Place) -> Result<(), DeviceError> {
    // SAFETY: all of `x` and of `y`, which has as many elements.
    unsafe { copy(gpu, gpu.first(y), gpu.first(x), &x.layout) }
}

/// `y` is `x` padded with zeros: `before` entries in front along `axis`, and the rest behind.
pub(super) fn pad(
    gpu: &mut Gpu,
    y: &Place,
    x: &Place,
    axis: usize,
    before: usize,
) -> Result<(), DeviceError> {
    let [length, whole] = [x, y].map(|place| row(&place.layout, axis));
    let before = before * row(&y.layout, axis + 1);
    let (out, x) = (gpu.first(y), gpu.first(x));
    let width = width([out, x], [length, whole, before]);
    let units = y.layout.elements() as u64 / width;
    let [length, before] = [length, before].map(|n| n as u64 / width);
    let parameters: [&dyn Parameter; 7] = [
        &out,
        &x,
        &units,
        &Divider::new(whole / width as usize),
        &before,
        &length,
        &(width as u32),
    ];
    let kernel = FAMILY.counting("pad", units);
    // SAFETY: the kernel's parameters; it writes all `units` of `y`, and reads rows of `length` units, as many as `x`
    // has.
    unsafe { gpu.launch(kernel, Grid::of_threads(units), &parameters) }
}

/// `y` is the concatenation of `parts` along `axis`.
pub(super) fn concat(
    gpu: &mut Gpu,
    y: &Place,
    parts: &[Place],
    axis: usize,
) -> Result<(), DeviceError> {
    let pitch = row(&y.layout, axis);
    let mut out = gpu.first(y);
    for part in parts {
        let (x, length) = (gpu.first(part), row(&part.layout, axis));
        let width = width([out, x], [length, pitch, 0]);
        let units = part.layout.elements() as u64 / width;
        if units > 0 {
            let parameters: [&dyn Parameter; 6] = [
                &out,
                &x,
                &units,
                &Divider::new(length / width as usize),
                &(pitch as u64 / width),
                &(width as u32),
            ];
            let kernel = FAMILY.counting("copy_rows", units);
            // SAFETY: the kernel's parameters; it reads all `units` of the part, and writes them to the rows of `y`,
            // each of which has room for `length` elements from `out` on.
            unsafe { gpu.launch(kernel, Grid::of_threads(units), &parameters)? };
        }
        out = out.plus((length * DType::F32.bytes()) as u64);
    }
    Ok(())
}

/// Sets all elements to `value`.
pub(super) fn fill(gpu: &mut Gpu, y: &Place, value: f32) -> Result<(), DeviceError> {
    let (out, count) = (gpu.first(y), y.layout.elements() as u64);
    let parameters: [&dyn Parameter; 3] = [&out, &value.to_bits(), &count];
    let grid = Grid::of_threads(count.div_ceil(4));
    // SAFETY: the kernel's parameters; it writes `count` elements of `y`.
    unsafe { gpu.launch(FAMILY.kernel("fill"), grid, &parameters) }
}
