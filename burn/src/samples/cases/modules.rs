//! Cases of modules and activations. The ranks of their inputs do not depend on the rank of the
//! case's shape.

use super::{Make, new_id};
use burn_backend::DType;
use burn_ir::{
    ActivationOperationIr as Activation, AdaptiveAvgPool1dBackwardOpIr, AdaptiveAvgPool1dOpIr,
    AdaptiveAvgPool2dBackwardOpIr, AdaptiveAvgPool2dOpIr, AdaptiveAvgPool3dBackwardOpIr,
    AdaptiveAvgPool3dOpIr, AttentionOpIr, AttentionOptionsIr, AvgPool1dBackwardOpIr, AvgPool1dOpIr,
    AvgPool2dBackwardOpIr, AvgPool2dOpIr, BatchNormOpIr, BinaryOpIr, Conv1dBiasBackwardOpIr,
    Conv1dOpIr, Conv1dOptionsIr, Conv1dWeightBackwardOpIr, Conv1dXBackwardOpIr,
    Conv2dBiasBackwardOpIr, Conv2dOpIr, Conv2dOptionsIr, Conv2dWeightBackwardOpIr,
    Conv2dXBackwardOpIr, Conv3dBiasBackwardOpIr, Conv3dOpIr, Conv3dOptionsIr,
    Conv3dWeightBackwardOpIr, Conv3dXBackwardOpIr, ConvTranspose1dBiasBackwardOpIr,
    ConvTranspose1dOpIr, ConvTranspose1dOptionsIr, ConvTranspose1dWeightBackwardOpIr,
    ConvTranspose2dBiasBackwardOpIr, ConvTranspose2dOpIr, ConvTranspose2dOptionsIr,
    ConvTranspose2dWeightBackwardOpIr, ConvTranspose3dBiasBackwardOpIr, ConvTranspose3dOpIr,
    ConvTranspose3dOptionsIr, ConvTranspose3dWeightBackwardOpIr, CtcLossBackwardOpIr, CtcLossOpIr,
    DeformConv2dBackwardOpIr, DeformConv2dOpIr, DeformableConv2dOptionsIr, EmbeddingBackwardOpIr,
    EmbeddingOpIr, HardSigmoidOpIr, InterpolateBackwardOpIr, InterpolateModeIr, InterpolateOpIr,
    InterpolateOptionsIr, LayerNormOpIr, LinearBiasBackwardOpIr, LinearOpIr,
    LinearWeightBackwardOpIr, LinearXBackwardOpIr, MaxPool1dOpIr, MaxPool1dWithIndicesBackwardOpIr,
    MaxPool1dWithIndicesOpIr, MaxPool2dOpIr, MaxPool2dWithIndicesBackwardOpIr,
    MaxPool2dWithIndicesOpIr, ModuleOperationIr as Module, ScalarIr, TensorIr, Unfold4dOpIr,
    Unfold4dOptionsIr,
};

/// Settings of a convolution.
struct Conv {
    stride: usize,
    padding: usize,
    dilation: usize,
    groups: usize,
    bias: bool,
}

impl Conv {
    fn of(make: &mut Make) -> Self {
        let conv = |stride, padding, dilation, groups, bias| Self {
            stride,
            padding,
            dilation,
            groups,
            bias,
        };
        match make.way(4) {
            0 => conv(1, 0, 1, 1, false),
            1 => conv(2, 1, 1, 1, true),
            2 => conv(1, 1, 2, 1, true),
            _ => conv(1, 1, 1, 2, false),
        }
    }

    const fn one(&self) -> Conv1dOptionsIr {
        Conv1dOptionsIr {
            stride: [self.stride],
            padding: [(self.padding, self.padding)],
            dilation: [self.dilation],
            groups: self.groups,
        }
    }

    const fn two(&self) -> Conv2dOptionsIr {
        Conv2dOptionsIr {
            stride: [self.stride, 1],
            padding: [(self.padding, self.padding), (0, 1)],
            dilation: [self.dilation, 1],
            groups: self.groups,
        }
    }

