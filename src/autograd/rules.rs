//! The gradient of each op, and what it reads. Formula and code stand together; with `L` the result,
//! `dy` is `dL/dy`.

use super::tape::Node;
use crate::error::Error;
use crate::layout::Dims;
use crate::op::OpError;
use crate::ops::{Binary, Op, Reduction, Unary};
use crate::runtime::{Ops, Runtime, Tensor};
use smallvec::{SmallVec, smallvec};

/// Positions of the inputs and outputs whose values a gradient reads.
#[derive(Debug, Default)]
pub(super) struct Reads {
    pub inputs: SmallVec<[usize; 3]>,
    pub outputs: SmallVec<[usize; 2]>,
}

impl Reads {
    fn inputs(inputs: impl IntoIterator<Item = usize>) -> Self {
        Self { inputs: inputs.into_iter().collect(), outputs: smallvec![] }
    }

    fn output() -> Self {
        Self { inputs: smallvec![], outputs: smallvec![0] }
    }
}

/// What the gradient of `op` reads, if the gradients of the inputs `wanted` are wanted.
pub(super) fn reads(op: &Op, wanted: &[bool]) -> Result<Reads, OpError> {
    let when = |wants: usize, reads: usize| wanted[wants].then_some(reads);
    Ok(match op {
        Op::Unary(Unary::Neg)
        | Op::Binary(Binary::Add | Binary::Sub | Binary::Greater)
        | Op::Affine { .. }
        | Op::AvgPool2d(_)
        | Op::Reduce { kind: Reduction::Sum | Reduction::Mean, .. }
        | Op::Contiguous
        | Op::Reshape { .. }
        | Op::Permute { .. }
        | Op::Slice { .. }
        | Op::Broadcast { .. }
        | Op::Pad { .. }
        | Op::Concat { .. } => Reads::default(),
        Op::Unary(Unary::Log | Unary::Square) => Reads::inputs([0]),
        Op::Unary(
            Unary::Relu | Unary::Exp | Unary::Sqrt | Unary::Recip | Unary::Tanh | Unary::Sigmoid,
        )
        | Op::Softmax
        | Op::LogSoftmax => Reads::output(),
        Op::Binary(Binary::Mul) | Op::MatMul | Op::Conv2d(_) => {
            Reads::inputs(when(0, 1).into_iter().chain(when(1, 0)))
        }
        Op::Binary(Binary::Div) => {
            Reads { inputs: smallvec![1], outputs: when(1, 0).into_iter().collect() }
        }
        Op::Binary(Binary::Maximum) => Reads::inputs([0, 1]),
        Op::BatchNorm { .. } => Reads { inputs: smallvec![0, 1], outputs: smallvec![1, 2] },
        Op::BatchNormInfer { .. } => Reads::inputs([0, 1, 3, 4]),
        Op::MaxPool2d(_) => Reads { inputs: smallvec![], outputs: smallvec![1] },
        Op::Reduce { kind: Reduction::Max, .. } => {
            Reads { inputs: smallvec![0], outputs: smallvec![0] }
        }
        Op::CrossEntropy => Reads { inputs: smallvec![1], outputs: smallvec![1] },
        Op::Gather { .. } | Op::ScatterAdd { .. } => Reads::inputs([1]),
        Op::Fill { .. }
        | Op::Random { .. }
        | Op::Binary(Binary::ReluGrad | Binary::TanhGrad | Binary::SigmoidGrad)
        | Op::Conv2dGradInput { .. }
        | Op::Conv2dGradWeight { .. }
        | Op::BatchNormGrad
        | Op::MaxPool2dGrad { .. }
        | Op::AvgPool2dGrad { .. }
        | Op::SoftmaxGrad
        | Op::LogSoftmaxGrad
        | Op::CrossEntropyGrad
        | Op::SgdMomentum { .. }
        | Op::Accumulate => {
            let name = crate::op::Op::name(op).to_owned();
            return Err(OpError::new(
                name,
                "has no gradient; run it on the runtime instead of the tape",
            ));
        }
    })
}

