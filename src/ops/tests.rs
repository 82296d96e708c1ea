use super::*;
use crate::layout::Dims;
use crate::op::Outputs;
use samples::{Draw, Sizes, layouts};
use std::collections::BTreeSet;

mod fused;

fn f(shape: &[usize]) -> Layout {
    Layout::contiguous(FLOAT, Dims::new(shape))
}

fn int(shape: &[usize]) -> Layout {
    Layout::contiguous(DType::I32, Dims::new(shape))
}

fn dims(values: &[usize]) -> Dims {
    Dims::new(values)
}

const CONV: Conv2d = Conv2d::new([2, 1], [1, 0]);
const POOL: Pool2d = Pool2d { kernel: [3, 2], stride: [2, 2], padding: [1, 0] };

fn sum(axes: &[usize], keep_dims: bool) -> Op {
    Reduce { kind: Reduction::Sum, axes: dims(axes), keep_dims }.into()
}

#[test]
fn outputs_have_the_shapes_they_should() {
    let add: Op = Binary::Add.into();
    let cases: Vec<(Op, Vec<Layout>, Vec<Layout>)> = vec![
        (add, vec![f(&[4, 1, 3]), f(&[2, 1])], vec![f(&[4, 2, 3])]),
        (MatMul.into(), vec![f(&[5, 2, 3]), f(&[7, 1, 3, 4])], vec![f(&[7, 5, 2, 4])]),
        (CONV.into(), vec![f(&[2, 3, 8, 8]), f(&[5, 3, 3, 3])], vec![f(&[2, 5, 4, 6])]),
        (
            Conv2dGradInput { conv: CONV, input: [8, 8] }.into(),
            vec![f(&[2, 5, 4, 6]), f(&[5, 3, 3, 3])],
            vec![f(&[2, 3, 8, 8])],
        ),
        (
            Conv2dGradWeight { conv: CONV, kernel: [3, 3] }.into(),
            vec![f(&[2, 3, 8, 8]), f(&[2, 5, 4, 6])],
            vec![f(&[5, 3, 3, 3])],
        ),
        (
            MaxPool2d(POOL).into(),
            vec![f(&[2, 3, 8, 8])],
            vec![f(&[2, 3, 4, 4]), int(&[2, 3, 4, 4])],
        ),
        (
            MaxPool2dGrad { pool: POOL, input: [8, 8] }.into(),
            vec![int(&[2, 3, 4, 4]), f(&[2, 3, 4, 4])],
            vec![f(&[2, 3, 8, 8])],
        ),
        (
            AvgPool2dGrad { pool: POOL, input: [8, 8] }.into(),
            vec![f(&[2, 3, 4, 4])],
            vec![f(&[2, 3, 8, 8])],
        ),
        (sum(&[0, 2], false), vec![f(&[2, 3, 4])], vec![f(&[3])]),
        (sum(&[2, 0], true), vec![f(&[2, 3, 4])], vec![f(&[1, 3, 1])]),
        (sum(&[], false), vec![f(&[2])], vec![f(&[2])]),
        (CrossEntropy::default().into(), vec![f(&[4, 10]), int(&[4])], vec![f(&[]), f(&[4, 10])]),
        (Contiguous.into(), vec![int(&[2, 3]).permute(&[1, 0]).unwrap()], vec![int(&[3, 2])]),
        (Pad { axis: 1, before: 1, after: 2 }.into(), vec![f(&[2, 3])], vec![f(&[2, 6])]),
        (
            Concat { axis: 0 }.into(),
            vec![int(&[2, 3]), int(&[0, 3]), int(&[5, 3])],
            vec![int(&[7, 3])],
        ),
        (Gather { axis: 1 }.into(), vec![f(&[2, 3]), int(&[9])], vec![f(&[2, 9])]),
        (ScatterAdd { axis: 1, size: 3 }.into(), vec![f(&[2, 9]), int(&[9])], vec![f(&[2, 3])]),
        (
            BatchNorm { momentum: 0.1, eps: 1e-5 }.into(),
            vec![f(&[2, 3, 4]), f(&[3]), f(&[3]), f(&[3]), f(&[3])],
            vec![f(&[2, 3, 4]), f(&[3]), f(&[3]), f(&[3]), f(&[3])],
        ),
        (
            BatchNormGrad.into(),
            vec![f(&[2, 3, 4]), f(&[3]), f(&[3]), f(&[3]), f(&[2, 3, 4])],
            vec![f(&[2, 3, 4]), f(&[3]), f(&[3])],
        ),
    ];
    for (op, inputs, expected) in cases {
        assert_eq!(op.infer(&inputs).unwrap(), Outputs::fresh(expected), "{op:?}");
    }
}

