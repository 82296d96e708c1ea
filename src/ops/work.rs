//! How much work each op is, for cost models that count instead of measuring.

use super::{Binary, Op, Unary};
use crate::layout::Layout;

/// What `exp`, `ln` and their like count as, in additions: a polynomial and the steps around it.
const TRANSCENDENTAL: f64 = 10.0;

/// Floating-point operations of one run.
///
/// - matrix products and convolutions: two (multiply, add) for each term of each sum, so
///   `2 m n k` and `2 n o c kh kw h' w'`, and the same for both gradients of a convolution;
/// - elementwise ops, normalizations and softmaxes: a fixed number per element, [`TRANSCENDENTAL`] for
///   each exponential or logarithm in them;
/// - poolings: one per element of each window; reductions: one per element;
/// - ops that only move or fill: one per element, so that nothing that takes time counts as free;
/// - views: none.
pub(super) fn flops(op: &Op, inputs: &[Layout], outputs: &[Layout]) -> f64 {
    let size = |layouts: &[Layout], i: usize| layouts.get(i).map_or(0.0, |l| l.elements() as f64);
    let extent = |layouts: &[Layout], i: usize, axis: usize| {
        layouts.get(i).and_then(|l| l.shape().get(axis)).map_or(0.0, |&n| n as f64)
    };
    let [x, y] = [size(inputs, 0), size(outputs, 0)];
    match op {
        Op::Unary(f) => y * unary(*f),
        Op::Binary(f) => y * binary(*f),
        Op::Affine { .. } => y * 2.0,
        Op::MatMul => {
            let k = inputs.first().and_then(|a| a.shape().last()).map_or(0.0, |&k| k as f64);
            2.0 * y * k
        }
        // Terms of the sum behind one element of the convolution's output, from the weight's shape.
        Op::Conv2d(_) => {
            2.0 * y * extent(inputs, 1, 1) * extent(inputs, 1, 2) * extent(inputs, 1, 3)
        }
        Op::Conv2dGradInput { .. } => {
            2.0 * x * extent(inputs, 1, 1) * extent(inputs, 1, 2) * extent(inputs, 1, 3)
        }
        Op::Conv2dGradWeight { .. } => {
            2.0 * size(inputs, 1)
                * extent(outputs, 0, 1)
                * extent(outputs, 0, 2)
                * extent(outputs, 0, 3)
        }
        // Sum, sum of squares (4), then subtract, multiply, multiply, add.
        Op::BatchNorm { .. } => y * 8.0,
        Op::BatchNormGrad => y * 10.0,
        Op::BatchNormInfer { .. } => y * 4.0,
        Op::MaxPool2d(pool) | Op::AvgPool2d(pool) => {
            y * pool.kernel[0] as f64 * pool.kernel[1] as f64
        }
        Op::AvgPool2dGrad { pool, .. } => x * pool.kernel[0] as f64 * pool.kernel[1] as f64,
        Op::Reduce { .. } => x.max(y),
        Op::Softmax | Op::LogSoftmax | Op::LogSoftmaxGrad => y * (TRANSCENDENTAL + 4.0),
        Op::SoftmaxGrad => y * 4.0,
        Op::CrossEntropy => x * (TRANSCENDENTAL + 4.0),
        Op::CrossEntropyGrad => y * (TRANSCENDENTAL + 1.0),
        Op::Reshape { .. } | Op::Permute { .. } | Op::Slice { .. } | Op::Broadcast { .. } => 0.0,
        Op::MaxPool2dGrad { .. } | Op::ScatterAdd { .. } => x.max(y),
        Op::Contiguous
        | Op::Pad { .. }
        | Op::Concat { .. }
        | Op::Gather { .. }
        | Op::Fill { .. } => y,
        // A quarter of ten rounds, and the transform.
        Op::Random { .. } => y * (2.0 * TRANSCENDENTAL),
        Op::SgdMomentum { .. } => y * 6.0,
        Op::Accumulate => y,
    }
}

const fn unary(f: Unary) -> f64 {
    match f {
        Unary::Neg | Unary::Relu | Unary::Sqrt | Unary::Recip | Unary::Square => 1.0,
        Unary::Exp | Unary::Log | Unary::Tanh | Unary::Sigmoid => TRANSCENDENTAL,
    }
}

const fn binary(f: Binary) -> f64 {
    match f {
        Binary::Add | Binary::Sub | Binary::Mul | Binary::Div | Binary::Maximum => 1.0,
        Binary::Greater | Binary::ReluGrad => 1.0,
        Binary::TanhGrad | Binary::SigmoidGrad => 3.0,
    }
}
