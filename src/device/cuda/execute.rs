//! From an op and the places of its operands to kernels.

use super::gpu::Gpu;
use crate::device::{Call, DeviceError};
use crate::layout::Layout;
use crate::ops::Op;

/// Runs an op, once all that was given before is done.
pub(super) fn execute(_gpu: &mut Gpu, call: &Call<'_, Op>) -> Result<(), DeviceError> {
    Err(DeviceError::new(format!("cuda: {:?}", call.op)))
}

/// Scratch bytes a run needs. Depends on nothing but the arguments.
pub(super) fn workspace(_op: &Op, _inputs: &[Layout], _outputs: &[Layout]) -> u64 {
    0
}
