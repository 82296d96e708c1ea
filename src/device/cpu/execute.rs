//! From an op and the places of its operands to a kernel.

use super::bytes_of;
use super::kernels::batch_norm::{self, Channels, Parameters, Statistics};
use super::kernels::conv2d::{self, ConvShape};
use super::kernels::index::{self, Entries};
use super::kernels::pool::{self, Windows};
use super::kernels::{copy, elementwise, product, random, reduce, sgd, softmax};
use super::region::{Exclusive, Region, Shared, WORD};
use crate::device::{Call, DeviceError, Place};
use crate::layout::Layout;
use crate::op::Op as _;
use crate::ops::{Conv2d, Op};
use smallvec::SmallVec;
use std::ops::Range;

/// Scratch bytes a run needs. Depends on nothing but the arguments, so that a simulated device can ask for the
/// same.
#[must_use]
pub fn workspace(op: &Op, inputs: &[Layout], outputs: &[Layout]) -> u64 {
    let words = match (op, inputs) {
        (Op::BatchNorm { .. } | Op::BatchNormGrad, [x, ..]) => channels(x).workspace_len(),
        (Op::Reduce { axes, .. }, [x]) => reduce::workspace_len(x, axes),
        _ => match (op, conv_shape(op, inputs, outputs)) {
            (_, None) => return 0,
            (Op::Conv2d(_), Some(shape)) => conv2d::workspace_len_forward(&shape),
            (Op::Conv2dGradInput { .. }, Some(shape)) => conv2d::workspace_len_grad_input(&shape),
            (_, Some(shape)) => conv2d::workspace_len_grad_weight(&shape),
        },
    };
    // More than any memory holds: saturate.
    (words as u64).saturating_mul(WORD).min(isize::MAX as u64)
}

/// Runs an op on the operands in `region`.
pub(super) fn execute(call: &Call<'_, Op>, region: &mut Region) -> Result<(), DeviceError> {
    let ranges = |places: &[Place]| {
        places.iter().map(bytes_of).collect::<Result<SmallVec<[Range<u64>; 6]>, _>>()
    };
    // Old values of in-place outputs are found in the outputs.
    let updated = match call.op {
        Op::SgdMomentum { .. } => 2,
        Op::Accumulate => 1,
        _ => 0,
    };
    let mut shared = ranges(call.inputs)?;
    shared.iter_mut().take(updated).for_each(|range| range.end = range.start);
    let mut exclusive = ranges(call.outputs)?;
    exclusive.push(call.workspace.clone());
    let (read, mut write) = region.lend(&shared, &exclusive)?;
    let workspace = write.pop().unwrap_or_default();
    dispatch(call, &read, write, workspace)
}

/// The first inputs as elements of type `T`.
fn inputs<'a, T: bytemuck::Pod, const N: usize>(read: &Shared<'a>) -> [&'a [T]; N] {
    std::array::from_fn(|i| bytemuck::cast_slice(read[i]))
}

/// All outputs, as floats.
fn outputs<const N: usize>(write: Exclusive<'_>) -> [&mut [f32]; N] {
    let mut write = write.into_iter();
    std::array::from_fn(|_| {
        bytemuck::cast_slice_mut(write.next().expect("as many outputs as inferred"))
    })
}

