//! From an op and the places of its operands to kernels.

use super::gpu::Gpu;
use crate::device::{Call, DeviceError};
use crate::layout::Layout;
use crate::ops::Op;

/// Runs an op, once all that was given before is done.
pub(super) fn execute(gpu: &mut Gpu, call: &Call<'_, Op>) -> Result<(), DeviceError> {
    match call.op {
        Op::MatMul => super::product::execute(gpu, call),
        Op::Conv2d(_) | Op::Conv2dGradInput { .. } | Op::Conv2dGradWeight { .. } => {
            super::convolution::execute(gpu, call)
        }
        _ => Err(DeviceError::new(format!("cuda: {:?}", call.op))),
    }
}

/// Packs the elements of `x`, which is at the first of them.
pub(super) fn copy(
    _gpu: &mut Gpu,
    _out: super::launch::Ptr,
    _x: super::launch::Ptr,
    layout: &Layout,
) -> Result<(), DeviceError> {
    Err(DeviceError::new(format!("cuda: copying {layout}")))
}

/// Scratch bytes a run needs. Depends on nothing but the arguments.
pub(super) fn workspace(_op: &Op, _inputs: &[Layout], _outputs: &[Layout]) -> u64 {
    0
}
