//! Normalization of rows, and of groups of channels, on a GPU.
//!
//! RMS normalization does not subtract the mean, so its kernels receive null addresses for `mean`,
//! `beta` and `dbeta`.

#![allow(unsafe_code)]

use crate::device::cuda::launch::THREADS;
use crate::device::cuda::strides::{Divider, width};
use crate::device::cuda::{Family, Gpu, Grid, Parameter, Ptr, Scratch};
use crate::device::{DeviceError, Place};
use crate::layout::Layout;

pub(super) static FAMILY: Family = Family::new("norm", include_str!("norm.cu"));

/// Largest number of elements of a row that one warp handles.
const SHORT: usize = 512;
/// Number of elements that each thread handles in a row of more than [`SHORT`] elements. A block
/// has at most [`MOST_THREADS`] threads.
const EACH: usize = 16;
const MOST_THREADS: usize = 1024;
/// Largest number of blocks in a grid. If there are more rows, each block computes several rows.
const MOST_BLOCKS: u64 = 1 << 20;
/// Number of blocks that keeps any device busy. The number is constant, because results must not
/// depend on the device.
const BLOCKS: usize = 1024;
/// Smallest number of rows in a chunk.
const LEAST: usize = 64;

/// Size in bytes of the struct `Two` in `common.cuh`.
const TWO: usize = 16;

/// Rust form of the C++ struct `Rows` in `norm.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Rows {
    rows: u64,
    length: u64,
    threads: u32,
    width: u32,
}

// SAFETY: the struct is `repr(C)` and holds no references. The CUDA source declares a struct with
// equal fields in equal order.
unsafe impl Parameter for Rows {}

impl Rows {
    /// Makes the parameter for rows of `n` elements. The kernel loads several elements at once if
    /// all addresses are aligned for it.
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

/// Rust form of the C++ struct `Forward` in `norm.cu`.
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

// SAFETY: the struct is `repr(C)` and holds no references. The CUDA source declares a struct with
// equal fields in equal order.
unsafe impl Parameter for Forward {}

/// Rust form of the C++ struct `Grad` in `norm.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Grad {
    x: Ptr,
    gamma: Ptr,
    mean: Ptr,
    inv_std: Ptr,
    dy: Ptr,
}

// SAFETY: the struct is `repr(C)` and holds no references. The CUDA source declares a struct with
// equal fields in equal order.
unsafe impl Parameter for Grad {}

/// Rust form of the C++ struct `Sums` in `norm.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Sums {
    dgamma: Ptr,
    dbeta: Ptr,
    partial: Ptr,
}

// SAFETY: the struct is `repr(C)` and holds no references. The CUDA source declares a struct with
// equal fields in equal order.
unsafe impl Parameter for Sums {}

/// Computes `y = (x - mean) * inv_std * gamma + beta` with the statistics of each row. `more` has
/// `mean` and `beta` if the mean is subtracted, else `None`. There must be at least one row.
pub(super) fn forward(
    gpu: &mut Gpu,
    [y, inv_std, x, gamma]: [&Place; 4],
    more: Option<[&Place; 2]>,
    eps: f32,
) -> Result<(), DeviceError> {
    let [rows, n] = [inv_std, gamma].map(|place| place.layout.elements());
    let [y, inv_std, x, gamma] = [y, inv_std, x, gamma].map(|place| gpu.first(place));
    let [mean, beta] = firsts(gpu, more);
    let of = Rows::new(rows, n, [x, y, gamma, beta]);
    let with = Forward { y, mean, inv_std, x, gamma, beta, eps: eps.into() };
    // SAFETY: the parameters are those that the kernel declares, and the device has checked the
    // operands. In each row, the kernel reads `length` elements of `x`, `gamma` and `beta`, and
    // writes `length` elements of `y`. The kernel writes a mean and an `inv_std` for each row.
    unsafe { gpu.launch(FAMILY.kernel("layer_norm"), of.grid(), &[&with, &of]) }
}

