//! Names of Burn's operations in messages and recordings. If Burn adds a variant, this module does
//! not compile until the variant has a name.

use burn_ir::{
    ActivationOperationIr as Activation, BaseOperationIr as Base, BoolOperationIr as Bool,
    DistributedOperationIr as Distributed, FloatOperationIr as Float, IntOperationIr as Int,
    ModuleOperationIr as Module, NumericOperationIr as Numeric, OperationIr,
};
use std::borrow::Cow;

/// Name of an operation, as known to Burn's users: `matmul`, `conv2d_x_backward` and so on.
pub(crate) fn name_of(ir: &OperationIr) -> Cow<'static, str> {
    Cow::Borrowed(match ir {
        OperationIr::BaseFloat(op) | OperationIr::BaseInt(op) | OperationIr::BaseBool(op) => {
            base(op)
        }
        OperationIr::NumericFloat(_, op) | OperationIr::NumericInt(_, op) => numeric(op),
        OperationIr::Float(_, op) => float(op),
        OperationIr::Int(op) => int(op),
        OperationIr::Bool(op) => bool(op),
        OperationIr::Module(op) => module(op),
        OperationIr::Activation(op) => activation(op),
        OperationIr::Distributed(op) => distributed(op),
        OperationIr::Init(_) => "init",
        OperationIr::Drop(_) => "drop",
        OperationIr::Custom(op) => return Cow::Owned(op.id.clone()),
    })
}

const fn base(op: &Base) -> &'static str {
    match op {
        Base::Reshape(_) => "reshape",
        Base::SwapDims(_) => "swap_dims",
        Base::Permute(_) => "permute",
        Base::Flip(_) => "flip",
        Base::Expand(_) => "expand",
        Base::Unfold(_) => "unfold",
        Base::Slice(_) => "slice",
        Base::SliceAssign(_) => "slice_assign",
        Base::Select(_) => "select",
        Base::SelectAssign(_) => "select_assign",
        Base::MaskWhere(_) => "mask_where",
        Base::MaskFill(_) => "mask_fill",
        Base::Gather(_) => "gather",
        Base::Scatter(_) => "scatter",
        Base::ScatterNd(_) => "scatter_nd",
        Base::GatherNd(_) => "gather_nd",
        Base::Equal(_) => "equal",
        Base::EqualElem(_) => "equal_elem",
        Base::RepeatDim(_) => "repeat_dim",
        Base::Cat(_) => "cat",
        Base::Cast(_) => "cast",
        Base::Empty(_) => "empty",
        Base::Ones(_) => "ones",
        Base::Zeros(_) => "zeros",
        Base::NotEqual(_) => "not_equal",
        Base::NotEqualElem(_) => "not_equal_elem",
        Base::All(_) => "all",
        Base::Any(_) => "any",
        Base::AllDim(_) => "all_dim",
        Base::AnyDim(_) => "any_dim",
    }
}

const fn numeric(op: &Numeric) -> &'static str {
    match op {
        Numeric::Add(_) => "add",
        Numeric::AddScalar(_) => "add_scalar",
        Numeric::Sub(_) => "sub",
        Numeric::SubScalar(_) => "sub_scalar",
        Numeric::Div(_) => "div",
        Numeric::DivScalar(_) => "div_scalar",
        Numeric::Rem(_) => "rem",
        Numeric::RemScalar(_) => "rem_scalar",
        Numeric::Mul(_) => "mul",
        Numeric::MulScalar(_) => "mul_scalar",
        Numeric::Abs(_) => "abs",
        Numeric::Full(_) => "full",
        Numeric::MeanDim(_) => "mean_dim",
        Numeric::Mean(_) => "mean",
        Numeric::Sum(_) => "sum",
        Numeric::SumDim(_) => "sum_dim",
        Numeric::SumDims(_) => "sum_dims",
        Numeric::Prod(_) => "prod",
        Numeric::ProdDim(_) => "prod_dim",
        Numeric::Greater(_) => "greater",
        Numeric::GreaterElem(_) => "greater_elem",
        Numeric::GreaterEqual(_) => "greater_equal",
        Numeric::GreaterEqualElem(_) => "greater_equal_elem",
        Numeric::Lower(_) => "lower",
        Numeric::LowerElem(_) => "lower_elem",
        Numeric::LowerEqual(_) => "lower_equal",
        Numeric::LowerEqualElem(_) => "lower_equal_elem",
        Numeric::ArgMax(_) => "argmax",
        Numeric::ArgTopK(_) => "argtopk",
        Numeric::TopK(_) => "top_k",
        Numeric::TopKWithIndices(_) => "top_k_with_indices",
        Numeric::ArgMin(_) => "argmin",
        Numeric::Max(_) => "max",
        Numeric::MaxDimWithIndices(_) => "max_dim_with_indices",
        Numeric::MinDimWithIndices(_) => "min_dim_with_indices",
        Numeric::Min(_) => "min",
        Numeric::MaxDim(_) => "max_dim",
        Numeric::MinDim(_) => "min_dim",
        Numeric::MaxAbs(_) => "max_abs",
        Numeric::MaxAbsDim(_) => "max_abs_dim",
        Numeric::Clamp(_) => "clamp",
        Numeric::IntRandom(_) => "random",
        Numeric::Powi(_) => "powi",
        Numeric::PowiScalar(_) => "powi_scalar",
        Numeric::CumSum(_) => "cumsum",
        Numeric::CumProd(_) => "cumprod",
        Numeric::CumMin(_) => "cummin",
        Numeric::CumMax(_) => "cummax",
        Numeric::Neg(_) => "neg",
        Numeric::Sign(_) => "sign",
        Numeric::ClampMin(_) => "clamp_min",
        Numeric::ClampMax(_) => "clamp_max",
        Numeric::Sort(_) => "sort",
        Numeric::SortWithIndices(_) => "sort_with_indices",
        Numeric::ArgSort(_) => "argsort",
        Numeric::Pad(_) => "pad",
    }
}

