//! Checks of operands before a run, because kernels rely on their results. Operands must have the
//! layouts that the op infers, and must lie within the memory. Outputs must overlap no other
//! operand.

use super::gpu::Gpu;
use super::scratch::ALIGNMENT;
use crate::device::{Call, DeviceError, Place};
use crate::layout::Layout;
use crate::op::Operation;
use smallvec::SmallVec;
use std::ops::Range;

/// Fails unless the outputs have the layouts that the op infers, and every operand lies within the
/// memory.
///
/// Outputs and workspace must not overlap each other or an input. The only exception is the output
/// of an update in place, which overlaps its own old value.
pub(super) fn operands<O: Operation>(gpu: &Gpu, call: &Call<'_, O>) -> Result<(), DeviceError> {
    let old_values = outputs(call)?;
    let mut written: SmallVec<[Range<u64>; 6]> = SmallVec::new();
    for place in call.outputs {
        written.push(gpu.range_of(place)?);
    }
    gpu.within(&call.workspace)?;
    if !call.workspace.is_empty() && !call.workspace.start.is_multiple_of(ALIGNMENT) {
        return Err(DeviceError::new(format!(
            "cuda: a workspace at bytes {:?}, expected to begin at a multiple of {ALIGNMENT}",
            call.workspace
        )));
    }
    written.push(call.workspace.clone());
    for (i, a) in written.iter().enumerate() {
        if let Some(b) = written[..i].iter().find(|b| meet(a, b)) {
            return Err(overlap(a, b));
        }
    }
    for (i, place) in call.inputs.iter().enumerate() {
        if i < old_values {
            continue;
        }
        let read = gpu.range_of(place)?;
        if let Some(b) = written.iter().find(|b| meet(&read, b)) {
            return Err(overlap(&read, b));
        }
    }
    Ok(())
}

/// Fails unless the outputs have the layouts that the op infers. Returns the number of leading
/// inputs that the op updates in place.
fn outputs<O: Operation>(call: &Call<'_, O>) -> Result<usize, DeviceError> {
    let inputs: SmallVec<[Layout; 6]> = call.inputs.iter().map(|place| place.layout).collect();
    let expected = call.op.infer(&inputs).map_err(|e| DeviceError::new(e.to_string()))?;
    if expected.len() != call.outputs.len() {
        return Err(DeviceError::new(format!(
            "cuda: {} has {} outputs, {} were given",
            call.op.name(),
            expected.len(),
            call.outputs.len()
        )));
    }
    let name = call.op.name();
    let Some((targets, fresh)) = expected.written() else {
        let message = format!("cuda: {name} is a view and has no kernel");
        return Err(DeviceError::new(message));
    };
    for (i, given) in call.outputs.iter().enumerate() {
        let expected = match i.checked_sub(targets) {
            None if call.inputs.get(i) == Some(given) => continue,
            None => "the place of its input".to_owned(),
            Some(i) if fresh[i] == given.layout => continue,
            Some(i) => fresh[i].to_string(),
        };
        let Place { storage, layout } = given;
        return Err(DeviceError::new(format!(
            "cuda: an output of {name} is {layout} at byte {storage}, expected {expected}"
        )));
    }
    Ok(targets)
}

fn meet(a: &Range<u64>, b: &Range<u64>) -> bool {
    !a.is_empty() && !b.is_empty() && a.start < b.end && b.start < a.end
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> DeviceError {
    DeviceError::new(format!("cuda: operands at bytes {a:?} and {b:?} overlap"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device as _;
    use crate::device::cuda::for_tests;
    use crate::layout::DType;
    use crate::ops::{Accumulate, MatMul, Op, Reshape, Unary};

    const BYTES: u64 = 1 << 16;

    fn at(storage: u64, shape: &[usize]) -> Place {
        let layout = Layout::contiguous(DType::F32, crate::layout::Dims::new(shape));
        Place { storage, layout }
    }

    /// Kernels do not check their operands, and any caller may use a device, so the device must
    /// refuse invalid calls.
    #[test]
    fn calls_that_do_not_fit_are_refused() {
        let Some(mut device) = for_tests(BYTES) else { return };
        let [neg, add, product]: [Op; 3] = [Unary::Neg.into(), Accumulate.into(), MatMul.into()];
        let flat: Op = Reshape { shape: crate::layout::Dims::new(&[4]) }.into();
        let (x, y) = (at(0, &[4]), at(256, &[4]));
        let turned =
            Place { layout: at(0, &[2, 2]).layout.permute(&[1, 0]).unwrap(), ..at(256, &[2, 2]) };
        let large = at(512, &[100, 100]);
        /// An op, inputs, outputs and workspace of an invalid call, and the reason in the error.
        type Case<'a> = (&'a Op, &'a [Place], &'a [Place], Range<u64>, &'a str);
        let cases: [Case<'_>; 16] = [
            (&neg, &[x], &[y], 0..0, ""),
            (&add, &[x, y], &[x], 512..1024, ""),
            (
                &neg,
                &[x],
                &[at(256, &[5])],
                0..0,
                "an output of neg is f32[5] at byte 256, expected",
            ),
            (&neg, &[at(0, &[2, 2])], &[turned], 0..0, "an output of neg"),
            (&neg, &[x], &[], 0..0, "neg has 1 outputs, 0 were given"),
            (&neg, &[x], &[y, large], 0..0, "neg has 1 outputs, 2 were given"),
            (&neg, &[], &[y], 0..0, "neg: takes 1 inputs, 0 were given"),
            (&product, &[at(0, &[2, 3]), at(256, &[4, 5])], &[large], 0..0, "has 3 columns"),
            (&flat, &[at(0, &[2, 2])], &[y], 0..0, "reshape is a view"),
            // Two invalid updates: the output is not at the place of the updated input, or the
            // updated input is also another input.
            (&add, &[x, y], &[at(512, &[4])], 0..0, "an output of accumulate"),
            (&add, &[x, x], &[x], 0..0, "overlap"),
            (&neg, &[x], &[at(8, &[4])], 0..0, "overlap"),
            (&neg, &[x], &[at(BYTES - 8, &[4])], 0..0, "not within the 65536 reserved bytes"),
            (&neg, &[x], &[at(258, &[4])], 0..0, "at byte 258"),
            (&neg, &[x], &[y], 512..BYTES + 1, "not within the 65536 reserved bytes"),
            (&neg, &[x], &[y], 520..1024, "expected to begin at a multiple of 256"),
        ];
        for (op, inputs, outputs, workspace, expected) in cases {
            let call = Call { op, inputs, outputs, workspace, flops: 0.0, timed: false };
            let what = format!("{call:?}");
            match device.execute(call) {
                Ok(_) => assert!(expected.is_empty(), "{what}"),
                Err(error) => {
                    let error = error.to_string();
                    assert!(!expected.is_empty() && error.contains(expected), "{error}: {what}");
                }
            }
        }
        assert!(device.copy(BYTES - 4, 0, 8).is_err());
        assert!(device.copy(0, u64::MAX, 8).is_err());
        device.sync().unwrap();
    }
}