type Gradient = SmallVec<[Option<Tensor>; 3]>;

/// Gradients of the wanted inputs, given those of the outputs (`None`: zero).
pub(super) fn gradients(
    node: &Node,
    dys: &[Option<Tensor>],
    ops: &Runtime,
) -> Result<Gradient, Error> {
    let x = |i: usize| node.inputs[i].value();
    let y = |i: usize| node.outputs[i].value();
    let wanted = |i: usize| node.inputs[i].wanted;
    let shape = |i: usize| *node.inputs[i].layout.shape();
    let one = |dx: Result<Tensor, Error>| -> Result<Gradient, Error> { Ok(smallvec![Some(dx?)]) };
    let Some(dy) = dys[0].as_ref() else {
        return without_first(node, dys, ops);
    };
    match &node.op {
        Op::Unary(unary) => one(match unary {
            Unary::Neg => ops.neg(dy),
            Unary::Relu => ops.run1(Op::Binary(Binary::ReluGrad), &[y(0), dy]),
            Unary::Exp => ops.mul(dy, y(0)),
            Unary::Log => ops.div(dy, x(0)),
            // dy / (2 y)
            Unary::Sqrt => ops.affine(&ops.div(dy, y(0))?, 0.5, 0.0),
            // -dy y^2
            Unary::Recip => ops.neg(&ops.mul(dy, &ops.square(y(0))?)?),
            Unary::Square => ops.affine(&ops.mul(dy, x(0))?, 2.0, 0.0),
            Unary::Tanh => ops.run1(Op::Binary(Binary::TanhGrad), &[y(0), dy]),
            Unary::Sigmoid => ops.run1(Op::Binary(Binary::SigmoidGrad), &[y(0), dy]),
        }),
        Op::Binary(binary) => {
            let of = |i: usize,
                      gradient: &dyn Fn() -> Result<Tensor, Error>|
             -> Result<Option<Tensor>, Error> {
                if wanted(i) { sum_to(&gradient()?, &shape(i), ops).map(Some) } else { Ok(None) }
            };
            let keep = || Ok(dy.clone());
            // 1 where the second operand wins; the first wins ties.
            let second_wins = || ops.run1(Op::Binary(Binary::Greater), &[x(1), x(0)]);
            Ok(match binary {
                Binary::Add => smallvec![of(0, &keep)?, of(1, &keep)?],
                Binary::Sub => smallvec![of(0, &keep)?, of(1, &|| ops.neg(dy))?],
                Binary::Mul => {
                    smallvec![of(0, &|| ops.mul(dy, x(1)))?, of(1, &|| ops.mul(dy, x(0)))?]
                }
                // d(a / b) = da / b - y db / b
                Binary::Div => smallvec![
                    of(0, &|| ops.div(dy, x(1)))?,
                    of(1, &|| ops.neg(&ops.div(&ops.mul(dy, y(0))?, x(1))?))?
                ],
                Binary::Maximum => smallvec![
                    of(0, &|| ops.mul(dy, &ops.affine(&second_wins()?, -1.0, 1.0)?))?,
                    of(1, &|| ops.mul(dy, &second_wins()?))?
                ],
                Binary::Greater => smallvec![None, None],
                Binary::ReluGrad | Binary::TanhGrad | Binary::SigmoidGrad => {
                    unreachable!("never recorded")
                }
            })
        }
        Op::Affine { scale, .. } => one(ops.affine(dy, *scale, 0.0)),
        Op::MatMul => {
            let mut dx: Gradient = smallvec![None, None];
            if wanted(0) {
                dx[0] = Some(sum_to(&ops.matmul(dy, &ops.transpose(x(1))?)?, &shape(0), ops)?);
            }
            if wanted(1) {
                dx[1] = Some(sum_to(&ops.matmul(&ops.transpose(x(0))?, dy)?, &shape(1), ops)?);
            }
            Ok(dx)
        }
        Op::Conv2d(conv) => {
            let dy = &ops.contiguous(dy)?;
            let mut dx: Gradient = smallvec![None, None];
            let last_two = |s: Dims| [s[2], s[3]];
            if wanted(0) {
                let op = Op::Conv2dGradInput { conv: *conv, input: last_two(shape(0)) };
                dx[0] = Some(ops.run1(op, &[dy, x(1)])?);
            }
            if wanted(1) {
                let op = Op::Conv2dGradWeight { conv: *conv, kernel: last_two(shape(1)) };
                dx[1] = Some(ops.run1(op, &[x(0), dy])?);
            }
            Ok(dx)
        }
        Op::BatchNorm { .. } => {
            let dy = &ops.contiguous(dy)?;
            let three = ops.run(Op::BatchNormGrad, &[x(0), x(1), y(1), y(2), dy])?;
            let dx = three.into_iter().enumerate().map(|(i, t)| wanted(i).then_some(t));
            Ok(dx.chain([None, None]).collect())
        }
        Op::BatchNormInfer { eps } => batch_norm_infer(node, dy, *eps, ops),
        Op::MaxPool2d(pool) => {
            let input = [shape(0)[2], shape(0)[3]];
            let op = Op::MaxPool2dGrad { pool: *pool, input };
            one(ops.run1(op, &[y(1), &ops.contiguous(dy)?]))
        }
        Op::AvgPool2d(pool) => {
            let input = [shape(0)[2], shape(0)[3]];
            one(ops.run1(Op::AvgPool2dGrad { pool: *pool, input }, &[&ops.contiguous(dy)?]))
        }
        Op::Reduce { kind, axes, .. } => {
            let kept = keep_dims(&shape(0), axes);
            let spread = |t: &Tensor| ops.broadcast(&ops.reshape(t, &kept)?, &shape(0));
            one(match kind {
                Reduction::Sum => spread(dy),
                Reduction::Mean => {
                    let joined: usize = axes.iter().map(|&axis| shape(0)[axis]).product();
                    spread(&ops.affine(dy, 1.0 / joined as f32, 0.0)?)
                }
                // Every element that equals the largest gets the gradient.
                Reduction::Max => {
                    let below =
                        ops.run1(Op::Binary(Binary::Greater), &[&ops.reshape(y(0), &kept)?, x(0)])?;
                    ops.mul(&spread(dy)?, &ops.affine(&below, -1.0, 1.0)?)
                }
            })
        }
        Op::Softmax => one(ops.run1(Op::SoftmaxGrad, &[y(0), &ops.contiguous(dy)?])),
        Op::LogSoftmax => one(ops.run1(Op::LogSoftmaxGrad, &[y(0), &ops.contiguous(dy)?])),
        Op::CrossEntropy => {
            let mut dx = ops.run1(Op::CrossEntropyGrad, &[y(1), x(1), dy])?;
            if let Some(d_log_probs) = &dys[1] {
                let more = ops.run1(Op::LogSoftmaxGrad, &[y(1), &ops.contiguous(d_log_probs)?])?;
                dx = ops.add(&dx, &more)?;
            }
            Ok(smallvec![Some(dx), None])
        }
        Op::Contiguous => one(Ok(dy.clone())),
        Op::Reshape { .. } => one(ops.reshape(dy, &shape(0))),
        Op::Permute { axes } => {
            let mut inverse = *axes;
            for (i, &axis) in axes.iter().enumerate() {
                inverse[axis] = i;
            }
            one(ops.permute(dy, &inverse))
        }
        Op::Slice { axis, start, len } => {
            one(ops.pad(dy, *axis, *start, shape(0)[*axis] - start - len))
        }
        Op::Broadcast { .. } => one(sum_to(dy, &shape(0), ops)),
        Op::Pad { axis, before, .. } => one(ops.slice(dy, *axis, *before, shape(0)[*axis])),
        Op::Concat { axis } => {
            let mut start = 0;
            let mut dx = Gradient::new();
            for (i, input) in node.inputs.iter().enumerate() {
                let len = shape(i)[*axis];
                dx.push(if input.wanted { Some(ops.slice(dy, *axis, start, len)?) } else { None });
                start += len;
            }
            Ok(dx)
        }
        Op::Gather { axis } => {
            Ok(smallvec![Some(ops.scatter_add(dy, x(1), *axis, shape(0)[*axis])?), None])
        }
        Op::ScatterAdd { axis, .. } => Ok(smallvec![Some(ops.gather(dy, x(1), *axis)?), None]),
        Op::Fill { .. }
        | Op::Random { .. }
        | Op::Conv2dGradInput { .. }
        | Op::Conv2dGradWeight { .. }
        | Op::BatchNormGrad
        | Op::MaxPool2dGrad { .. }
        | Op::AvgPool2dGrad { .. }
        | Op::SoftmaxGrad
        | Op::LogSoftmaxGrad
        | Op::CrossEntropyGrad
        | Op::SgdMomentum { .. }
        | Op::Accumulate => unreachable!("never recorded"),
    }
}

