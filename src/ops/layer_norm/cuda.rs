//! Layer normalization of rows.

#![allow(unsafe_code)]

use crate::device::cuda::launch::THREADS;
use crate::device::cuda::steps::width;
use crate::device::cuda::{Family, Gpu, Grid, Parameter, Ptr, Scratch};
use crate::device::{DeviceError, Place};

pub(super) static FAMILY: Family = Family::new("layer_norm", include_str!("layer_norm.cu"));

/// Elements of a row up to which a warp is enough.
const SHORT: usize = 512;
/// Elements of a longer row that a thread has, and most threads of a block that has a row.
const EACH: usize = 16;
const MOST_THREADS: usize = 1024;
/// Blocks of a grid at most; they go on with the next rows.
const MOST_BLOCKS: u64 = 1 << 20;
/// Blocks that keep any device busy. A number, not the device's: results must not depend on it.
const BLOCKS: usize = 1024;
/// Rows of a chunk, at least.
const LEAST: usize = 64;

/// Bytes of `Two` of `common.cuh`.
const TWO: usize = 16;

/// `Rows` of `layer_norm.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Rows {
    rows: u64,
    length: u64,
    threads: u32,
    width: u32,
}

// SAFETY: numbers.
unsafe impl Parameter for Rows {}

impl Rows {
    /// As many elements at once as lie together at all of these addresses.
    fn new<const N: usize>(rows: usize, n: usize, addresses: [Ptr; N]) -> Self {
        let width = width(addresses, [n]) as u32;
        let threads = if n <= SHORT {
            (n / width as usize).clamp(1, 32).next_power_of_two()
        } else {
            (n / EACH).next_multiple_of(32).min(MOST_THREADS)
        };
        Self { rows: rows as u64, length: n as u64, threads: threads as u32, width }
    }

    fn grid(&self) -> Grid {
        let threads = if self.threads > 32 { self.threads } else { THREADS };
        let blocks = self.rows.div_ceil((threads / self.threads).into());
        Grid { threads, ..Grid::of_blocks(blocks.min(MOST_BLOCKS)) }
    }
}

/// `Forward` of `layer_norm.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Forward {
    y: Ptr,
    mean: Ptr,
    inv_std: Ptr,
    x: Ptr,
    gamma: Ptr,
    beta: Ptr,
    eps: f64,
}

// SAFETY: addresses and a number.
unsafe impl Parameter for Forward {}

/// `Grad` of `layer_norm.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Grad {
    x: Ptr,
    gamma: Ptr,
    mean: Ptr,
    inv_std: Ptr,
    dy: Ptr,
}

// SAFETY: addresses.
unsafe impl Parameter for Grad {}

/// `Sums` of `layer_norm.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Sums {
    dgamma: Ptr,
    dbeta: Ptr,
    partial: Ptr,
}

// SAFETY: addresses.
unsafe impl Parameter for Sums {}

/// `y = (x - mean) * inv_std * gamma + beta` with the statistics of each row. There are rows.
pub(super) fn forward(
    gpu: &mut Gpu,
    outputs: &[Place],
    inputs: &[Place],
    eps: f32,
) -> Result<(), DeviceError> {
    let [y, mean, inv_std] = std::array::from_fn(|i| gpu.first(&outputs[i]));
    let [x, gamma, beta] = std::array::from_fn(|i| gpu.first(&inputs[i]));
    let [rows, n] = [&outputs[1], &inputs[1]].map(|place| place.layout.elements());
    let of = Rows::new(rows, n, [x, y, gamma, beta]);
    let with = Forward { y, mean, inv_std, x, gamma, beta, eps: eps.into() };
    // SAFETY: the kernel's parameters; it reads `x` and writes `y`, `length` elements of each of the rows, reads as
    // many of `gamma` and `beta`, and writes a mean and an `inv_std` of each row.
    unsafe { gpu.launch(FAMILY.kernel("layer_norm"), of.grid(), &[&with, &of]) }
}

/// How sums over rows are cut: rows of a chunk, and how many chunks there are.
fn chunks(rows: usize, n: usize) -> (usize, usize) {
    // Blocks without cutting.
    let blocks = n.div_ceil(128).max(1);
    let chunk = rows.div_ceil((BLOCKS / blocks).max(1)).max(LEAST);
    (chunk, rows.div_ceil(chunk).max(1))
}

/// Scratch bytes of [`grad`] of so many rows of `n` elements: the sums of each chunk, unless there is one chunk.
pub(super) fn workspace_of_grad(rows: usize, n: usize) -> u64 {
    match chunks(rows, n) {
        (_, 1) => 0,
        (_, chunks) => (chunks * n * TWO) as u64,
    }
}

/// Gradients of `x`, `gamma` and `beta`. A row has elements.
pub(super) fn grad(
    gpu: &mut Gpu,
    outputs: &[Place],
    inputs: &[Place],
    mut scratch: Scratch,
) -> Result<(), DeviceError> {
    let [dx, dgamma, dbeta] = std::array::from_fn(|i| gpu.first(&outputs[i]));
    let [x, gamma, mean, inv_std, dy] = std::array::from_fn(|i| gpu.first(&inputs[i]));
    let [n, rows] = [1, 2].map(|i| inputs[i].layout.elements());
    let with = Grad { x, gamma, mean, inv_std, dy };
    if rows > 0 {
        let of = Rows::new(rows, n, [x, gamma, dy, dx]);
        let kernel = FAMILY.kernel("layer_norm_grad");
        // SAFETY: the kernel's parameters; it reads `x` and `dy` and writes `dx`, `length` elements of each of the rows,
        // and reads as many of `gamma` and two statistics of each row.
        unsafe { gpu.launch(kernel, of.grid(), &[&dx, &with, &of])? };
    }
    let (chunk, chunks) = chunks(rows, n);
    let to = Sums { dgamma, dbeta, partial: scratch.take(workspace_of_grad(rows, n))? };
    let of = Rows::new(rows, n, [x, dy]);
    let units = n.div_ceil(of.width as usize);
    let lanes = units.next_power_of_two().min(32) as u32;
    let mut grid = Grid::of_blocks(units.div_ceil(lanes as usize) as u64);
    grid.blocks[1] = chunks as u32;
    let kernel = FAMILY.kernel("layer_norm_grad_sums");
    let (chunk, chunks) = (chunk as u64, chunks as u32);
    // SAFETY: the kernel's parameters; it reads `x`, `dy` and two statistics of each of the rows, and writes `dgamma` and
    // `dbeta`, or the sums of each chunk, for which `partial` has room.
    unsafe { gpu.launch(kernel, grid, &[&to, &with, &of, &chunk, &lanes])? };
    if chunks > 1 {
        let grid = Grid::of_threads(of.length * 32);
        let kernel = FAMILY.kernel("layer_norm_grad_join");
        // SAFETY: the kernel's parameters; it reads what was written there, and writes `dgamma` and `dbeta`.
        unsafe { gpu.launch(kernel, grid, &[&to, &of.length, &chunks])? };
    }
    Ok(())
}