fn dispatch(
    call: &Call<'_, Op>,
    read: &Shared<'_>,
    write: Exclusive<'_>,
    workspace: &mut [u32],
) -> Result<(), DeviceError> {
    let input = |i: usize| &call.inputs[i].layout;
    let output = |i: usize| &call.outputs[i].layout;
    match call.op {
        Op::Unary(f) => {
            let ([x], [y]) = (inputs(read), outputs(write));
            elementwise::unary(*f, y, x, input(0));
        }
        Op::Binary(f) => {
            let ([a, b], [y]) = (inputs(read), outputs(write));
            elementwise::binary(*f, (y, output(0)), (a, input(0)), (b, input(1)));
        }
        Op::Affine { scale, shift } => {
            let ([x], [y]) = (inputs(read), outputs(write));
            elementwise::affine(y, x, input(0), *scale, *shift);
        }
        Op::MatMul => {
            let ([a, b], [y]) = (inputs(read), outputs(write));
            product::product((y, output(0)), (a, input(0)), (b, input(1)));
        }
        Op::Conv2d(_) | Op::Conv2dGradInput { .. } | Op::Conv2dGradWeight { .. } => {
            let layouts = |places: &[Place]| {
                places.iter().map(|p| p.layout).collect::<SmallVec<[Layout; 2]>>()
            };
            let shape = conv_shape(call.op, &layouts(call.inputs), &layouts(call.outputs))
                .expect("a convolution");
            let ([a, b], [y]) = (inputs(read), outputs(write));
            let workspace = bytemuck::cast_slice_mut(workspace);
            match call.op {
                Op::Conv2d(_) => conv2d::forward(&shape, a, b, y, workspace),
                Op::Conv2dGradInput { .. } => conv2d::grad_input(&shape, a, b, y, workspace),
                _ => conv2d::grad_weight(&shape, a, b, y, workspace),
            }
        }
        Op::BatchNorm { momentum, eps } => {
            let [x, gamma, beta, running_mean, running_var] = inputs(read);
            let with = Parameters { gamma, beta, running_mean, running_var, eps: *eps };
            let [y, mean, inv_std, running_mean, running_var] = outputs(write);
            let statistics = Statistics { mean, inv_std, running_mean, running_var };
            let of = channels(input(0));
            batch_norm::train(y, statistics, x, with, *momentum, of, workspace);
        }
        Op::BatchNormGrad => {
            batch_norm::grad(outputs(write), inputs(read), channels(input(0)), workspace);
        }
        Op::BatchNormInfer { eps } => {
            let [x, gamma, beta, running_mean, running_var] = inputs(read);
            let with = Parameters { gamma, beta, running_mean, running_var, eps: *eps };
            let [y] = outputs(write);
            batch_norm::infer(y, x, with, channels(input(0)));
        }
        Op::MaxPool2d(pool) => {
            let [x] = inputs(read);
            let mut write = write.into_iter();
            let (y, argmax) = (write.next().unwrap_or_default(), write.next().unwrap_or_default());
            let windows = Windows { pool: *pool, size: image(input(0)), windows: image(output(0)) };
            pool::max(bytemuck::cast_slice_mut(y), bytemuck::cast_slice_mut(argmax), x, windows);
        }
        Op::MaxPool2dGrad { .. } => {
            let ([argmax], [_, dy], [dx]) = (inputs(read), inputs(read), outputs(write));
            let area = |layout: &Layout| image(layout).iter().product();
            pool::max_grad(dx, argmax, dy, area(output(0)), area(input(0)))?;
        }
        Op::AvgPool2d(pool) => {
            let ([x], [y]) = (inputs(read), outputs(write));
            pool::avg(
                y,
                x,
                Windows { pool: *pool, size: image(input(0)), windows: image(output(0)) },
            );
        }
        Op::AvgPool2dGrad { pool, .. } => {
            let ([dy], [dx]) = (inputs(read), outputs(write));
            pool::avg_grad(
                dx,
                dy,
                Windows { pool: *pool, size: image(output(0)), windows: image(input(0)) },
            );
        }
        Op::Reduce { kind, axes, .. } => {
            let ([x], [y]) = (inputs(read), outputs(write));
            reduce::reduce(*kind, y, x, input(0), axes, workspace);
        }
        Op::Softmax => {
            let ([x], [y]) = (inputs(read), outputs(write));
            softmax::softmax(y, x, last(input(0)));
        }
        Op::SoftmaxGrad => {
            let ([y, dy], [dx]) = (inputs(read), outputs(write));
            softmax::softmax_grad(dx, y, dy, last(input(0)));
        }
        Op::LogSoftmax => {
            let ([x], [y]) = (inputs(read), outputs(write));
            softmax::log_softmax(y, x, last(input(0)));
        }
        Op::LogSoftmaxGrad => {
            let ([y, dy], [dx]) = (inputs(read), outputs(write));
            softmax::log_softmax_grad(dx, y, dy, last(input(0)));
        }
        Op::CrossEntropy => {
            let ([logits], [_, labels], [loss, log_probs]) =
                (inputs(read), inputs(read), outputs(write));
            softmax::cross_entropy(&mut loss[0], log_probs, logits, labels, last(input(0)))?;
        }
        Op::CrossEntropyGrad => {
            let ([log_probs, _, dloss], [_, labels], [dx]) =
                (inputs(read), inputs(read), outputs(write));
            softmax::cross_entropy_grad(dx, log_probs, labels, dloss[0], last(input(0)))?;
        }
        Op::Contiguous => {
            let ([x], [y]) = (inputs(read), outputs(write));
            copy::strided(y, x, input(0));
        }
        Op::Pad { axis, before, after } => {
            let ([x], [y]) = (inputs(read), outputs(write));
            let Entries { size, inner } = entries(input(0), *axis);
            copy::pad(y, x, size * inner, before * inner, after * inner);
        }
        Op::Concat { axis } => {
            let parts: SmallVec<[(&[f32], usize); 8]> = call
                .inputs
                .iter()
                .zip(read)
                .map(|(place, x)| {
                    let Entries { size, inner } = entries(&place.layout, *axis);
                    (bytemuck::cast_slice(x), size * inner)
                })
                .collect();
            let [y] = outputs(write);
            copy::concat(y, &parts);
        }
        Op::Gather { axis } => {
            let ([x], [_, index], [y]) = (inputs(read), inputs(read), outputs(write));
            index::gather(y, x, index, entries(input(0), *axis))?;
        }
        Op::ScatterAdd { axis, .. } => {
            let ([y], [_, index], [x]) = (inputs(read), inputs(read), outputs(write));
            index::scatter_add(x, y, index, entries(output(0), *axis))?;
        }
        Op::Fill { value, .. } => {
            let [y] = outputs(write);
            copy::fill(y, *value);
        }
        Op::Random { distribution, key, counter, .. } => {
            let [y] = outputs(write);
            random::random(y, *distribution, *key, *counter);
        }
        Op::SgdMomentum { lr, momentum, weight_decay } => {
            let ([_, _, grad], [param, velocity]) = (inputs(read), outputs(write));
            let step = sgd::Step { lr: *lr, momentum: *momentum, weight_decay: *weight_decay };
            sgd::momentum(param, velocity, grad, step);
        }
        Op::Accumulate => {
            let ([_, x], [acc]) = (inputs(read), outputs(write));
            elementwise::accumulate(acc, x, input(1));
        }
        Op::Reshape { .. } | Op::Permute { .. } | Op::Slice { .. } | Op::Broadcast { .. } => {
            return Err(DeviceError::new(format!(
                "{} is a view: there is nothing to run",
                call.op.name()
            )));
        }
    }
    Ok(())
}