#[test]
fn views_and_updates_make_no_storage() {
    let x = f(&[4, 6]);
    let part = Op::from(Slice { axis: 1, start: 2, len: 3 }).infer(&[x]).unwrap();
    assert_eq!(part, Outputs::view(0, x.slice(1, 2, 3).unwrap()));
    let flat = Op::from(Reshape { shape: dims(&[24]) }).infer(&[x]).unwrap();
    assert_eq!(flat, Outputs::view(0, f(&[24])));
    let step: Op =
        SgdMomentum { lr: 0.1, momentum: 0.9, weight_decay: 0.0, nesterov: false }.into();
    assert_eq!(step.infer(&[x, x, x]).unwrap(), Outputs::updates(2));
    let turned = f(&[6, 4]).permute(&[1, 0]).unwrap();
    let add = Op::from(Accumulate);
    assert_eq!(add.infer(&[x, turned]).unwrap(), Outputs::updates(1));
    assert!(add.infer(&[turned, x]).is_err());
}

#[test]
fn a_part_of_nothing_is_a_view() {
    let slice = |axis, start| Op::from(Slice { axis, start, len: 0 });
    let x = f(&[2, 3]);
    let mut layout = x;
    for op in [slice(0, 2), slice(1, 3)] {
        let outputs = op.infer(&[layout]).unwrap();
        crate::op::check_outputs(&op, |_| Some(&x), &outputs).unwrap();
        let Outputs::Views(looks) = outputs else { panic!("a view") };
        layout = looks[0].layout;
    }
    assert_eq!(layout.elements(), 0);
}

