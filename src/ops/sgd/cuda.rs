//! Parameter updates.

#![allow(unsafe_code)]

use super::SgdMomentum;
use crate::device::cuda::{Family, Gpu, Grid, Parameter};
use crate::device::{DeviceError, Place};

pub(super) static FAMILY: Family = Family::new("sgd", include_str!("sgd.cu"));

/// `Step` of `sgd.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Step {
    lr: f32,
    momentum: f32,
    weight_decay: f32,
}

// SAFETY: three numbers.
unsafe impl Parameter for Step {}

/// `v = momentum * v + grad + weight_decay * p; p -= lr * v`.
pub(super) fn momentum(
    gpu: &mut Gpu,
    param: &Place,
    velocity: &Place,
    grad: &Place,
    by: &SgdMomentum,
) -> Result<(), DeviceError> {
    let SgdMomentum { lr, momentum, weight_decay } = *by;
    let count = param.layout.elements() as u64;
    let (param, velocity, grad) = (gpu.first(param), gpu.first(velocity), gpu.first(grad));
    let grid = Grid::of_threads(count.div_ceil(4));
    let by = Step { lr, momentum, weight_decay };
    // SAFETY: the kernel's parameters; it writes `count` elements of the two outputs, and reads as many of `grad`.
    unsafe {
        gpu.launch(FAMILY.kernel("sgd_momentum"), grid, &[&param, &velocity, &grad, &count, &by])
    }
}