/// Addresses of two operands; null if `places` is `None`.
fn firsts(gpu: &Gpu, places: Option<[&Place; 2]>) -> [Ptr; 2] {
    places.map_or([Ptr::NULL; 2], |places| places.map(|place| gpu.first(place)))
}

/// Number of rows in a chunk, and number of chunks, for sums over rows.
fn chunks(rows: usize, n: usize) -> (usize, usize) {
    // Number of blocks if rows are not divided into chunks.
    let blocks = n.div_ceil(128).max(1);
    let chunk = rows.div_ceil((BLOCKS / blocks).max(1)).max(LEAST);
    (chunk, rows.div_ceil(chunk).max(1))
}

/// Bytes of workspace of [`grad`] for `rows` rows of `n` elements: the sums of each chunk, or 0 if
/// there is only one chunk.
pub(super) fn workspace_of_grad(rows: usize, n: usize) -> u64 {
    match chunks(rows, n) {
        (_, 1) => 0,
        (_, chunks) => (chunks * n * TWO) as u64,
    }
}

/// Computes the gradients of `x` and `gamma`, and of `beta` if there is a mean. Rows must have
/// elements.
pub(super) fn grad(
    gpu: &mut Gpu,
    outputs: [&Place; 2],
    [x, gamma, inv_std, dy]: [&Place; 4],
    more: Option<[&Place; 2]>,
    mut scratch: Scratch,
) -> Result<(), DeviceError> {
    let [n, rows] = [gamma, inv_std].map(|place| place.layout.elements());
    let [dx, dgamma] = outputs.map(|place| gpu.first(place));
    let [x, gamma, inv_std, dy] = [x, gamma, inv_std, dy].map(|place| gpu.first(place));
    let [mean, dbeta] = firsts(gpu, more);
    let with = Grad { x, gamma, mean, inv_std, dy };
    if rows > 0 {
        let of = Rows::new(rows, n, [x, gamma, dy, dx]);
        let kernel = FAMILY.kernel("layer_norm_grad");
        // SAFETY: the parameters are those that the kernel declares, and the device has checked the
        // operands. In each row, the kernel reads `length` elements of `x`, `dy` and `gamma` and
        // two statistics, and writes `length` elements of `dx`.
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
    // SAFETY: the parameters are those that the kernel declares, and the device has checked the
    // operands. The kernel reads `x`, `dy` and two statistics of each row. The kernel writes
    // `dgamma` and `dbeta`, or writes the sums of each chunk to `partial`, which is large enough.
    unsafe { gpu.launch(kernel, grid, &[&to, &with, &of, &chunk, &lanes])? };
    if chunks > 1 {
        let grid = Grid::of_threads(of.length * 32);
        let kernel = FAMILY.kernel("layer_norm_grad_join");
        // SAFETY: the parameters are those that the kernel declares, and the device has checked the
        // operands. The kernel reads the sums in `partial`, and writes `dgamma` and `dbeta`.
        unsafe { gpu.launch(kernel, grid, &[&to, &of.length, &chunks])? };
    }
    Ok(())
}

/// Rust form of the C++ struct `Channels` in `norm.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Channels {
    groups: u64,
    channels: u64,
    inner: Divider,
}

// SAFETY: the struct is `repr(C)` and holds no references. The CUDA source declares a struct with
// equal fields in equal order.
unsafe impl Parameter for Channels {}

impl Channels {
    /// Division of the channels of `x` into groups, and the number of elements of a channel.
    fn new(x: &Place, groups: usize) -> (Self, usize) {
        let [channels, inner] = super::group::sides(&x.layout, groups);
        let all =
            Self { groups: groups as u64, channels: channels as u64, inner: Divider::new(inner) };
        (all, inner)
    }
}