/// The first output was not used, but another was.
fn without_first(node: &Node, dys: &[Option<Tensor>], ops: &Runtime) -> Result<Gradient, Error> {
    match (&node.op, dys) {
        (Op::CrossEntropy, [_, Some(d_log_probs)]) => {
            let dy = ops.contiguous(d_log_probs)?;
            Ok(smallvec![
                Some(ops.run1(Op::LogSoftmaxGrad, &[node.outputs[1].value(), &dy])?),
                None
            ])
        }
        // The statistics of a batch are constants to the gradient, as everywhere.
        _ => Ok(smallvec![None; node.inputs.len()]),
    }
}

/// `y = gamma (x - mean) / sqrt(var + eps) + beta`, with given `mean` and `var`.
fn batch_norm_infer(node: &Node, dy: &Tensor, eps: f32, ops: &Runtime) -> Result<Gradient, Error> {
    let x = |i: usize| node.inputs[i].value();
    let wanted = |i: usize| node.inputs[i].wanted;
    let rank = node.inputs[0].layout.rank();
    let mut channels = vec![1; rank];
    channels[1] = node.inputs[1].layout.elements();
    let others: Vec<usize> = (0..rank).filter(|&axis| axis != 1).collect();
    let spread = |t: &Tensor| ops.reshape(t, &channels);
    let inv_std = ops.recip(&ops.sqrt(&ops.affine(x(4), 1.0, eps)?)?)?;
    let mut dx: Gradient = smallvec![None; 5];
    if wanted(0) {
        dx[0] = Some(ops.mul(dy, &spread(&ops.mul(x(1), &inv_std)?)?)?);
    }
    if wanted(1) {
        let normal = ops.mul(&ops.sub(x(0), &spread(x(3))?)?, &spread(&inv_std)?)?;
        dx[1] = Some(ops.reduce(&ops.mul(dy, &normal)?, Reduction::Sum, &others, false)?);
    }
    if wanted(2) {
        dx[2] = Some(ops.reduce(dy, Reduction::Sum, &others, false)?);
    }
    Ok(dx)
}

/// The gradient of a broadcast operand: summed over the dimensions it was repeated along.
fn sum_to(dy: &Tensor, shape: &Dims, ops: &Runtime) -> Result<Tensor, Error> {
    if dy.shape() == shape {
        return Ok(dy.clone());
    }
    let extra = dy.shape().len() - shape.len();
    let repeated =
        |axis: usize| axis < extra || (shape[axis - extra] == 1 && dy.shape()[axis] != 1);
    let axes: Vec<usize> = (0..dy.shape().len()).filter(|&axis| repeated(axis)).collect();
    ops.reshape(&ops.reduce(dy, Reduction::Sum, &axes, true)?, shape)
}

fn keep_dims(shape: &Dims, axes: &Dims) -> Dims {
    axes.iter().fold(*shape, |shape, &axis| shape.with(axis, 1))
}