#[test]
fn errors_say_what_was_found_and_what_was_expected() {
    let turned = f(&[3, 2]).permute(&[1, 0]).unwrap();
    let random =
        |distribution| Random { distribution, shape: dims(&[2]), key: 0, counter: 0 }.into();
    let max = Reduce { kind: Reduction::Max, axes: dims(&[0]), keep_dims: false }.into();
    let pool = |kernel, padding| AvgPool2d(Pool2d { kernel, stride: [1, 1], padding }).into();
    let norm = |eps| BatchNorm { momentum: 0.1, eps }.into();
    let c = f(&[3]);
    // Op, layouts of the inputs, and message.
    let cases: Vec<(Op, Vec<Layout>, &str)> = vec![
        (Unary::Relu.into(), vec![], "relu: takes 1 inputs, 0 were given"),
        (Unary::Exp.into(), vec![int(&[2])], "exp: x is i32[2], expected f32"),
        (Binary::Sub.into(), vec![f(&[2]), f(&[3])], "sub: a [2] and b [3] do not broadcast"),
        (
            MatMul.into(),
            vec![f(&[2]), f(&[2, 2])],
            "matmul: a is f32[2] of rank 1, expected at least 2",
        ),
        (
            MatMul.into(),
            vec![f(&[2, 3]), f(&[2, 3])],
            "matmul: a [2, 3] has 3 columns but b [2, 3] has 2 rows",
        ),
        (
            MatMul.into(),
            vec![f(&[2, 3, 3]), f(&[4, 3, 3])],
            "matmul: leading dimensions of a [2, 3, 3] and b [4, 3, 3] do not broadcast",
        ),
        (
            CONV.into(),
            vec![f(&[1, 2, 4, 4]), f(&[1, 3, 3, 3])],
            "conv2d: x f32[1, 2, 4, 4] has 2 channels but weight f32[1, 3, 3, 3] takes 3",
        ),
        (
            CONV.into(),
            vec![f(&[1, 3, 4, 2]), f(&[1, 3, 3, 3])],
            "conv2d: width 2 with padding 0 is smaller than the kernel of 3",
        ),
        (
            Conv2d::new([1, 1], [0, usize::MAX / 2]).into(),
            vec![f(&[1, 3, 4, 2]), f(&[1, 3, 3, 3])],
            "conv2d: width 2 with padding 9223372036854775807 is more than 9223372036854775807",
        ),
        (
            Conv2d::new([0, 1], [0, 0]).into(),
            vec![f(&[1, 3, 4, 4]), f(&[1, 3, 3, 3])],
            "conv2d: kernel height 3 and stride 0, expected at least 1 each",
        ),
        (
            Conv2d { dilation: [1, 0], ..CONV }.into(),
            vec![f(&[1, 3, 4, 4]), f(&[1, 3, 3, 3])],
            "conv2d: dilation width 0, expected at least 1",
        ),
        (
            Conv2d { dilation: [1, 2], ..CONV }.into(),
            vec![f(&[1, 3, 4, 4]), f(&[1, 3, 3, 3])],
            "conv2d: width 4 with padding 0 is smaller than the kernel of 5",
        ),
        (
            Conv2d { groups: 0, ..CONV }.into(),
            vec![f(&[1, 3, 4, 4]), f(&[1, 3, 3, 3])],
            "conv2d: groups 0, expected at least 1",
        ),
        (
            Conv2d { groups: 3, ..CONV }.into(),
            vec![f(&[1, 3, 4, 4]), f(&[4, 1, 3, 3])],
            "conv2d: weight f32[4, 1, 3, 3] gives 4 channels, expected a multiple of 3 groups",
        ),
        (
            Conv2d { groups: 2, ..CONV }.into(),
            vec![f(&[1, 3, 4, 4]), f(&[4, 1, 3, 3])],
            "conv2d: x f32[1, 3, 4, 4] has 3 channels but weight f32[4, 1, 3, 3] takes 2",
        ),
        (
            Conv2dGradInput { conv: CONV, input: [9, 8] }.into(),
            vec![f(&[2, 5, 4, 6]), f(&[5, 3, 3, 3])],
            "conv2d_grad_input: dy is f32[2, 5, 4, 6], expected height and width [5, 6]",
        ),
        (
            MaxPool2dGrad { pool: POOL, input: [8, 10] }.into(),
            vec![int(&[2, 3, 4, 4]), f(&[2, 3, 4, 4])],
            "max_pool2d_grad: dy is f32[2, 3, 4, 4], expected height and width [4, 5]",
        ),
        (
            norm(-1.0),
            vec![f(&[2, 3]), c, c, c, c],
            "batch_norm: eps is -1, expected a finite number of at least 0",
        ),
        (
            norm(f32::NAN),
            vec![f(&[2, 3]), c, c, c, c],
            "batch_norm: eps is NaN, expected a finite number of at least 0",
        ),
        (
            norm(0.1),
            vec![f(&[2, 3]), c, f(&[4]), c, c],
            "batch_norm: beta is f32[4], expected f32[3]",
        ),
        (
            norm(0.1),
            vec![f(&[0, 3]), c, c, c, c],
            "batch_norm: x is f32[0, 3] and has no value of each channel, but training needs at least 2 values for a deviation: \
             take a larger batch or larger images, or evaluate with Mode::Infer",
        ),
        (
            norm(0.1),
            vec![f(&[1, 3, 1, 1]), c, c, c, c],
            "batch_norm: x is f32[1, 3, 1, 1] and has 1 value of each channel, but training needs at least 2 values for a \
             deviation: take a larger batch or larger images, or evaluate with Mode::Infer",
        ),
        (
            norm(0.1),
            vec![turned, c, c, c, c],
            "batch_norm: x f32[2, 3] has strides [1, 2], expected contiguous",
        ),
        (
            pool([2, 2], [0, 2]),
            vec![f(&[1, 1, 4, 4])],
            "avg_pool2d: padding [0, 2] is more than half the kernel [2, 2]",
        ),
        (
            pool([5, 2], [0, 0]),
            vec![f(&[1, 1, 4, 4])],
            "avg_pool2d: height 4 with padding 0 is smaller than the kernel of 5",
        ),
        (
            pool([1, 1], [0, 0]),
            vec![f(&[1, 1, 0, 4])],
            "avg_pool2d: image of size [0, 4], expected at least [1, 1]",
        ),
        (
            sum(&[2], false),
            vec![f(&[2, 3])],
            "sum: axis 2 is out of range for x f32[2, 3], expected below 2",
        ),
        (sum(&[1, 1], false), vec![f(&[2, 3])], "sum: axis 1 is given twice in [1, 1]"),
        (
            max,
            vec![f(&[0, 3])],
            "max: x f32[0, 3] has no elements along [0] to take the largest of",
        ),
        (Softmax.into(), vec![f(&[])], "softmax: x is f32[] of rank 0, expected at least 1"),
        (
            CrossEntropy::default().into(),
            vec![f(&[4, 3]), int(&[3])],
            "cross_entropy: labels is i32[3], expected i32[4]",
        ),
        (
            Reshape { shape: dims(&[5]) }.into(),
            vec![f(&[2, 3])],
            "reshape: x f32[2, 3] has 6 elements, [5] has 5",
        ),
        (
            Reshape { shape: dims(&[6]) }.into(),
            vec![turned],
            "reshape: x f32[2, 3] has strides [1, 2], expected contiguous",
        ),
        (
            Permute { axes: dims(&[0, 0]) }.into(),
            vec![f(&[2, 3])],
            "permute: axes [0, 0] are not an order of the 2 dimensions of x f32[2, 3]",
        ),
        (
            Slice { axis: 0, start: 1, len: 2 }.into(),
            vec![f(&[2, 3])],
            "slice: 2 entries from 1 on are not all in axis 0 of x f32[2, 3]",
        ),
        (
            Broadcast { shape: dims(&[3, 3]) }.into(),
            vec![f(&[2, 3])],
            "broadcast: x f32[2, 3] does not broadcast to [3, 3]",
        ),
        (Concat { axis: 0 }.into(), vec![], "concat: takes at least 1 input, 0 were given"),
        (
            Concat { axis: 0 }.into(),
            vec![f(&[2, 3]), f(&[2, 4])],
            "concat: x1 is f32[2, 4], expected f32[2, 3] except along axis 0",
        ),
        (
            Gather { axis: 0 }.into(),
            vec![f(&[2]), f(&[2])],
            "gather: index is f32[2], expected i32",
        ),
        (
            ScatterAdd { axis: 0, size: 5 }.into(),
            vec![f(&[2]), int(&[3])],
            "scatter_add: y f32[2] has 2 entries along axis 0 but index has 3",
        ),
        (
            random(Distribution::Bernoulli { p: 1.5 }),
            vec![],
            "bernoulli: p is 1.5, expected between 0 and 1",
        ),
        (
            random(Distribution::Uniform { low: 1.0, high: 0.5 }),
            vec![],
            "uniform: high is 0.5, expected a finite number of at least 1",
        ),
        (
            random(Distribution::Normal { mean: f32::INFINITY, std: 1.0 }),
            vec![],
            "normal: mean is inf, expected a finite number",
        ),
        (
            Where.into(),
            vec![f(&[2]), f(&[3]), f(&[1])],
            "where: mask [2], a [3] and b [1] do not broadcast",
        ),
        (
            Clamp { min: 1.0, max: 0.5 }.into(),
            vec![f(&[2])],
            "clamp: min is 1 and max 0.5, expected min to be at most max",
        ),
        (
            ArgReduce { kind: Extreme::Max, axis: 0, keep_dims: false }.into(),
            vec![f(&[0, 3])],
            "argmax: x f32[0, 3] has no elements along axis 0 to choose from",
        ),
        (
            CumSum { axis: 1, reverse: false }.into(),
            vec![f(&[3])],
            "cumsum: axis 1 is out of range for x f32[3], expected below 1",
        ),
        (
            GroupNorm { groups: 2, eps: 0.1 }.into(),
            vec![f(&[1, 3]), f(&[3]), f(&[3])],
            "group_norm: x f32[1, 3] has 3 channels, which 2 groups do not divide",
        ),
        (
            Resize { axis: 0, size: 0, sampling: Interpolation::Nearest, transposed: false }.into(),
            vec![f(&[3])],
            "resize: x f32[3] is resized to 0 along axis 0, expected sizes from 1 to 2147483647",
        ),
        (
            CrossEntropy { label_smoothing: 1.5, ignore_index: -1 }.into(),
            vec![f(&[4, 3]), int(&[4])],
            "cross_entropy: label_smoothing is 1.5, expected between 0 and 1",
        ),
        (
            Accumulate.into(),
            vec![f(&[2]), f(&[3])],
            "accumulate: x is f32[3], expected f32[2] like acc",
        ),
    ];
    for (op, inputs, message) in cases {
        assert_eq!(op.infer(&inputs).unwrap_err().to_string(), message);
    }
}

