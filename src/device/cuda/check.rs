//! What kernels rely on: operands lie within the memory, and outputs apart from all else.

use super::Kernels;
use super::gpu::Gpu;
use crate::device::{Call, DeviceError};
use smallvec::SmallVec;
use std::ops::Range;

/// Fails unless every operand lies within the memory, outputs and workspace apart from each other and from all
/// inputs but their own old value.
pub(super) fn operands<O: Kernels>(gpu: &Gpu, call: &Call<'_, O>) -> Result<(), DeviceError> {
    let mut written: SmallVec<[Range<u64>; 6]> = SmallVec::new();
    for place in call.outputs {
        written.push(gpu.range_of(place)?);
    }
    written.push(call.workspace.clone());
    for (i, a) in written.iter().enumerate() {
        if let Some(b) = written[..i].iter().find(|b| meet(a, b)) {
            return Err(overlap(a, b));
        }
    }
    for place in call.inputs.iter().skip(call.op.updates()) {
        let read = gpu.range_of(place)?;
        if let Some(b) = written.iter().find(|b| meet(&read, b)) {
            return Err(overlap(&read, b));
        }
    }
    Ok(())
}

fn meet(a: &Range<u64>, b: &Range<u64>) -> bool {
    !a.is_empty() && !b.is_empty() && a.start < b.end && b.start < a.end
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> DeviceError {
    DeviceError::new(format!("cuda: operands at bytes {a:?} and {b:?} overlap"))
}
