//! Parameter updates.

#![allow(unsafe_code)]

use crate::device::cuda::gpu::Gpu;
use crate::device::cuda::kernels::UPDATE;
use crate::device::cuda::launch::{Grid, Parameter};
use crate::device::{DeviceError, Place};

/// `Step` of `update.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Step {
    /// Learning rate.
    pub lr: f32,
    /// How much of the velocity is kept.
    pub momentum: f32,
    /// L2 penalty.
    pub weight_decay: f32,
}

// SAFETY: three numbers.
unsafe impl Parameter for Step {}

/// `v = momentum * v + grad + weight_decay * p; p -= lr * v`.
pub(super) fn sgd_momentum(
    gpu: &mut Gpu,
    param: &Place,
    velocity: &Place,
    grad: &Place,
    by: Step,
) -> Result<(), DeviceError> {
    let count = param.layout.elements() as u64;
    let (param, velocity, grad) = (gpu.first(param), gpu.first(velocity), gpu.first(grad));
    let grid = Grid::of_threads(count.div_ceil(4));
    gpu.launch(UPDATE.kernel("sgd_momentum"), grid, &[&param, &velocity, &grad, &count, &by])
}
