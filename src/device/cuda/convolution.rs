//! Convolutions: by cuDNN where it is there and has a deterministic algorithm, else by columns and cuBLAS.
//!
//! Which of the two, and which algorithm, is decided once for a shape and kept, so that running an op again
//! gives the same bits, and its workspace is known ahead.

mod choice;
mod columns;
mod descriptors;
mod dnn;

pub(super) use self::dnn::Dnn;

use super::gpu::Gpu;
use super::launch::Ptr;
use super::libraries::Libraries;
use super::scratch::Scratch;
use crate::device::cpu::{ConvShape, conv_shape};
use crate::device::{Call, DeviceError, Place};
use crate::layout::Layout;
use crate::ops::Op;
use smallvec::SmallVec;
use std::sync::{Arc, MutexGuard};

/// What of a convolution is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    /// `y` of `x` and `weight`.
    Forward,
    /// `dx` of `dy` and `weight`.
    GradInput,
    /// `dweight` of `x` and `dy`.
    GradWeight,
}

/// A convolution to run, or one of its gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Task {
    kind: Kind,
    shape: ConvShape,
    /// Whether both inputs begin at multiples of 16 bytes, which cuDNN may want.
    aligned: bool,
}

impl Task {
    /// What an op asks for; `None` if it is no convolution.
    fn new(op: &Op, inputs: &[Layout], outputs: &[Layout]) -> Option<Self> {
        let kind = match op {
            Op::Conv2d(_) => Kind::Forward,
            Op::Conv2dGradInput { .. } => Kind::GradInput,
            Op::Conv2dGradWeight { .. } => Kind::GradWeight,
            _ => return None,
        };
        // Tensors begin at multiples of 256 bytes, and views of them at any element.
        let aligned = inputs.iter().all(|input| input.offset().is_multiple_of(4));
        Some(Self { kind, shape: conv_shape(op, inputs, outputs)?, aligned })
    }

    /// Whether nothing is multiplied: all of the result, if it has any elements, is zeros.
    fn is_empty(&self) -> bool {
        [self.shape.input_len(), self.shape.weight_len(), self.shape.output_len()].contains(&0)
    }
}

/// Addresses of a task's two operands, in the order of the op's inputs, and of its result.
#[derive(Clone, Copy, Debug)]
struct Operands {
    inputs: [Ptr; 2],
    result: Ptr,
}

/// cuDNN, if it is there and may be asked for a task.
fn dnn<'a>(libraries: &'a Libraries, task: &Task) -> Option<MutexGuard<'a, Dnn>> {
    libraries.dnn().filter(|_| task.aligned)
}

/// Scratch bytes a run needs: those of the algorithm that it will take. 0 if that cannot be found out just
/// now, as [`execute`] will say.
pub(super) fn workspace(
    libraries: &Libraries,
    op: &Op,
    inputs: &[Layout],
    outputs: &[Layout],
) -> u64 {
    let Some(task) = Task::new(op, inputs, outputs).filter(|task| !task.is_empty()) else {
        return 0;
    };
    match dnn(libraries, &task).map_or(Ok(None), |mut dnn| dnn.workspace(&task)) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => columns::workspace(&task),
        Err(_) => 0,
    }
}

/// Runs a convolution, once all that was given before is done.
pub(super) fn execute(gpu: &mut Gpu, call: &Call<'_, Op>) -> Result<(), DeviceError> {
    let layouts =
        |places: &[Place]| places.iter().map(|p| p.layout).collect::<SmallVec<[Layout; 2]>>();
    let task = Task::new(call.op, &layouts(call.inputs), &layouts(call.outputs));
    let (Some(task), [a, b], [result]) = (task, call.inputs, call.outputs) else {
        return Err(DeviceError::new(format!("cuda: {:?} is no convolution", call.op)));
    };
    let operands = Operands { inputs: [gpu.first(a), gpu.first(b)], result: gpu.first(result) };
    if task.is_empty() {
        return gpu.memory().zero(operands.result, result.layout.bytes());
    }
    let libraries = Arc::clone(gpu.libraries());
    if let Some(mut dnn) = dnn(&libraries, &task)
        && dnn.takes(&task)?
        && dnn.run(&task, operands, Scratch::of(gpu, call))?
    {
        return Ok(());
    }
    columns::run(gpu, &task, operands, Scratch::of(gpu, call))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{DType, Dims};
    use crate::ops::Conv2d;

    fn task(op: &Op, shapes: [[usize; 4]; 3]) -> Option<Task> {
        let [a, b, out] = shapes.map(|shape| Layout::contiguous(DType::F32, shape));
        Task::new(op, &[a, b], &[out])
    }

    #[test]
    fn all_three_ops_of_a_convolution_have_its_shape() {
        let conv = Conv2d { stride: [2, 1], padding: [1, 0] };
        let [x, weight, y] = [[5, 3, 8, 9], [4, 3, 3, 2], [5, 4, 4, 8]];
        let shape = ConvShape {
            n: 5,
            c_in: 3,
            h: 8,
            w: 9,
            c_out: 4,
            kh: 3,
            kw: 2,
            stride: [2, 1],
            padding: [1, 0],
        };
        let grad_input = Op::Conv2dGradInput { conv, input: [8, 9] };
        let grad_weight = Op::Conv2dGradWeight { conv, kernel: [3, 2] };
        for (op, shapes, kind) in [
            (Op::Conv2d(conv), [x, weight, y], Kind::Forward),
            (grad_input, [y, weight, x], Kind::GradInput),
            (grad_weight, [x, y, weight], Kind::GradWeight),
        ] {
            assert_eq!(task(&op, shapes), Some(Task { kind, shape, aligned: true }));
        }
        assert_eq!(task(&Op::MatMul, [x, weight, y]), None);
        let none = Layout::contiguous(DType::F32, Dims::new(&[2, 2]));
        assert_eq!(Task::new(&Op::Conv2d(conv), &[none, none], &[none]), None);
    }

    #[test]
    fn inputs_that_begin_at_multiples_of_four_floats_are_aligned() {
        let conv = Conv2d { stride: [1, 1], padding: [0, 0] };
        // 18 floats an image, 2 an output channel of the weight.
        let [x, weight] = [[5, 2, 3, 3], [9, 2, 1, 1]].map(|s| Layout::contiguous(DType::F32, s));
        let aligned = |x_from, weight_from| {
            let inputs = [x.slice(0, x_from, 1).unwrap(), weight.slice(0, weight_from, 1).unwrap()];
            let y = Layout::contiguous(DType::F32, [1, 1, 3, 3]);
            Task::new(&Op::Conv2d(conv), &inputs, &[y]).unwrap().aligned
        };
        assert!(aligned(0, 0) && aligned(2, 2) && aligned(4, 8));
        assert!(!aligned(1, 0) && !aligned(0, 1) && !aligned(3, 3));
    }

    #[test]
    fn a_task_without_an_operand_is_empty() {
        let conv = Conv2d { stride: [1, 1], padding: [0, 0] };
        let empty = |x, weight, y| {
            task(&Op::Conv2d(conv), [x, weight, y]).is_none_or(|task| task.is_empty())
        };
        assert!(!empty([1, 1, 3, 3], [1, 1, 3, 3], [1, 1, 1, 1]));
        assert!(empty([0, 1, 3, 3], [1, 1, 3, 3], [0, 1, 1, 1]));
        assert!(empty([1, 0, 3, 3], [1, 0, 3, 3], [1, 1, 1, 1]));
        assert!(empty([1, 1, 2, 3], [1, 1, 3, 3], [1, 1, 0, 1]));
    }
}
