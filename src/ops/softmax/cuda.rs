//! Softmax and cross entropy over rows, on a GPU.

#![allow(unsafe_code)]

use super::cross_entropy::Targets;
use crate::device::cuda::fault::Numbers;
use crate::device::cuda::launch::THREADS;
use crate::device::cuda::strides::{Divider, width};
use crate::device::cuda::{Family, Gpu, Grid, Operands, Parameter, Ptr, Scratch};
use crate::device::{DeviceError, Place};
use crate::layout::{DType, Layout};

pub(super) static FAMILY: Family = Family::new("softmax", include_str!("softmax.cu"));

/// Names of the two kernels of a function. In the first kernel, lanes of a warp share a row. In the
/// second kernel, all threads of a block share a row.
#[derive(Clone, Copy)]
pub(super) struct Names([&'static str; 2]);

pub(super) const SOFTMAX: Names = Names(["softmax_lanes", "softmax_block"]);
pub(super) const LOG_SOFTMAX: Names = Names(["log_softmax_lanes", "log_softmax_block"]);
pub(super) const SOFTMAX_GRAD: Names = Names(["softmax_grad_lanes", "softmax_grad_block"]);
pub(super) const LOG_SOFTMAX_GRAD: Names =
    Names(["log_softmax_grad_lanes", "log_softmax_grad_block"]);
const CROSS_ENTROPY: Names = Names(["cross_entropy_lanes", "cross_entropy_block"]);

/// Largest number of elements of a row that lanes of a warp share.
const SHORT: usize = 1024;
/// Smallest number of elements of a row that a block of `4 * THREADS` threads shares.
const LONG: usize = 8 * 1024;
/// Largest number of blocks in a grid. If there are more rows, each block computes several rows.
const MOST_BLOCKS: u64 = 1 << 20;

/// Rust form of the C++ struct `Rows` in `softmax.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Rows {
    rows: u64,
    length: u64,
    lanes: u32,
    width: u32,
}

// SAFETY: `Rows` is `repr(C)` without padding, and has the fields that `softmax.cu` declares.
unsafe impl Parameter for Rows {}

impl Rows {
    /// Describes the rows of `x`, and chooses the kernel and the grid for them.
    fn new(
        Names([lanes, block]): Names,
        x: &Layout,
        addresses: &[Ptr],
    ) -> (Self, &'static str, Grid) {
        let length = x.shape().last().copied().unwrap_or(1);
        let rows: usize = x.shape()[..x.rank().saturating_sub(1)].iter().product();
        let fours = length % 4 == 0 && addresses.iter().all(|p| p.is_aligned());
        let width = if fours { 4 } else { 1 };
        let sharing = (length / width).clamp(1, 32).next_power_of_two() as u32;
        let all =
            Self { rows: rows as u64, length: length as u64, lanes: sharing, width: width as u32 };
        if length <= SHORT {
            let blocks = all.rows.div_ceil((THREADS / sharing).into());
            (all, lanes, Grid::of_blocks(blocks.min(MOST_BLOCKS)))
        } else {
            let threads = if length < LONG { THREADS } else { 4 * THREADS };
            (all, block, Grid { threads, ..Grid::of_blocks(all.rows.min(MOST_BLOCKS)) })
        }
    }
}

/// Computes `y` from `x`.
pub(super) fn forward(gpu: &mut Gpu, names: Names, run: &Operands<'_>) -> Result<(), DeviceError> {
    let x = &run.inputs[0];
    let (out, from) = (gpu.first(&run.outputs[0]), gpu.first(x));
    let (rows, name, grid) = Rows::new(names, &x.layout, &[out, from]);
    // SAFETY: the parameters are those that the kernel declares, and the device has checked the
    // operands. The kernel writes all elements of `y`, and reads as many elements of `x`.
    unsafe { gpu.launch(FAMILY.kernel(name), grid, &[&out, &from, &rows]) }
}

/// Computes `dx` from `y` and `dy`.
pub(super) fn gradient(gpu: &mut Gpu, names: Names, run: &Operands<'_>) -> Result<(), DeviceError> {
    let [y, dy] = [&run.inputs[0], &run.inputs[1]];
    let (out, from, dy) = (gpu.first(&run.outputs[0]), gpu.first(y), gpu.first(dy));
    let (rows, name, grid) = Rows::new(names, &y.layout, &[out, from, dy]);
    // SAFETY: the parameters are those that the kernel declares, and the device has checked the
    // operands. The kernel writes all elements of `dx`, and reads as many elements of `y` and of
    // `dy`.
    unsafe { gpu.launch(FAMILY.kernel(name), grid, &[&out, &from, &rows, &dy]) }
}

/// Workspace of [`cross_entropy`], in bytes: the loss of each row.
pub(super) fn workspace(logits: &Layout) -> u64 {
    (logits.shape()[0] * DType::F32.bytes()) as u64
}

/// Rust form of the C++ struct `Targets` in `softmax.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Of {
    on: f32,
    off: f32,
    ignore: i32,
}

