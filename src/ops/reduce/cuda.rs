//! Sums, means, maxima and minima over any dimensions, on a GPU.

#![allow(unsafe_code)]

use super::{Extreme, Reduction, walks};
use crate::device::cuda::launch::THREADS;
use crate::device::cuda::strides::{Steps, in_fours};
use crate::device::cuda::{Family, Gpu, Grid, Parameter, Scratch};
use crate::device::walk::Walk;
use crate::device::{DeviceError, Place};
use crate::layout::{Dims, Layout};

pub(super) static FAMILY: Family = Family::new("reduce", include_str!("reduce.cu"));
pub(super) static ARG: Family = Family::new("arg", include_str!("arg.cu"));

/// Number of blocks that keeps any GPU busy. The number is constant, because results must not
/// depend on the GPU.
const BLOCKS: usize = 1024;
/// Largest number of blocks in a grid. If there are more results, each block computes several
/// results.
const MOST_BLOCKS: u64 = 1 << 20;

/// Names of the kernels of a reduction.
struct Names {
    by_thread: &'static str,
    by_warp: &'static str,
    by_block: &'static str,
    columns: &'static str,
    chunks: &'static str,
}

macro_rules! names {
    ($kind:literal) => {
        Names {
            by_thread: concat!($kind, "_by_thread"),
            by_warp: concat!($kind, "_by_warp"),
            by_block: concat!($kind, "_by_block"),
            columns: concat!($kind, "_columns"),
            chunks: concat!($kind, "_chunks"),
        }
    };
}

/// Division of a reduction among threads. The plan depends only on the layout and the axes.
struct Plan {
    /// Loops over the results.
    kept: Walk<1>,
    /// Loops over the elements that are reduced to one result, in the order of their addresses.
    joined: Walk<1>,
    results: usize,
    count: usize,
    /// Whether neighbouring threads compute neighbouring results. If not, neighbouring threads
    /// together compute one result.
    columns: bool,
    /// Number of elements of one result in a chunk.
    chunk: usize,
}

impl Plan {
    fn new(layout: &Layout, axes: &Dims) -> Self {
        let [(kept, results), (joined, count)] = walks(layout, axes);
        let columns = kept.steps() == [1] && kept.run() >= 8 && joined.steps() != [1];
        // Number of thread blocks if results are not cut into chunks, and smallest number of
        // elements for which another block saves time.
        let (blocks, least) =
            if columns { (results.div_ceil(128), 64) } else { (results, 8 * 1024) };
        let wanted = if blocks < BLOCKS / 2 { BLOCKS / blocks.max(1) } else { 1 };
        let chunks = wanted.min(count.div_ceil(least)).max(1);
        // Round up to a multiple of 4, so that chunks keep the alignment of vector loads.
        let chunk = count.div_ceil(chunks).next_multiple_of(4).max(4);
        Self { kept, joined, results, count, columns, chunk }
    }

    fn chunks(&self) -> usize {
        self.count.div_ceil(self.chunk).max(1)
    }
}

/// Bytes of workspace: an f64 for each chunk of each result.
pub(super) fn workspace(layout: &Layout, axes: &Dims) -> u64 {
    let plan = Plan::new(layout, axes);
    match plan.chunks() {
        1 => 0,
        chunks => (plan.results * chunks * size_of::<f64>()) as u64,
    }
}

/// Rust form of the C++ struct `Reduction` in `reduce.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Parameters {
    kept: Steps<1>,
    joined: Steps<1>,
    results: u64,
    count: u64,
    chunk: u64,
    divisor: f64,
}

// SAFETY: the struct is `repr(C)` and holds no references. The CUDA source declares a struct with
// equal fields in equal order.
unsafe impl Parameter for Parameters {}