#[test]
fn sizes_beyond_memory_are_errors() {
    let half = usize::MAX / 2;
    let cases: [(Op, Vec<Layout>); 10] = [
        (Fill { shape: dims(&[usize::MAX, usize::MAX]), value: 0.0 }.into(), vec![]),
        (Fill { shape: dims(&[half]), value: 0.0 }.into(), vec![]),
        (Fill { shape: dims(&[half, half, 0]), value: 0.0 }.into(), vec![]),
        (Pad { axis: 0, before: usize::MAX, after: 1 }.into(), vec![f(&[1])]),
        (ScatterAdd { axis: 0, size: usize::MAX }.into(), vec![f(&[1, 4]), int(&[1])]),
        (Broadcast { shape: dims(&[half, half]) }.into(), vec![f(&[1])]),
        (Reshape { shape: dims(&[half, half, 4]) }.into(), vec![f(&[half, half])]),
        (MatMul.into(), vec![f(&[half, 1]), f(&[1, half])]),
        (
            Conv2dGradInput { conv: CONV, input: [usize::MAX; 2] }.into(),
            vec![f(&[1, 1, 1, 1]), f(&[1, 1, 1, 1])],
        ),
        (
            MaxPool2dGrad { pool: POOL, input: [1 << 31, 1 << 31] }.into(),
            vec![int(&[1, 1, 1, 1]), f(&[1, 1, 1, 1])],
        ),
    ];
    for (op, inputs) in cases {
        assert!(op.infer(&inputs).is_err(), "{op:?}");
    }
}

/// Inference of any inputs returns outputs with a finite number of flops, or an error. An overflow
/// would panic here, because tests are built with overflow checks.
#[test]
fn nothing_panics_whatever_the_inputs() {
    let (ops, mut draw) = (samples::each(), Draw::new(1, Sizes::Few));
    let mut accepted = BTreeSet::new();
    for _ in 0..1_000_000 {
        let like = draw.below(ops.len());
        let (op, inputs) = draw.absurd(&ops[like]);
        let Ok(outputs) = op.infer(&inputs) else { continue };
        accepted.insert(op.name().to_owned());
        let layouts = layouts(&inputs, &outputs);
        let flops = op.flops(&inputs, &layouts);
        assert!(flops.is_finite() && flops >= 0.0, "{op:?} of {inputs:?} is {flops} flops");
    }
    assert_eq!(accepted.len(), ops.len(), "only these were accepted: {accepted:?}");
}

#[test]
fn ops_have_attributes_where_they_can_be_text() {
    for op in samples::each() {
        assert_eq!(op.attributes().is_some(), cfg!(feature = "serde"), "{op:?}");
    }
}
