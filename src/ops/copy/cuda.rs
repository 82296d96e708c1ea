//! Copies of elements on a GPU.

#![allow(unsafe_code)]

use super::row;
use crate::device::cuda::launch::TILE;
use crate::device::cuda::strides::{Divider, Steps, in_fours};
use crate::device::cuda::{Family, Gpu, Grid, Parameter, Ptr};
use crate::device::walk::Walk;
use crate::device::{DeviceError, Place};
use crate::layout::{Layout, MAX_RANK};

/// Bytes of a word. For elements of one word, faster copy kernels exist.
const WORD: usize = size_of::<u32>();

pub(super) static FAMILY: Family = Family::new("copy", include_str!("copy.cu"));

/// Copies the elements of `layout` to `out`, packed in row-major order. The first element is at
/// `x`.
///
/// # Safety
/// The caller guarantees that the elements belong to an operand of the current run. The caller also
/// guarantees that `out` points to memory for as many elements, in an output or the workspace.
pub(in crate::ops) unsafe fn copy(
    gpu: &mut Gpu,
    out: Ptr,
    x: Ptr,
    layout: &Layout,
) -> Result<(), DeviceError> {
    let (count, size) = (layout.elements(), layout.dtype().bytes());
    if count == 0 {
        return Ok(());
    }
    if layout.is_contiguous() {
        let bytes = count * size;
        if width([out, x], [bytes]) == 1 {
            // SAFETY: the caller guarantees that `x` and `out` both point to `bytes` bytes. All
            // bytes are copied as one row.
            return unsafe { rows(gpu, out, x, bytes, [bytes, bytes]) };
        }
        let words = (bytes / WORD) as u64;
        let grid = Grid::of_blocks(words.div_ceil(TILE));
        // SAFETY: the parameters are those that the kernel declares. The kernel reads and writes
        // `words` words. The caller guarantees this memory at both addresses.
        return unsafe { gpu.launch(FAMILY.kernel("copy_packed"), grid, &[&out, &x, &words]) };
    }
    if let Some((turn, tiles)) = Turn::new(layout) {
        let grid = Grid::of_blocks(tiles);
        let kernel = FAMILY.counting("copy_turned", tiles);
        // SAFETY: the parameters are those that the kernel declares. `turn` visits each element of
        // `layout` once. The caller guarantees all elements of `layout`, and memory for them at
        // `out`.
        return unsafe { gpu.launch(kernel, grid, &[&out, &x, &turn]) };
    }
    let walk = Walk::new(layout.shape(), [layout.strides()]);
    let (outer, inner) = walk.split_at_most(MAX_RANK);
    let each: usize = inner.loops().iter().map(|(size, _)| size).product();
    let [step] = outer.steps();
    let mut outcome = Ok(());
    outer.runs(0, count / each, |i, len, [at]| {
        for j in 0..len {
            let out = out.plus(((i + j) * each * size) as u64);
            let x = x.plus(((at + j * step) * size) as u64);
            if outcome.is_ok() {
                // SAFETY: the caller guarantees all elements of `x`, and memory for them at `out`.
                // The call copies a part of the elements.
                outcome = unsafe { strided(gpu, out, x, &inner, size) };
            }
        }
    });
    outcome
}