/// Height and width of images.
fn image(layout: &Layout) -> [usize; 2] {
    let shape = layout.shape();
    [shape[2], shape[3]]
}

/// The size of the last dimension.
fn last(layout: &Layout) -> usize {
    layout.shape().last().copied().unwrap_or(1)
}

fn channels(layout: &Layout) -> Channels {
    let [n, c, inner @ ..] = &**layout.shape() else { unreachable!("a batch of channels") };
    Channels { n: *n, c: *c, inner: inner.iter().product() }
}

fn entries(layout: &Layout, axis: usize) -> Entries {
    Entries { size: layout.shape()[axis], inner: layout.shape()[axis + 1..].iter().product() }
}

/// The convolution an op is about; `None` if it is none.
pub(in crate::device) fn conv_shape(
    op: &Op,
    inputs: &[Layout],
    outputs: &[Layout],
) -> Option<ConvShape> {
    let (conv, [x, weight, _dy]) = match (op, inputs, outputs) {
        (Op::Conv2d(conv), [x, weight], [y]) => (conv, [x, weight, y]),
        (Op::Conv2dGradInput { conv, .. }, [dy, weight], [dx]) => (conv, [dx, weight, dy]),
        (Op::Conv2dGradWeight { conv, .. }, [x, dy], [dweight]) => (conv, [x, dweight, dy]),
        _ => return None,
    };
    let (&[n, c_in, h, w], &[c_out, _, kh, kw]) = (&**x.shape(), &**weight.shape()) else {
        return None;
    };
    let Conv2d { stride, padding } = *conv;
    // Beyond the padded image there is no window, however far.
    let [down, across] = [(stride[0], h, padding[0]), (stride[1], w, padding[1])]
        .map(|(stride, size, padding)| stride.min(size + 2 * padding));
    Some(ConvShape { n, c_in, h, w, c_out, kh, kw, stride: [down, across], padding })
}