    const fn three(&self) -> Conv3dOptionsIr {
        Conv3dOptionsIr {
            stride: [self.stride, 1, 1],
            padding: [self.padding, 0, 1],
            dilation: [self.dilation, 1, 1],
            groups: self.groups,
        }
    }

    const fn one_transposed(&self) -> ConvTranspose1dOptionsIr {
        ConvTranspose1dOptionsIr {
            stride: [self.stride],
            padding: [self.padding],
            padding_out: [self.stride - 1],
            dilation: [self.dilation],
            groups: self.groups,
        }
    }

    const fn two_transposed(&self) -> ConvTranspose2dOptionsIr {
        ConvTranspose2dOptionsIr {
            stride: [self.stride, 1],
            padding: [self.padding, 0],
            padding_out: [self.stride - 1, 0],
            dilation: [self.dilation, 1],
            groups: self.groups,
        }
    }

    const fn three_transposed(&self) -> ConvTranspose3dOptionsIr {
        ConvTranspose3dOptionsIr {
            stride: [self.stride, 1, 1],
            padding: [self.padding, 0, 1],
            padding_out: [self.stride - 1, 0, 0],
            dilation: [self.dilation, 1, 1],
            groups: self.groups,
        }
    }

    /// Makes input, filter and bias for `dims` dimensions.
    fn inputs(
        &self,
        make: &mut Make,
        batch: usize,
        dims: usize,
    ) -> (TensorIr, TensorIr, Option<TensorIr>) {
        let sizes = [[6].as_slice(), &[6, 4], &[6, 4, 3]][dims - 1];
        let kernel = [[2].as_slice(), &[2, 2], &[2, 2, 1]][dims - 1];
        let x = make.of(&[&[batch, 2], sizes].concat());
        let weight = make.of(&[&[4, 2 / self.groups], kernel].concat());
        let bias = self.bias.then(|| make.of(&[4]));
        (x, weight, bias)
    }

    /// Makes input, filter and bias of a transposed convolution for `dims` dimensions.
    fn transposed(
        &self,
        make: &mut Make,
        batch: usize,
        dims: usize,
    ) -> (TensorIr, TensorIr, Option<TensorIr>) {
        let sizes = [[4].as_slice(), &[4, 3], &[4, 3, 3]][dims - 1];
        let kernel = [[2].as_slice(), &[2, 2], &[2, 2, 1]][dims - 1];
        let x = make.of(&[&[batch, 4], sizes].concat());
        let weight = make.of(&[&[4, 2 / self.groups], kernel].concat());
        let bias = self.bias.then(|| make.of(&[2]));
        (x, weight, bias)
    }
}