/// Copies elements of `size` bytes each, with a walk of at most [`MAX_RANK`] loops.
///
/// # Safety
/// The caller guarantees what the caller of [`copy`] guarantees.
unsafe fn strided(
    gpu: &mut Gpu,
    out: Ptr,
    x: Ptr,
    walk: &Walk<1>,
    size: usize,
) -> Result<(), DeviceError> {
    let count = walk.loops().iter().map(|&(size, _)| size as u64).product::<u64>();
    if size != WORD {
        let kernel = FAMILY.counting("copy_each", count);
        let parameters: [&dyn Parameter; 5] =
            [&out, &x, &count, &Steps::new(walk, 1), &(size as u32)];
        // SAFETY: the parameters are those that the kernel declares. The kernel reads `count`
        // elements of `size` bytes within the layout, and writes them to `out`, as the caller
        // guarantees. Elements are aligned, because storages begin at multiples of an element's
        // size.
        return unsafe { gpu.launch(kernel, Grid::of_threads(count), &parameters) };
    }
    let width = if out.is_aligned() && in_fours(walk, [x]) { 4 } else { 1 };
    let units = count / width as u64;
    let parameters: [&dyn Parameter; 4] = [&out, &x, &units, &Steps::new(walk, width)];
    let kernel = FAMILY.counting("copy_strided", units);
    // SAFETY: the parameters are those that the kernel declares. The kernel reads `count` elements
    // within the layout, and writes them to `out`, as the caller guarantees.
    unsafe { gpu.launch(kernel, Grid::of_threads(units), &parameters) }
}

/// Value of `SIDE` in `copy.cu`: the number of rows and of columns of a tile that is transposed.
const SIDE: usize = 32;

/// Rust form of the C++ struct `Turn` in `copy.cu`.
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

// SAFETY: the struct is `repr(C)` and holds no references. The CUDA source declares a struct with
// equal fields in equal order.
unsafe impl Parameter for Turn {}

