//! From an op and the places of its operands to kernels.

mod check;
pub(super) mod columns;
mod copy;
mod elementwise;
mod index;
mod norm;
mod pool;
mod random;
mod reduce;
mod softmax;
mod steps;
mod update;
mod windows;

pub(super) use self::copy::copy;

use super::gpu::Gpu;
use super::scratch::Scratch;
use super::{convolution, product};
use crate::device::{Call, DeviceError};
use crate::layout::Layout;
use crate::op::Op as _;
use crate::ops::Op;

/// Runs an op, once all that was given before is done.
pub(super) fn execute(gpu: &mut Gpu, call: &Call<'_, Op>) -> Result<(), DeviceError> {
    check::operands(gpu, call)?;
    if call.outputs.iter().all(|place| place.layout.elements() == 0) {
        return Ok(());
    }
    match (call.op, call.inputs, call.outputs) {
        (Op::Unary(f), [x], [y]) => elementwise::unary(gpu, *f, y, x),
        (Op::Binary(f), [a, b], [y]) => elementwise::binary(gpu, *f, y, a, b),
        (Op::Affine { scale, shift }, [x], [y]) => elementwise::affine(gpu, y, x, *scale, *shift),
        (Op::MatMul, ..) => product::execute(gpu, call),
        (Op::Conv2d(_) | Op::Conv2dGradInput { .. } | Op::Conv2dGradWeight { .. }, ..) => {
            convolution::execute(gpu, call)
        }
        (Op::BatchNorm { momentum, eps }, inputs, outputs) => {
            norm::train(gpu, outputs, inputs, *momentum, *eps, Scratch::of(gpu, call))
        }
        (Op::BatchNormGrad, inputs, outputs) => {
            norm::grad(gpu, outputs, inputs, Scratch::of(gpu, call))
        }
        (Op::BatchNormInfer { eps }, inputs, [y]) => {
            norm::infer(gpu, y, inputs, *eps, Scratch::of(gpu, call))
        }
        (Op::MaxPool2d(pool), [x], [y, argmax]) => pool::max(gpu, y, argmax, x, pool),
        (Op::MaxPool2dGrad { pool, .. }, [argmax, dy], [dx]) => {
            pool::max_grad(gpu, dx, argmax, dy, pool)
        }
        (Op::AvgPool2d(pool), [x], [y]) => pool::avg(gpu, y, x, pool),
        (Op::AvgPool2dGrad { pool, .. }, [dy], [dx]) => pool::avg_grad(gpu, dx, dy, pool),
        (Op::Reduce { kind, axes, .. }, [x], [y]) => {
            reduce::reduce(gpu, *kind, y, x, axes, Scratch::of(gpu, call))
        }
        (Op::Softmax, [x], [y]) => softmax::forward(gpu, softmax::SOFTMAX, y, x),
        (Op::LogSoftmax, [x], [y]) => softmax::forward(gpu, softmax::LOG_SOFTMAX, y, x),
        (Op::SoftmaxGrad, [y, dy], [dx]) => {
            softmax::gradient(gpu, softmax::SOFTMAX_GRAD, dx, y, dy)
        }
        (Op::LogSoftmaxGrad, [y, dy], [dx]) => {
            softmax::gradient(gpu, softmax::LOG_SOFTMAX_GRAD, dx, y, dy)
        }
        (Op::CrossEntropy, [logits, labels], [loss, log_probs]) => {
            softmax::cross_entropy(gpu, loss, log_probs, logits, labels, Scratch::of(gpu, call))
        }
        (Op::CrossEntropyGrad, [log_probs, labels, dloss], [dx]) => {
            softmax::cross_entropy_grad(gpu, dx, log_probs, labels, dloss)
        }
        (Op::Contiguous, [x], [y]) => copy::copy(gpu, gpu.first(y), gpu.first(x), &x.layout),
        (Op::Pad { axis, before, .. }, [x], [y]) => copy::pad(gpu, y, x, *axis, *before),
        (Op::Concat { axis }, parts, [y]) => copy::concat(gpu, y, parts, *axis),
        (Op::Gather { axis }, [x, index], [y]) => index::gather(gpu, y, x, index, *axis),
        (Op::ScatterAdd { axis, .. }, [y, index], [x]) => {
            index::scatter_add(gpu, x, y, index, *axis)
        }
        (Op::Fill { value, .. }, [], [y]) => copy::fill(gpu, y, *value),
        (Op::Random { distribution, key, counter, .. }, [], [y]) => {
            random::random(gpu, y, *distribution, *key, *counter)
        }
        (Op::SgdMomentum { lr, momentum, weight_decay }, [_, _, grad], [param, velocity]) => {
            let step = update::Step { lr: *lr, momentum: *momentum, weight_decay: *weight_decay };
            update::sgd_momentum(gpu, param, velocity, grad, step)
        }
        (Op::Accumulate, [_, x], [acc]) => elementwise::accumulate(gpu, acc, x),
        (
            Op::Reshape { .. } | Op::Permute { .. } | Op::Slice { .. } | Op::Broadcast { .. },
            _,
            _,
        ) => {
            Err(DeviceError::new(format!("{} is a view: there is nothing to run", call.op.name())))
        }
        _ => Err(DeviceError::new(format!(
            "cuda: {} of {} inputs to {} outputs cannot be run",
            call.op.name(),
            call.inputs.len(),
            call.outputs.len()
        ))),
    }
}

/// Scratch bytes a run needs. Depends on nothing but the arguments.
pub(super) fn workspace(op: &Op, inputs: &[Layout], _outputs: &[Layout]) -> u64 {
    match (op, inputs) {
        (Op::BatchNorm { .. }, [x, ..]) => norm::workspace_of_train(x),
        (Op::BatchNormGrad, [x, ..]) => norm::workspace_of_grad(x),
        (Op::BatchNormInfer { .. }, [x, ..]) => norm::workspace_of_infer(x),
        (Op::Reduce { axes, .. }, [x]) => reduce::workspace(x, axes),
        (Op::CrossEntropy, [logits, _]) => softmax::workspace(logits),
        _ => 0,
    }
}