pub(super) fn module(op: &mut Module, make: &mut Make) -> Option<()> {
    // Only shapes of rank 1 give a batch size. Batches of size 0 are omitted: Flex 0.22.1 crashes
    // (SIGSEGV) in a linear layer without rows.
    let batch = make.batch().filter(|&batch| batch > 0)?;
    match op {
        Module::BatchNorm(op) => {
            let x = match make.way(2) {
                0 => make.of(&[batch, 3, 4]),
                _ => make.of(&[batch, 3, 2, 2]),
            };
            let [gamma, beta, mean] = [(); 3].map(|()| make.of(&[3]));
            let dtype = x.dtype;
            let variance = make.with(&[3], dtype, |at| 0.5 + at as f64);
            let epsilon = ScalarIr::Float(1e-5);
            *op = BatchNormOpIr::create(x, gamma, beta, mean, variance, epsilon, new_id);
        }
        Module::Embedding(op) => {
            let (weights, indices) = (make.of(&[5, 3]), make.indices(&[batch, 4], 5)?);
            *op = EmbeddingOpIr::create(weights, indices, new_id);
        }
        Module::EmbeddingBackward(op) => {
            let (weights, grad) = (make.of(&[5, 3]), make.of(&[batch, 4, 3]));
            let indices = make.indices(&[batch, 4], 5)?;
            *op = EmbeddingBackwardOpIr::create(weights, grad, indices, new_id);
        }
        Module::Linear(op) => {
            let x = match make.way(2) {
                0 => make.of(&[batch, 3]),
                _ => make.of(&[batch, 2, 3]),
            };
            let weight = make.of(&[3, 4]);
            let bias = (make.way(4) < 2).then(|| make.of(&[4]));
            *op = LinearOpIr::create(x, weight, bias, new_id);
        }
        Module::LinearXBackward(op) => {
            let (weight, grad) = (make.of(&[3, 4]), make.of(&[batch, 2, 4]));
            *op = LinearXBackwardOpIr::create(weight, grad, new_id);
        }
        Module::LinearWeightBackward(op) => {
            let (x, grad) = (make.of(&[batch, 2, 3]), make.of(&[batch, 2, 4]));
            *op = LinearWeightBackwardOpIr::create(x, grad, new_id);
        }
        Module::LinearBiasBackward(op) => {
            *op = LinearBiasBackwardOpIr::create(make.of(&[batch, 2, 4]), new_id);
        }
        Module::Conv1d(op) => *op = conv1(make, batch),
        Module::Conv1dXBackward(op) => {
            let Conv1dOpIr { x, weight, options, out, .. } = conv1(make, batch);
            *op = Conv1dXBackwardOpIr::create(x, weight, make.of(&out.shape), options, new_id);
        }
        Module::Conv1dWeightBackward(op) => {
            let Conv1dOpIr { x, weight, options, out, .. } = conv1(make, batch);
            *op = Conv1dWeightBackwardOpIr::create(x, weight, make.of(&out.shape), options, new_id);
        }
        Module::Conv1dBiasBackward(op) => {
            let Conv1dOpIr { x, out, .. } = conv1(make, batch);
            *op = Conv1dBiasBackwardOpIr::create(x, make.of(&[4]), make.of(&out.shape), new_id);
        }
        Module::ConvTranspose1d(op) => *op = transposed1(make, batch),
        Module::ConvTranspose1dWeightBackward(op) => {
            let ConvTranspose1dOpIr { x, weight, options, out, .. } = transposed1(make, batch);
            let grad = make.of(&out.shape);
            *op = ConvTranspose1dWeightBackwardOpIr::create(x, weight, grad, options, new_id);
        }
        Module::ConvTranspose1dBiasBackward(op) => {
            let ConvTranspose1dOpIr { x, out, .. } = transposed1(make, batch);
            *op = ConvTranspose1dBiasBackwardOpIr::create(
                x,
                make.of(&[2]),
                make.of(&out.shape),
                new_id,
            );
        }
        Module::Conv2d(op) => *op = conv2(make, batch),
        Module::Conv2dXBackward(op) => {
            let Conv2dOpIr { x, weight, options, out, .. } = conv2(make, batch);
            *op = Conv2dXBackwardOpIr::create(x, weight, make.of(&out.shape), options, new_id);
        }
        Module::Conv2dWeightBackward(op) => {
            let Conv2dOpIr { x, weight, options, out, .. } = conv2(make, batch);
            *op = Conv2dWeightBackwardOpIr::create(x, weight, make.of(&out.shape), options, new_id);
        }
        Module::Conv2dBiasBackward(op) => {
            let Conv2dOpIr { x, out, .. } = conv2(make, batch);
            *op = Conv2dBiasBackwardOpIr::create(x, make.of(&[4]), make.of(&out.shape), new_id);
        }
        Module::ConvTranspose2d(op) => *op = transposed2(make, batch),
        Module::ConvTranspose2dWeightBackward(op) => {
            let ConvTranspose2dOpIr { x, weight, options, out, .. } = transposed2(make, batch);
            let grad = make.of(&out.shape);
            *op = ConvTranspose2dWeightBackwardOpIr::create(x, weight, grad, options, new_id);
        }
        Module::ConvTranspose2dBiasBackward(op) => {
            let ConvTranspose2dOpIr { x, out, .. } = transposed2(make, batch);
            *op = ConvTranspose2dBiasBackwardOpIr::create(
                x,
                make.of(&[2]),
                make.of(&out.shape),
                new_id,
            );
        }
        Module::Conv3d(op) => *op = conv3(make, batch),
        Module::Conv3dXBackward(op) => {
            let Conv3dOpIr { x, weight, options, out, .. } = conv3(make, batch);
            *op = Conv3dXBackwardOpIr::create(x, weight, make.of(&out.shape), options, new_id);
        }
        Module::Conv3dWeightBackward(op) => {
            let Conv3dOpIr { x, weight, options, out, .. } = conv3(make, batch);
            *op = Conv3dWeightBackwardOpIr::create(x, weight, make.of(&out.shape), options, new_id);
        }
        Module::Conv3dBiasBackward(op) => {
            let Conv3dOpIr { x, out, .. } = conv3(make, batch);
            *op = Conv3dBiasBackwardOpIr::create(x, make.of(&[4]), make.of(&out.shape), new_id);
        }
        Module::ConvTranspose3d(op) => *op = transposed3(make, batch),
        Module::ConvTranspose3dWeightBackward(op) => {
            let ConvTranspose3dOpIr { x, weight, options, out, .. } = transposed3(make, batch);
            let grad = make.of(&out.shape);
            *op = ConvTranspose3dWeightBackwardOpIr::create(x, weight, grad, options, new_id);
        }
        Module::ConvTranspose3dBiasBackward(op) => {
            let ConvTranspose3dOpIr { x, out, .. } = transposed3(make, batch);
            *op = ConvTranspose3dBiasBackwardOpIr::create(
                x,
                make.of(&[2]),
                make.of(&out.shape),
                new_id,
            );
        }
        Module::DeformableConv2d(op) => **op = deformable(make, batch),
        Module::DeformableConv2dBackward(op) => {
            let forward = deformable(make, batch);
            let grad = make.of(&forward.out.shape);
            let DeformConv2dOpIr { x, offset, weight, mask, bias, options, .. } = forward;
            **op = DeformConv2dBackwardOpIr::create(
                x, offset, weight, mask, bias, grad, options, new_id,
            );
        }
        Module::AvgPool1d(op) => {
            let way = make.way(2);
            let x = make.of(&[batch, 2, 7]);
            *op = AvgPool1dOpIr::create(x, 2, 1 + way, way % 2, way == 0, way == 1, new_id);
        }
        Module::AvgPool1dBackward(op) => {
            let way = make.way(2);
            let x = make.of(&[batch, 2, 7]);
            let forward =
                AvgPool1dOpIr::create(x.clone(), 2, 1 + way, way % 2, way == 0, way == 1, new_id);
            let grad = make.of(&forward.out.shape);
            *op = AvgPool1dBackwardOpIr::create(
                x,
                grad,
                2,
                1 + way,
                way % 2,
                way == 0,
                way == 1,
                new_id,
            );
        }
        Module::MaxPool1d(op) => {
            let way = make.way(2);
            let x = make.of(&[batch, 2, 7]);
            *op = MaxPool1dOpIr::create(x, 2, 1 + way, way % 2, 1, way == 1, new_id);
        }
        Module::MaxPool1dWithIndices(op) => {
            let way = make.way(2);
            let x = make.of(&[batch, 2, 7]);
            *op = MaxPool1dWithIndicesOpIr::create(
                x,
                2,
                1 + way,
                way % 2,
                1,
                way == 1,
                DType::I64,
                new_id,
            );
        }
        Module::MaxPool1dWithIndicesBackward(op) => {
            let way = make.way(2);
            let x = make.of(&[batch, 2, 7]);
            let forward =
                MaxPool1dOpIr::create(x.clone(), 2, 1 + way, way % 2, 1, way == 1, new_id);
            let grad = make.of(&forward.out.shape);
            let indices = make.indices(&forward.out.shape, x.shape[2..].iter().product())?;
            *op = MaxPool1dWithIndicesBackwardOpIr::create(
                x,
                grad,
                indices,
                2,
                1 + way,
                way % 2,
                1,
                way == 1,
                new_id,
            );
        }
        Module::AvgPool2d(op) => {
            let way = make.way(2);
            let x = make.of(&[batch, 2, 7, 5]);
            *op = AvgPool2dOpIr::create(
                x,
                [2, 2],
                [1 + way, 1],
                [way % 2, 0],
                way == 0,
                way == 1,
                new_id,
            );
        }
        Module::AvgPool2dBackward(op) => {
            let way = make.way(2);
            let x = make.of(&[batch, 2, 7, 5]);
            let forward = AvgPool2dOpIr::create(
                x.clone(),
                [2, 2],
                [1 + way, 1],
                [way % 2, 0],
                way == 0,
                way == 1,
                new_id,
            );
            let grad = make.of(&forward.out.shape);
            *op = AvgPool2dBackwardOpIr::create(
                x,
                grad,
                [2, 2],
                [1 + way, 1],
                [way % 2, 0],
                way == 0,
                way == 1,
                new_id,
            );
        }
        Module::MaxPool2d(op) => {
            let way = make.way(2);
            let x = make.of(&[batch, 2, 7, 5]);
            *op = MaxPool2dOpIr::create(
                x,
                [2, 2],
                [1 + way, 1],
                [way % 2, 0],
                [1, 1],
                way == 1,
                new_id,
            );
        }
        Module::MaxPool2dWithIndices(op) => {
            let way = make.way(2);
            let x = make.of(&[batch, 2, 7, 5]);
            *op = MaxPool2dWithIndicesOpIr::create(
                x,
                [2, 2],
                [1 + way, 1],
                [way % 2, 0],
                [1, 1],
                way == 1,
                DType::I64,
                new_id,
            );
        }
        Module::MaxPool2dWithIndicesBackward(op) => {
            let way = make.way(2);
            let x = make.of(&[batch, 2, 7, 5]);
            let forward = MaxPool2dOpIr::create(
                x.clone(),
                [2, 2],
                [1 + way, 1],
                [way % 2, 0],
                [1, 1],
                way == 1,
                new_id,
            );
            let grad = make.of(&forward.out.shape);
            let indices = make.indices(&forward.out.shape, x.shape[2..].iter().product())?;
            *op = MaxPool2dWithIndicesBackwardOpIr::create(
                x,
                grad,
                indices,
                [2, 2],
                [1 + way, 1],
                [way % 2, 0],
                [1, 1],
                way == 1,
                new_id,
            );
        }
        Module::AdaptiveAvgPool1d(op) => {
            *op = AdaptiveAvgPool1dOpIr::create(make.of(&[batch, 2, 5]), 3, new_id);
        }
        Module::AdaptiveAvgPool2d(op) => {
            *op = AdaptiveAvgPool2dOpIr::create(make.of(&[batch, 2, 5, 4]), [3, 2], new_id);
        }
        Module::AdaptiveAvgPool3d(op) => {
            *op = AdaptiveAvgPool3dOpIr::create(make.of(&[batch, 2, 5, 4, 3]), [3, 2, 3], new_id);
        }
        Module::AdaptiveAvgPool1dBackward(op) => {
            let (x, grad) = (make.of(&[batch, 2, 5]), make.of(&[batch, 2, 3]));
            *op = AdaptiveAvgPool1dBackwardOpIr::create(x, grad, new_id);
        }
        Module::AdaptiveAvgPool2dBackward(op) => {
            let (x, grad) = (make.of(&[batch, 2, 5, 4]), make.of(&[batch, 2, 3, 2]));
            *op = AdaptiveAvgPool2dBackwardOpIr::create(x, grad, new_id);
        }
        Module::AdaptiveAvgPool3dBackward(op) => {
            let (x, grad) = (make.of(&[batch, 2, 5, 4, 3]), make.of(&[batch, 2, 3, 2, 3]));
            *op = AdaptiveAvgPool3dBackwardOpIr::create(x, grad, new_id);
        }
        Module::Interpolate(op) => {
            let (size, options) = interpolation(make);
            *op = InterpolateOpIr::create(make.of(&[batch, 2, 4, 3]), size, options, new_id);
        }
        Module::InterpolateBackward(op) => {
            let (size, options) = interpolation(make);
            let (x, grad) = (make.of(&[batch, 2, 4, 3]), make.of(&[batch, 2, size[0], size[1]]));
            *op = InterpolateBackwardOpIr::create(x, grad, size, options, new_id);
        }
        Module::Attention(op) => {
            let way = make.way(4);
            let [query, key, value] =
                [[3, 4], [5, 4], [5, 2]].map(|[len, width]| make.of(&[batch, 2, len, width]));
            let mask = (way == 1).then(|| make.mask(&[batch, 2, 3, 5]));
            let bias = (way == 2).then(|| make.of(&[batch, 2, 3, 5]));
            let options = AttentionOptionsIr {
                scale: (way == 2).then_some(ScalarIr::Float(0.25)),
                softcap: (way == 1).then_some(ScalarIr::Float(2.0)),
                is_causal: way == 3,
            };
            *op = AttentionOpIr::create(query, key, value, mask, bias, options, new_id);
        }
        Module::CtcLoss(op) => {
            let [log_probs, targets, lengths, target_lengths, _] = ctc(make, batch)?;
            *op = CtcLossOpIr::create(log_probs, targets, lengths, target_lengths, 0, new_id);
        }
        Module::CtcLossBackward(op) => {
            let [log_probs, targets, lengths, target_lengths, grad] = ctc(make, batch)?;
            *op = CtcLossBackwardOpIr::create(
                log_probs,
                targets,
                lengths,
                target_lengths,
                grad,
                0,
                new_id,
            );
        }
        Module::LayerNorm(op) => {
            let x = make.of(&[batch, 2, 4]);
            let gamma = make.of(&[4]);
            let beta = (make.way(2) == 1).then(|| make.of(&[4]));
            *op = LayerNormOpIr::create(x, gamma, beta, 1e-5, new_id);
        }
        Module::Unfold4d(op) => {
            let way = make.way(2);
            let options = Unfold4dOptionsIr {
                stride: [1 + way, 1],
                padding: [way, 0],
                dilation: [1, 1 + way],
            };
            *op = Unfold4dOpIr::create(make.of(&[batch, 2, 5, 4]), [2, 2], options, new_id);
        }
    }
    Some(())
}

