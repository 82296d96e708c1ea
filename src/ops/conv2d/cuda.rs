//! Convolutions on a GPU. cuDNN computes a convolution if cuDNN is installed and has a
//! deterministic algorithm for the shape. If cuDNN cannot be used, im2col and cuBLAS compute the
//! convolution.

#![allow(unsafe_code)]

mod columns;
mod im2col;

use crate::device::DeviceError;
use crate::device::conv_shape::{ConvShape, Kind};
use crate::device::cuda::dnn::{Addresses, Dnn, Task};
use crate::device::cuda::{Family, Gpu, Libraries, Operands, Scratch};
use crate::layout::Layout;
use crate::sync::MutexGuard;
use std::sync::Arc;

pub(super) static FAMILY: Family = Family::new("columns", include_str!("columns.cu"));

/// Describes a convolution with the given inputs as a task for cuDNN.
fn task(kind: Kind, shape: ConvShape, inputs: [&Layout; 2]) -> Task {
    // Storages begin at multiples of 256 bytes, but a view may begin at any element of its storage.
    let aligned = inputs.iter().all(|input| input.offset().is_multiple_of(4));
    Task { kind, shape, aligned }
}

/// Locks cuDNN for a task; `None` if cuDNN is not installed, or may not be used for the task.
fn dnn<'a>(libraries: &'a Libraries, task: &Task) -> Option<MutexGuard<'a, Dnn>> {
    libraries.dnn().filter(|_| task.aligned)
}

/// Bytes of workspace that a run needs with the chosen algorithm. Returns 0 if no algorithm can be
/// chosen; [`run`] then fails with the reason.
pub(super) fn workspace(
    libraries: &Libraries,
    kind: Kind,
    shape: ConvShape,
    inputs: &[Layout],
) -> u64 {
    if shape.is_empty() {
        return 0;
    }
    let task = task(kind, shape, [&inputs[0], &inputs[1]]);
    let by_columns = columns::workspace(&task);
    match dnn(libraries, &task).map_or(Ok(None), |mut dnn| dnn.workspace(&task, by_columns)) {
        Ok(by_cudnn) => by_cudnn.unwrap_or(by_columns),
        Err(_) => 0,
    }
}

/// Runs a convolution after all work that was submitted to the GPU before.
pub(super) fn run(
    gpu: &mut Gpu,
    kind: Kind,
    shape: ConvShape,
    run: &Operands<'_>,
) -> Result<(), DeviceError> {
    let [a, b, result] = [&run.inputs[0], &run.inputs[1], &run.outputs[0]];
    let task = task(kind, shape, [&a.layout, &b.layout]);
    if shape.is_empty() {
        return gpu.zero(result);
    }
    let at = Addresses { inputs: [gpu.first(a), gpu.first(b)], result: gpu.first(result) };
    let libraries = Arc::clone(gpu.libraries());
    let by_columns = columns::workspace(&task);
    if let Some(mut dnn) = dnn(&libraries, &task)
        && dnn.takes(&task, by_columns)?
    {
        // SAFETY: the addresses are those of the run's operands, which the device has checked. The
        // operands are packed and have the task's sizes. The scratch is the workspace of the run.
        if unsafe { dnn.run(&task, at, Scratch::of(gpu, run)) }? {
            return Ok(());
        }
        // cuDNN has refused the task, for which the engine gave the workspace of cuDNN. From now
        // on, `workspace` returns that of the columns.
        let given = run.workspace.end - run.workspace.start;
        if given < by_columns {
            return Err(DeviceError::out_of_memory(format!(
                "cuda: without cuDNN, {by_columns} bytes of workspace are needed, but there are {given}"
            )));
        }
    }
    // SAFETY: the addresses are those of the run's operands, which the device has checked. The
    // operands are packed and have the task's sizes. The scratch is the workspace of the run.
    unsafe { columns::run(gpu, &task, at, Scratch::of(gpu, run)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::DType;
    use crate::ops::Conv2d;

    #[test]
    fn inputs_that_begin_at_multiples_of_four_floats_are_aligned() {
        let conv = Conv2d::default();
        // `x` has 18 floats per image, and `weight` has 2 floats per output channel.
        let [x, weight] = [[5, 2, 3, 3], [9, 2, 1, 1]].map(|s| Layout::contiguous(DType::F32, s));
        let aligned = |x_from, weight_from| {
            let [x, weight] =
                [x.slice(0, x_from, 1), weight.slice(0, weight_from, 1)].map(Option::unwrap);
            task(Kind::Forward, conv.shape(&x, &weight), [&x, &weight]).aligned
        };
        assert!(aligned(0, 0) && aligned(2, 2) && aligned(4, 8));
        assert!(!aligned(1, 0) && !aligned(0, 1) && !aligned(3, 3));
    }
}
