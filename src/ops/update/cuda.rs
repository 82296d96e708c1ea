//! Updates of parameters on a GPU. Each update makes one pass over its operands. A launch updates
//! at most [`MOST`] tensors.

#![allow(unsafe_code)]

use super::{AdamW, Lion, SgdMomentum, adamw, lion};
use crate::device::DeviceError;
use crate::device::cuda::{Family, Gpu, Grid, Operands, Parameter, Ptr, THREADS};

pub(super) static FAMILY: Family = Family::new("update", include_str!("update.cu"));

/// Value of `MOST` in `update.cu`: the largest number of tensors whose addresses fit in the 4 KiB
/// that a kernel's parameters may have.
const MOST: usize = 64;

/// Rust form of the C++ struct `Tensor` in `update.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Tensor {
    /// The parameter and its states.
    written: [Ptr; 3],
    grad: Ptr,
    count: u64,
    /// Index of the first thread block that updates the tensor.
    first_block: u64,
}

/// Rust form of the C++ struct `Tensors` in `update.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Tensors {
    each: [Tensor; MOST],
    count: u64,
}

/// Rust form of the C++ struct `Momentum` in `update.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Momentum {
    lr: f32,
    momentum: f32,
    weight_decay: f32,
    nesterov: u32,
}

// SAFETY: `Tensors` is `repr(C)` without padding, and has the fields that `update.cu` declares.
unsafe impl Parameter for Tensors {}
// SAFETY: `Momentum` is `repr(C)` without padding, and has the fields that `update.cu` declares.
unsafe impl Parameter for Momentum {}
// SAFETY: `Step` is `repr(C)` without padding, and has the fields of `AdamW` in `update.cu`.
unsafe impl Parameter for adamw::AdamwStep {}
// SAFETY: `Step` is `repr(C)` without padding, and has the fields of `Lion` in `update.cu`.
unsafe impl Parameter for lion::LionStep {}

/// Runs a kernel whose parameters are `Tensors` and `step`. The kernel writes `N` tensors for each
/// gradient.
///
/// # Safety
/// The caller guarantees that the kernel's second parameter has the type of `step`, and that the
/// kernel writes only the first `N` tensors of `Tensor::written`.
unsafe fn each<const N: usize>(
    gpu: &mut Gpu,
    run: &Operands<'_>,
    kernel: &'static str,
    step: &dyn Parameter,
) -> Result<(), DeviceError> {
    let tensors = run.inputs.len() / (N + 1);
    let none = Tensor { written: [Ptr::NULL; 3], grad: Ptr::NULL, count: 0, first_block: 0 };
    let mut next = 0;
    while next < tensors {
        let mut all = Tensors { each: [none; MOST], count: 0 };
        let mut blocks = 0;
        while next < tensors && all.count < MOST as u64 {
            let count = run.outputs[next * N].layout.elements() as u64;
            if count > 0 {
                let mut written = [Ptr::NULL; 3];
                for (to, place) in written.iter_mut().zip(&run.outputs[next * N..][..N]) {
                    *to = gpu.first(place);
                }
                let grad = gpu.first(&run.inputs[tensors * N + next]);
                all.each[all.count as usize] = Tensor { written, grad, count, first_block: blocks };
                all.count += 1;
                blocks += count.div_ceil(u64::from(THREADS) * 4);
            }
            next += 1;
        }
        if blocks > 0 {
            // SAFETY: the caller guarantees the type of `step` and that the kernel writes only `N`
            // tensors. The device has checked the operands. A tensor's blocks read and write
            // `count` elements of each written tensor, and read `count` elements of the gradient.
            unsafe { gpu.launch(FAMILY.kernel(kernel), Grid::of_blocks(blocks), &[&all, step])? };
        }
    }
    Ok(())
}

/// See [`SgdMomentum`].
pub(super) fn sgd_momentum(
    gpu: &mut Gpu,
    run: &Operands<'_>,
    by: &SgdMomentum,
) -> Result<(), DeviceError> {
    let SgdMomentum { lr, momentum, weight_decay, nesterov } = *by;
    let by = Momentum { lr, momentum, weight_decay, nesterov: nesterov.into() };
    // SAFETY: the kernel in `update.cu` takes a `Momentum`, and writes two tensors: the parameter
    // and the velocity.
    unsafe { each::<2>(gpu, run, "sgd_momentum", &by) }
}

/// See [`AdamW`].
pub(super) fn adamw(gpu: &mut Gpu, run: &Operands<'_>, by: &AdamW) -> Result<(), DeviceError> {
    // SAFETY: the kernel in `update.cu` takes an `AdamW`, which has the fields of `adamw::AdamwStep`.
    // The kernel writes three tensors: the parameter and two averages.
    unsafe { each::<3>(gpu, run, "adamw", &by.step()) }
}

/// See [`Lion`].
pub(super) fn lion(gpu: &mut Gpu, run: &Operands<'_>, by: &Lion) -> Result<(), DeviceError> {
    // SAFETY: the kernel in `update.cu` takes a `Lion`, which has the fields of `lion::LionStep`. The
    // kernel writes two tensors: the parameter and the average.
    unsafe { each::<2>(gpu, run, "lion", &by.step()) }
}