fn deformable(make: &mut Make, batch: usize) -> DeformConv2dOpIr {
    let way = make.way(2);
    let options = DeformableConv2dOptionsIr {
        stride: [1, 1 + way],
        padding: [way, way],
        dilation: [1, 1],
        weight_groups: 1,
        offset_groups: 1,
    };
    let (x, weight) = (make.of(&[batch, 2, 4, 4]), make.of(&[3, 2, 2, 2]));
    let size = [4 + 2 * way - 1, (4 + 2 * way - 2) / (1 + way) + 1];
    let offset = make.of(&[batch, 8, size[0], size[1]]);
    let mask = (way == 1).then(|| make.of(&[batch, 4, size[0], size[1]]));
    let bias = (way == 1).then(|| make.of(&[3]));
    DeformConv2dOpIr::create(x, offset, weight, mask, bias, options, new_id)
}

fn interpolation(make: &mut Make) -> ([usize; 2], InterpolateOptionsIr) {
    let modes = [
        InterpolateModeIr::Nearest,
        InterpolateModeIr::NearestExact,
        InterpolateModeIr::Bilinear,
        InterpolateModeIr::Bicubic,
        InterpolateModeIr::Lanczos3,
    ];
    let way = make.way(2 * modes.len());
    let mode = modes[way % modes.len()].clone();
    let align_corners = way < modes.len();
    ([6, 2], InterpolateOptionsIr { mode, align_corners })
}