impl Turn {
    /// Plans a copy that transposes a matrix in tiles; also returns the number of tiles. Returns
    /// `None` if neighbouring elements of `layout` are already neighbours in memory, if the matrix
    /// has fewer than 8 rows or columns, or if elements are not words.
    fn new(layout: &Layout) -> Option<(Self, u64)> {
        let packed = Layout::contiguous(layout.dtype(), *layout.shape());
        let walk = Walk::new(layout.shape(), [layout.strides(), packed.strides()]);
        let mut loops = walk.loops().to_vec();
        if layout.dtype().bytes() != WORD || loops.len() > MAX_RANK {
            return None;
        }
        let (columns, [pitch, _]) = loops.pop()?;
        let at = loops.iter().position(|&(_, [step, _])| step == 1)?;
        let (rows, [_, row]) = loops.remove(at);
        if pitch <= 1 || columns < 8 || rows < 8 {
            return None;
        }
        let sizes: Vec<usize> = loops.iter().map(|&(size, _)| size).collect();
        let [x, y]: [Vec<usize>; 2] =
            [0, 1].map(|k| loops.iter().map(|(_, steps)| steps[k]).collect());
        let outer = Walk::new(&sizes, [&x, &y]);
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

/// Packs the elements of `x` into `y`.
pub(super) fn contiguous(gpu: &mut Gpu, y: &Place, x: &Place) -> Result<(), DeviceError> {
    // SAFETY: `x` and `y` are operands of the run, which the device has checked; `y` has as many
    // elements as `x`.
    unsafe { copy(gpu, gpu.first(y), gpu.first(x), &x.layout) }
}

/// Writes `x`, padded with zeros along `axis`, to `y`: `before` entries of zeros in front, and
/// zeros behind until `y` is full.
pub(super) fn pad(
    gpu: &mut Gpu,
    y: &Place,
    x: &Place,
    axis: usize,
    before: usize,
) -> Result<(), DeviceError> {
    let size = y.layout.dtype().bytes();
    let [length, whole] = [x, y].map(|place| row(&place.layout, axis) * size);
    let before = before * row(&y.layout, axis + 1) * size;
    let (out, x) = (gpu.first(y), gpu.first(x));
    let width = width([out, x], [length, whole, before]);
    let units = y.layout.bytes() / width as u64;
    let [length, before] = [length, before].map(|bytes| (bytes / width) as u64);
    let parameters: [&dyn Parameter; 7] =
        [&out, &x, &units, &Divider::new(whole / width), &before, &length, &(width as u32)];
    let kernel = FAMILY.counting("pad", units);
    // SAFETY: the parameters are those that the kernel declares, and the device has checked the
    // operands. The kernel writes all `units` of `y`, and reads all rows of `x`, which have
    // `length` units.
    unsafe { gpu.launch(kernel, Grid::of_threads(units), &parameters) }
}

/// Concatenates `parts` along `axis` to `y`.
pub(super) fn concat(
    gpu: &mut Gpu,
    y: &Place,
    parts: &[Place],
    axis: usize,
) -> Result<(), DeviceError> {
    let row_bytes = |layout: &Layout| row(layout, axis) * layout.dtype().bytes();
    let (mut out, pitch) = (gpu.first(y), row_bytes(&y.layout));
    for part in parts {
        let (x, length) = (gpu.first(part), row_bytes(&part.layout));
        // SAFETY: the part and `y` are operands of the run, which the device has checked. Each row
        // of `y` has at least `length` bytes from `out` on.
        unsafe { rows(gpu, out, x, part.layout.bytes() as usize, [length, pitch])? };
        out = out.plus(length as u64);
    }
    Ok(())
}

/// Copies `bytes` bytes in rows of `length` bytes. The copied rows are `pitch` bytes apart.
///
/// # Safety
/// The caller guarantees that the bytes belong to an operand of the current run, and that `out`
/// points to memory for the rows, in an output or the workspace.
unsafe fn rows(
    gpu: &mut Gpu,
    out: Ptr,
    x: Ptr,
    bytes: usize,
    [length, pitch]: [usize; 2],
) -> Result<(), DeviceError> {
    let width = width([out, x], [length, pitch]);
    let units = (bytes / width) as u64;
    if units == 0 {
        return Ok(());
    }
    let parameters: [&dyn Parameter; 6] = [
        &out,
        &x,
        &units,
        &Divider::new(length / width),
        &((pitch / width) as u64),
        &(width as u32),
    ];
    let kernel = FAMILY.counting("copy_rows", units);
    // SAFETY: the parameters are those that the kernel declares. The kernel reads all `units`, and
    // writes them to the rows. The caller guarantees the memory of both.
    unsafe { gpu.launch(kernel, Grid::of_threads(units), &parameters) }
}

/// Number of bytes that may be copied at once: 16, 4 or 1.
fn width<const N: usize>(addresses: [Ptr; 2], lengths: [usize; N]) -> usize {
    let fits = |width: &usize| {
        addresses.iter().all(|address| address.is_aligned_to(*width as u64))
            && lengths.iter().all(|length| length.is_multiple_of(*width))
    };
    [16, WORD].into_iter().find(fits).unwrap_or(1)
}

/// Sets all elements to `value`.
pub(super) fn fill(gpu: &mut Gpu, y: &Place, value: f32) -> Result<(), DeviceError> {
    let (out, count) = (gpu.first(y), y.layout.elements() as u64);
    let parameters: [&dyn Parameter; 3] = [&out, &value.to_bits(), &count];
    let grid = Grid::of_threads(count.div_ceil(4));
    // SAFETY: the parameters are those that the kernel declares, and the device has checked the
    // operands. The kernel writes `count` elements of `y`.
    unsafe { gpu.launch(FAMILY.kernel("fill"), grid, &parameters) }
}

/// Writes the entries of `x` along `axis` to `y` in reverse order.
pub(super) fn flip(gpu: &mut Gpu, y: &Place, x: &Place, axis: usize) -> Result<(), DeviceError> {
    let size = y.layout.dtype().bytes();
    let entry = row(&y.layout, axis + 1) * size;
    let (out, x) = (gpu.first(y), gpu.first(x));
    let width = width([out, x], [entry]);
    let units = y.layout.bytes() / width as u64;
    let parameters: [&dyn Parameter; 6] = [
        &out,
        &x,
        &units,
        &Divider::new(entry / width),
        &Divider::new(y.layout.shape()[axis]),
        &(width as u32),
    ];
    let kernel = FAMILY.counting("flip", units);
    // SAFETY: the parameters are those that the kernel declares, and the device has checked the
    // operands. The kernel writes all `units` of `y`, and reads as many units of `x`.
    unsafe { gpu.launch(kernel, Grid::of_threads(units), &parameters) }
}