// SAFETY: `Of` is `repr(C)` without padding, with the fields that `softmax.cu` declares.
unsafe impl Parameter for Of {}

impl From<Targets> for Of {
    fn from(Targets { on, off, ignore }: Targets) -> Self {
        Self { on, off, ignore }
    }
}

/// Computes the log-softmax of each row, and the loss.
///
/// The loss of a row is minus the dot product of targets and log-probabilities. The result is the
/// mean loss of the rows whose label is not `ignore`.
pub(super) fn cross_entropy(
    gpu: &mut Gpu,
    [loss, log_probs]: [&Place; 2],
    logits: &Place,
    labels: &Place,
    targets: Targets,
    mut scratch: Scratch,
) -> Result<(), DeviceError> {
    let losses = scratch.take(workspace(&logits.layout))?;
    let (out, x) = (gpu.first(log_probs), gpu.first(logits));
    let (labels, loss, targets) = (gpu.first(labels), gpu.first(loss), Of::from(targets));
    let (rows, name, grid) = Rows::new(CROSS_ENTROPY, &logits.layout, &[out, x]);
    if rows.rows > 0 {
        let report = gpu.report(Numbers::Label, rows.length as usize);
        let parameters: [&dyn Parameter; 7] =
            [&out, &x, &rows, &losses, &labels, &targets, &report];
        // SAFETY: the parameters are those that the kernel declares, and the device has checked the
        // operands. The kernel writes all elements of `log_probs`, and the loss of each row to
        // `losses`, which has a float for each row. The kernel reads all elements of `logits`, and
        // a label for each row. The kernel checks the label before it indexes the row.
        unsafe { gpu.launch(FAMILY.kernel(name), grid, &parameters)? };
    }
    let (mean, grid) =
        (FAMILY.kernel("mean_loss"), Grid { threads: 4 * THREADS, ..Grid::of_blocks(1) });
    // SAFETY: the parameters are those that the kernel declares, and the device has checked the
    // operands. The kernel writes the loss. The kernel reads the losses of the rows from `losses`,
    // and a label for each row.
    unsafe { gpu.launch(mean, grid, &[&loss, &losses, &labels, &rows.rows, &targets]) }
}

/// Workspace of [`cross_entropy_grad`], in bytes: one float, the number of labels that are not
/// ignored.
pub(super) const WORKSPACE_OF_GRAD: u64 = size_of::<f32>() as u64;

/// Computes `(e^log_probs - targets) * dloss / count`, or 0 in rows whose label is `ignore`.
pub(super) fn cross_entropy_grad(
    gpu: &mut Gpu,
    dx: &Place,
    [log_probs, labels, dloss]: [&Place; 3],
    targets: Targets,
    mut scratch: Scratch,
) -> Result<(), DeviceError> {
    let [rows, classes] = [0, 1].map(|axis| log_probs.layout.shape()[axis]);
    let (report, targets) = (gpu.report(Numbers::Label, classes), Of::from(targets));
    let (out, log_probs, labels) = (gpu.first(dx), gpu.first(log_probs), gpu.first(labels));
    let count = scratch.take(WORKSPACE_OF_GRAD)?;
    let (kernel, grid) =
        (FAMILY.kernel("count_labels"), Grid { threads: 4 * THREADS, ..Grid::of_blocks(1) });
    // SAFETY: the parameters are those that the kernel declares, and the device has checked the
    // operands. The kernel reads a label for each row, and writes one float to `count`, which is
    // large enough.
    unsafe { gpu.launch(kernel, grid, &[&count, &labels, &(rows as u64), &targets])? };
    let width = width([out, log_probs], [classes]);
    let units = (rows * classes) as u64 / width;
    let parameters: [&dyn Parameter; 10] = [
        &out,
        &log_probs,
        &labels,
        &gpu.first(dloss),
        &count,
        &units,
        &Divider::new(classes / width as usize),
        &(width as u32),
        &targets,
        &report,
    ];
    let (kernel, grid) = (FAMILY.counting("cross_entropy_grad", units), Grid::of_threads(units));
    // SAFETY: the parameters are those that the kernel declares, and the device has checked the
    // operands. The kernel writes `units` of `width` elements of `dx`, and reads as many elements
    // of `log_probs`. The kernel reads a label for each row, `dloss`, and the float that
    // `count_labels` wrote to `count`.
    unsafe { gpu.launch(kernel, grid, &parameters) }
}