/// Makes the inputs of a CTC loss: log-probabilities, targets, the lengths of both, and the
/// gradient of the loss.
fn ctc(make: &mut Make, batch: usize) -> Option<[TensorIr; 5]> {
    let dtype = make.spec.dtype;
    let log_probs = make.with(&[6, batch, 4], dtype, |at| -0.5 - (at % 5) as f64 * 0.25);
    let targets = make.with(&[batch, 2], DType::I64, |at| 1.0 + (at % 3) as f64);
    let lengths = make.with(&[batch], DType::I64, |at| 6.0 - (at % 2) as f64);
    let target_lengths = make.with(&[batch], DType::I64, |at| 2.0 - (at % 2) as f64);
    Some([log_probs, targets, lengths, target_lengths, make.of(&[batch])])
}

pub(super) fn activation(op: &mut Activation, make: &mut Make) -> Option<()> {
    match op {
        Activation::Relu(op)
        | Activation::Gelu(op)
        | Activation::Sigmoid(op)
        | Activation::LogSigmoid(op) => *op = make.unary(),
        Activation::ReluBackward(op)
        | Activation::GeluBackward(op)
        | Activation::SigmoidBackward(op)
        | Activation::LogSigmoidBackward(op) => {
            *op = BinaryOpIr::create(make.x(), make.x(), new_id);
        }
        Activation::LeakyRelu(op) => *op = make.with_scalar(0.25),
        Activation::PRelu(op) => {
            let alone = vec![1; make.rank()];
            *op = BinaryOpIr::create(make.x(), make.of(&alone), new_id);
        }
        Activation::HardSigmoid(op) => {
            let (alpha, beta) = (ScalarIr::Float(0.25), ScalarIr::Float(0.5));
            *op = HardSigmoidOpIr::create(make.strange(), alpha, beta, new_id);
        }
        Activation::Softmax(op) | Activation::LogSoftmax(op) | Activation::Softmin(op) => {
            *op = make.along();
        }
    }
    Some(())
}

