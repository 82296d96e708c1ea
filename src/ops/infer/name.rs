//! Names of ops in events, traces and messages.

use crate::ops::{Binary, Distribution, Op, Reduction, Unary};

/// The table of names: a match, so that no op can be left out, and a list.
macro_rules! names {
    ($($op:pat => $name:literal,)*) => {
        /// Unique among ops; of distributions and reductions, the kind.
        pub(super) const fn name(op: &Op) -> &'static str {
            match op {
                $($op => $name,)*
            }
        }

        /// All of them.
        pub(in crate::ops) const NAMES: &[&str] = &[$($name),*];
    };
}

names! {
    Op::Unary(Unary::Neg) => "neg",
    Op::Unary(Unary::Relu) => "relu",
    Op::Unary(Unary::Exp) => "exp",
    Op::Unary(Unary::Log) => "log",
    Op::Unary(Unary::Sqrt) => "sqrt",
    Op::Unary(Unary::Recip) => "recip",
    Op::Unary(Unary::Square) => "square",
    Op::Unary(Unary::Tanh) => "tanh",
    Op::Unary(Unary::Sigmoid) => "sigmoid",
    Op::Binary(Binary::Add) => "add",
    Op::Binary(Binary::Sub) => "sub",
    Op::Binary(Binary::Mul) => "mul",
    Op::Binary(Binary::Div) => "div",
    Op::Binary(Binary::Maximum) => "maximum",
    Op::Binary(Binary::Greater) => "greater",
    Op::Binary(Binary::ReluGrad) => "relu_grad",
    Op::Binary(Binary::TanhGrad) => "tanh_grad",
    Op::Binary(Binary::SigmoidGrad) => "sigmoid_grad",
    Op::Affine { .. } => "affine",
    Op::MatMul => "matmul",
    Op::Conv2d(_) => "conv2d",
    Op::Conv2dGradInput { .. } => "conv2d_grad_input",
    Op::Conv2dGradWeight { .. } => "conv2d_grad_weight",
    Op::BatchNorm { .. } => "batch_norm",
    Op::BatchNormGrad => "batch_norm_grad",
    Op::BatchNormInfer { .. } => "batch_norm_infer",
    Op::MaxPool2d(_) => "max_pool2d",
    Op::MaxPool2dGrad { .. } => "max_pool2d_grad",
    Op::AvgPool2d(_) => "avg_pool2d",
    Op::AvgPool2dGrad { .. } => "avg_pool2d_grad",
    Op::Reduce { kind: Reduction::Sum, .. } => "sum",
    Op::Reduce { kind: Reduction::Mean, .. } => "mean",
    Op::Reduce { kind: Reduction::Max, .. } => "max",
    Op::Softmax => "softmax",
    Op::SoftmaxGrad => "softmax_grad",
    Op::LogSoftmax => "log_softmax",
    Op::LogSoftmaxGrad => "log_softmax_grad",
    Op::CrossEntropy => "cross_entropy",
    Op::CrossEntropyGrad => "cross_entropy_grad",
    Op::Contiguous => "contiguous",
    Op::Reshape { .. } => "reshape",
    Op::Permute { .. } => "permute",
    Op::Slice { .. } => "slice",
    Op::Broadcast { .. } => "broadcast",
    Op::Pad { .. } => "pad",
    Op::Concat { .. } => "concat",
    Op::Gather { .. } => "gather",
    Op::ScatterAdd { .. } => "scatter_add",
    Op::Fill { .. } => "fill",
    Op::Random { distribution: Distribution::Uniform { .. }, .. } => "uniform",
    Op::Random { distribution: Distribution::Normal { .. }, .. } => "normal",
    Op::Random { distribution: Distribution::Bernoulli { .. }, .. } => "bernoulli",
    Op::SgdMomentum { .. } => "sgd_momentum",
    Op::Accumulate => "accumulate",
}