const fn float(op: &Float) -> &'static str {
    match op {
        Float::Exp(_) => "exp",
        Float::Log(_) => "log",
        Float::Log1p(_) => "log1p",
        Float::Erf(_) => "erf",
        Float::PowfScalar(_) => "powf_scalar",
        Float::Sqrt(_) => "sqrt",
        Float::Cos(_) => "cos",
        Float::Cosh(_) => "cosh",
        Float::Sin(_) => "sin",
        Float::Sinh(_) => "sinh",
        Float::Tan(_) => "tan",
        Float::Tanh(_) => "tanh",
        Float::ArcCos(_) => "arc_cos",
        Float::ArcCosh(_) => "arc_cosh",
        Float::ArcSin(_) => "arc_sin",
        Float::ArcSinh(_) => "arc_sinh",
        Float::ArcTan(_) => "arc_tan",
        Float::ArcTanh(_) => "arc_tanh",
        Float::ArcTan2(_) => "arc_tan2",
        Float::Round(_) => "round",
        Float::Floor(_) => "floor",
        Float::Ceil(_) => "ceil",
        Float::Trunc(_) => "trunc",
        Float::IntoInt(_) => "into_int",
        Float::Matmul(_) => "matmul",
        Float::Cross(_) => "cross",
        Float::Random(_) => "random",
        Float::Recip(_) => "recip",
        Float::IsNan(_) => "is_nan",
        Float::IsInf(_) => "is_inf",
        Float::Quantize(_) => "quantize",
        Float::Dequantize(_) => "dequantize",
        Float::GridSample2d(_) => "grid_sample2d",
        Float::Powf(_) => "powf",
        Float::Hypot(_) => "hypot",
    }
}

const fn int(op: &Int) -> &'static str {
    match op {
        Int::IntoFloat(_) => "into_float",
        Int::BitwiseAnd(_) => "bitwise_and",
        Int::BitwiseAndScalar(_) => "bitwise_and_scalar",
        Int::BitwiseOr(_) => "bitwise_or",
        Int::BitwiseOrScalar(_) => "bitwise_or_scalar",
        Int::BitwiseXor(_) => "bitwise_xor",
        Int::BitwiseXorScalar(_) => "bitwise_xor_scalar",
        Int::BitwiseNot(_) => "bitwise_not",
        Int::BitwiseLeftShift(_) => "bitwise_left_shift",
        Int::BitwiseLeftShiftScalar(_) => "bitwise_left_shift_scalar",
        Int::BitwiseRightShift(_) => "bitwise_right_shift",
        Int::BitwiseRightShiftScalar(_) => "bitwise_right_shift_scalar",
        Int::Matmul(_) => "matmul",
    }
}

const fn bool(op: &Bool) -> &'static str {
    match op {
        Bool::IntoFloat(_) => "into_float",
        Bool::IntoInt(_) => "into_int",
        Bool::Not(_) => "not",
        Bool::And(_) => "and",
        Bool::Or(_) => "or",
        Bool::Xor(_) => "xor",
    }
}