fn conv1(make: &mut Make, batch: usize) -> Conv1dOpIr {
    let conv = Conv::of(make);
    let (x, weight, bias) = conv.inputs(make, batch, 1);
    Conv1dOpIr::create(x, weight, bias, conv.one(), new_id)
}

fn transposed1(make: &mut Make, batch: usize) -> ConvTranspose1dOpIr {
    let conv = Conv::of(make);
    let (x, weight, bias) = conv.transposed(make, batch, 1);
    ConvTranspose1dOpIr::create(x, weight, bias, conv.one_transposed(), new_id)
}

fn conv2(make: &mut Make, batch: usize) -> Conv2dOpIr {
    let conv = Conv::of(make);
    let (x, weight, bias) = conv.inputs(make, batch, 2);
    Conv2dOpIr::create(x, weight, bias, conv.two(), new_id)
}

fn transposed2(make: &mut Make, batch: usize) -> ConvTranspose2dOpIr {
    let conv = Conv::of(make);
    let (x, weight, bias) = conv.transposed(make, batch, 2);
    ConvTranspose2dOpIr::create(x, weight, bias, conv.two_transposed(), new_id)
}

fn conv3(make: &mut Make, batch: usize) -> Conv3dOpIr {
    let conv = Conv::of(make);
    let (x, weight, bias) = conv.inputs(make, batch, 3);
    Conv3dOpIr::create(x, weight, bias, conv.three(), new_id)
}

fn transposed3(make: &mut Make, batch: usize) -> ConvTranspose3dOpIr {
    let conv = Conv::of(make);
    let (x, weight, bias) = conv.transposed(make, batch, 3);
    ConvTranspose3dOpIr::create(x, weight, bias, conv.three_transposed(), new_id)
}