/// Reduces `x` along `axes`.
pub(super) fn reduce(
    gpu: &mut Gpu,
    kind: Reduction,
    y: &Place,
    x: &Place,
    axes: &Dims,
    mut scratch: Scratch,
) -> Result<(), DeviceError> {
    let names = match kind {
        Reduction::Sum | Reduction::Mean => names!("sum"),
        Reduction::Max => names!("max"),
        Reduction::Min => names!("min"),
    };
    let plan = Plan::new(&x.layout, axes);
    let divisor = if kind == Reduction::Mean { plan.count as f64 } else { 1.0 };
    let partial = scratch.take(workspace(&x.layout, axes))?;
    let (out, x) = (gpu.first(y), gpu.first(x));
    let chunks = plan.chunks() as u32;
    let (results, rows) = (plan.results as u64, [plan.kept, plan.joined]);
    let [kept, joined] = rows;
    let whole_steps =
        |walk: &Walk<1>| walk.loops().iter().all(|(size, [step])| *size == 1 || step % 4 == 0);
    let outer_steps = |walk: &Walk<1>| {
        walk.loops().iter().rev().skip(1).all(|(size, [step])| *size == 1 || step % 4 == 0)
    };
    if plan.columns {
        let fours = in_fours(&kept, [x]) && whole_steps(&joined) && outer_steps(&kept);
        let width = if fours { 4 } else { 1 };
        let units = results / width as u64;
        let of = Parameters {
            kept: Steps::new(&kept, width),
            joined: Steps::new(&joined, 1),
            results: units,
            count: plan.count as u64,
            chunk: plan.chunk as u64,
            divisor,
        };
        // If there are few results, several rows of threads share each result.
        let enough = plan.count <= 8 || units >= (BLOCKS * THREADS as usize) as u64;
        let lanes = if enough { THREADS } else { 32 };
        let mut grid = Grid::of_blocks(units.div_ceil(lanes.into()).min(MOST_BLOCKS));
        grid.blocks[1] = chunks;
        let kernel = FAMILY.counting(names.columns, units.max(plan.count as u64));
        // SAFETY: the parameters are those that the kernel declares, and the device has checked the
        // operands. The kernel reads `x` within its layout. The kernel writes each result, or
        // writes the partial result of each chunk to the workspace.
        unsafe { gpu.launch(kernel, grid, &[&out, &partial, &x, &of, &lanes])? };
    } else {
        let fours = joined.steps() == [1] && in_fours(&joined, [x]) && whole_steps(&kept);
        let width = if fours { 4 } else { 1 };
        let units = plan.count / width;
        let of = Parameters {
            kept: Steps::new(&kept, 1),
            joined: Steps::new(&joined, width),
            results,
            count: units as u64,
            chunk: (plan.chunk / width) as u64,
            divisor,
        };
        let (name, lanes) = match plan.count {
            0..=16 => (names.by_thread, 1),
            ..=1024 if plan.results > BLOCKS => (names.by_warp, 32),
            _ => (names.by_block, THREADS),
        };
        let mut grid = Grid::of_blocks(results.div_ceil((THREADS / lanes).into()).min(MOST_BLOCKS));
        grid.blocks[1] = chunks;
        let kernel = FAMILY.counting(name, results.max(units as u64));
        // SAFETY: the parameters are those that the kernel declares, and the device has checked the
        // operands. The kernel reads `x` within its layout. The kernel writes each result, or
        // writes the partial result of each chunk to the workspace.
        unsafe { gpu.launch(kernel, grid, &[&out, &partial, &x, &of])? };
    }
    if chunks > 1 {
        let grid = Grid::of_threads(results * 32);
        let parameters: [&dyn Parameter; 5] = [&out, &partial, &results, &chunks, &divisor];
        // SAFETY: the parameters are those that the kernel declares, and the device has checked the
        // operands. The kernel writes each result, and reads the partial results of the result from
        // the workspace.
        unsafe { gpu.launch(FAMILY.kernel(names.chunks), grid, &parameters)? };
    }
    Ok(())
}

/// Writes the index of the extreme element along the middle dimension of `x [outer, n, inner]`, for
/// each position of the outer and the inner dimension.
pub(super) fn arg(
    gpu: &mut Gpu,
    kind: Extreme,
    index: &Place,
    x: &Place,
    [n, inner]: [usize; 2],
) -> Result<(), DeviceError> {
    let results = index.layout.elements() as u64;
    let threads = match n {
        _ if inner > 1 => 1,
        0..=16 => 1,
        17..=1024 => 32,
        _ => THREADS,
    };
    let grid = Grid::of_blocks(results.div_ceil((THREADS / threads).into()).min(MOST_BLOCKS));
    let (out, x, smallest) = (gpu.first(index), gpu.first(x), u32::from(kind == Extreme::Min));
    let parameters: [&dyn Parameter; 7] =
        [&out, &x, &results, &(n as u64), &(inner as u64), &threads, &smallest];
    // SAFETY: the parameters are those that the kernel declares, and the device has checked the
    // operands. The kernel writes all `results`, and reads `n` elements of `x` for each result.
    unsafe { gpu.launch(ARG.kernel("arg"), grid, &parameters) }
}