/// Computes `y = (x - mean) * inv_std * gamma + beta` with the statistics of each group of
/// channels. There must be at least one group.
pub(super) fn group(
    gpu: &mut Gpu,
    outputs: &[Place],
    inputs: &[Place],
    eps: f32,
    groups: usize,
) -> Result<(), DeviceError> {
    let (by, inner) = Channels::new(&inputs[0], groups);
    let [y, mean, inv_std] = std::array::from_fn(|i| gpu.first(&outputs[i]));
    let [x, gamma, beta] = std::array::from_fn(|i| gpu.first(&inputs[i]));
    let n = by.channels as usize * inner;
    let of = Rows {
        width: width([x, y], [inner]) as u32,
        ..Rows::new(outputs[1].layout.elements(), n, [x, y])
    };
    let with = Forward { y, mean, inv_std, x, gamma, beta, eps: eps.into() };
    let kernel = FAMILY.counting("group_norm", n as u64);
    // SAFETY: the parameters are those that the kernel declares, and the device has checked the
    // operands. In each row, the kernel reads `length` elements of `x`, and writes `length`
    // elements of `y`. The kernel reads `gamma` and `beta` of each channel, and writes a mean and
    // an `inv_std` for each row.
    unsafe { gpu.launch(kernel, of.grid(), &[&with, &of, &by]) }
}

/// Bytes of workspace of [`group_grad`]: two sums of each channel of each image.
pub(super) fn workspace_of_group_grad(x: &Layout) -> u64 {
    (x.shape()[0] as u64).saturating_mul((x.shape()[1] * TWO) as u64)
}

/// Computes the gradients of `x`, `gamma` and `beta`. There must be at least one channel.
pub(super) fn group_grad(
    gpu: &mut Gpu,
    outputs: &[Place],
    inputs: &[Place],
    groups: usize,
    mut scratch: Scratch,
) -> Result<(), DeviceError> {
    let (by, inner) = Channels::new(&inputs[0], groups);
    let sums = scratch.take(workspace_of_group_grad(&inputs[0].layout))?;
    let [dx, dgamma, dbeta] = std::array::from_fn(|i| gpu.first(&outputs[i]));
    let [x, gamma, mean, inv_std, dy] = std::array::from_fn(|i| gpu.first(&inputs[i]));
    let with = Grad { x, gamma, mean, inv_std, dy };
    let [images, channels] = [0, 1].map(|axis| inputs[0].layout.shape()[axis]);
    if images > 0 {
        let of = Rows::new(images * channels, inner, [x, dy]);
        let kernel = FAMILY.kernel("group_norm_grad_sums");
        // SAFETY: the parameters are those that the kernel declares, and the device has checked the
        // operands. For each channel of each image, the kernel reads `length` elements of `x` and
        // `dy` and two statistics of the group. For each channel, the kernel writes two sums to the
        // workspace.
        unsafe { gpu.launch(kernel, of.grid(), &[&sums, &with, &of, &by.channels])? };
    }
    if inputs[0].layout.elements() > 0 {
        let n = by.channels as usize * inner;
        let of = Rows {
            width: width([x, dy, dx], [inner]) as u32,
            ..Rows::new(images * groups, n, [x, dy, dx])
        };
        let kernel = FAMILY.counting("group_norm_grad", n as u64);
        // SAFETY: the parameters are those that the kernel declares, and the device has checked the
        // operands. In each row, the kernel reads `length` elements of `x` and `dy`, and writes
        // `length` elements of `dx`. The kernel reads `gamma`, the sums of each channel, and two
        // statistics of each row.
        unsafe { gpu.launch(kernel, of.grid(), &[&dx, &sums, &with, &of, &by])? };
    }
    let kernel = FAMILY.kernel("group_norm_grad_join");
    let [images, channels] = [images, channels].map(|n| n as u64);
    // SAFETY: the parameters are those that the kernel declares, and the device has checked the
    // operands. The kernel reads the sums of each channel of each image, and writes `dgamma` and
    // `dbeta`.
    unsafe {
        gpu.launch(
            kernel,
            Grid::of_threads(channels),
            &[&dgamma, &dbeta, &sums, &images, &channels],
        )
    }
}