const fn module(op: &Module) -> &'static str {
    match op {
        Module::BatchNorm(_) => "batch_norm",
        Module::Embedding(_) => "embedding",
        Module::EmbeddingBackward(_) => "embedding_backward",
        Module::Linear(_) => "linear",
        Module::LinearXBackward(_) => "linear_x_backward",
        Module::LinearWeightBackward(_) => "linear_weight_backward",
        Module::LinearBiasBackward(_) => "linear_bias_backward",
        Module::Conv1d(_) => "conv1d",
        Module::Conv1dXBackward(_) => "conv1d_x_backward",
        Module::Conv1dWeightBackward(_) => "conv1d_weight_backward",
        Module::Conv1dBiasBackward(_) => "conv1d_bias_backward",
        Module::Conv2d(_) => "conv2d",
        Module::Conv2dXBackward(_) => "conv2d_x_backward",
        Module::Conv2dWeightBackward(_) => "conv2d_weight_backward",
        Module::Conv2dBiasBackward(_) => "conv2d_bias_backward",
        Module::Conv3d(_) => "conv3d",
        Module::Conv3dXBackward(_) => "conv3d_x_backward",
        Module::Conv3dWeightBackward(_) => "conv3d_weight_backward",
        Module::Conv3dBiasBackward(_) => "conv3d_bias_backward",
        Module::DeformableConv2d(_) => "deformable_conv2d",
        Module::DeformableConv2dBackward(_) => "deformable_conv2d_backward",
        Module::ConvTranspose1d(_) => "conv_transpose1d",
        Module::ConvTranspose2d(_) => "conv_transpose2d",
        Module::ConvTranspose3d(_) => "conv_transpose3d",
        Module::AvgPool1d(_) => "avg_pool1d",
        Module::AvgPool2d(_) => "avg_pool2d",
        Module::AvgPool1dBackward(_) => "avg_pool1d_backward",
        Module::AvgPool2dBackward(_) => "avg_pool2d_backward",
        Module::AdaptiveAvgPool1d(_) => "adaptive_avg_pool1d",
        Module::AdaptiveAvgPool2d(_) => "adaptive_avg_pool2d",
        Module::AdaptiveAvgPool1dBackward(_) => "adaptive_avg_pool1d_backward",
        Module::AdaptiveAvgPool2dBackward(_) => "adaptive_avg_pool2d_backward",
        Module::AdaptiveAvgPool3d(_) => "adaptive_avg_pool3d",
        Module::AdaptiveAvgPool3dBackward(_) => "adaptive_avg_pool3d_backward",
        Module::MaxPool1d(_) => "max_pool1d",
        Module::MaxPool1dWithIndices(_) => "max_pool1d_with_indices",
        Module::MaxPool1dWithIndicesBackward(_) => "max_pool1d_with_indices_backward",
        Module::MaxPool2d(_) => "max_pool2d",
        Module::MaxPool2dWithIndices(_) => "max_pool2d_with_indices",
        Module::MaxPool2dWithIndicesBackward(_) => "max_pool2d_with_indices_backward",
        Module::Interpolate(_) => "interpolate",
        Module::InterpolateBackward(_) => "interpolate_backward",
        Module::Attention(_) => "attention",
        Module::CtcLoss(_) => "ctc_loss",
        Module::CtcLossBackward(_) => "ctc_loss_backward",
        Module::LayerNorm(_) => "layer_norm",
        Module::Unfold4d(_) => "unfold4d",
        Module::ConvTranspose1dWeightBackward(_) => "conv_transpose1d_weight_backward",
        Module::ConvTranspose1dBiasBackward(_) => "conv_transpose1d_bias_backward",
        Module::ConvTranspose2dWeightBackward(_) => "conv_transpose2d_weight_backward",
        Module::ConvTranspose2dBiasBackward(_) => "conv_transpose2d_bias_backward",
        Module::ConvTranspose3dWeightBackward(_) => "conv_transpose3d_weight_backward",
        Module::ConvTranspose3dBiasBackward(_) => "conv_transpose3d_bias_backward",
    }
}

const fn activation(op: &Activation) -> &'static str {
    match op {
        Activation::Relu(_) => "relu",
        Activation::ReluBackward(_) => "relu_backward",
        Activation::LeakyRelu(_) => "leaky_relu",
        Activation::PRelu(_) => "prelu",
        Activation::Gelu(_) => "gelu",
        Activation::GeluBackward(_) => "gelu_backward",
        Activation::Sigmoid(_) => "sigmoid",
        Activation::SigmoidBackward(_) => "sigmoid_backward",
        Activation::HardSigmoid(_) => "hard_sigmoid",
        Activation::LogSigmoid(_) => "log_sigmoid",
        Activation::LogSigmoidBackward(_) => "log_sigmoid_backward",
        Activation::Softmax(_) => "softmax",
        Activation::LogSoftmax(_) => "log_softmax",
        Activation::Softmin(_) => "softmin",
    }
}

const fn distributed(op: &Distributed) -> &'static str {
    match op {
        Distributed::AllReduce(_) => "all_reduce",
        Distributed::SyncCollective => "sync_collective",
    }
}
