//! Ops for tests.

use super::{Binary, Conv2d, Distribution, FLOAT, Op, Pool2d, Reduction, Unary};
use crate::layout::{DType, Dims, Layout, MAX_RANK};
use crate::op::{Op as _, Output, Outputs};
use std::collections::BTreeSet;

/// One of each op.
pub(crate) fn one_of_each() -> Vec<Op> {
    use Binary as B;
    use Unary as U;
    let unary =
        [U::Neg, U::Relu, U::Exp, U::Log, U::Sqrt, U::Recip, U::Square, U::Tanh, U::Sigmoid];
    let binary = [
        B::Add,
        B::Sub,
        B::Mul,
        B::Div,
        B::Maximum,
        B::Greater,
        B::ReluGrad,
        B::TanhGrad,
        B::SigmoidGrad,
    ];
    let shape = Dims::SCALAR;
    let conv = Conv2d { stride: [1, 1], padding: [0, 0] };
    let pool = Pool2d { kernel: [1, 1], stride: [1, 1], padding: [0, 0] };
    let reduce = |kind| Op::Reduce { kind, axes: shape, keep_dims: false };
    let random = |distribution| Op::Random { distribution, shape, key: 1, counter: 2 };
    let mut ops: Vec<Op> = unary.map(Op::Unary).into();
    ops.extend(binary.map(Op::Binary));
    ops.extend([
        Op::Affine { scale: 2.0, shift: 1.0 },
        Op::MatMul,
        Op::Conv2d(conv),
        Op::Conv2dGradInput { conv, input: [0, 0] },
        Op::Conv2dGradWeight { conv, kernel: [0, 0] },
        Op::BatchNorm { momentum: 0.1, eps: 0.1 },
        Op::BatchNormGrad,
        Op::BatchNormInfer { eps: 10.0 },
        Op::MaxPool2d(pool),
        Op::MaxPool2dGrad { pool, input: [0, 0] },
        Op::AvgPool2d(pool),
        Op::AvgPool2dGrad { pool, input: [0, 0] },
        reduce(Reduction::Sum),
        reduce(Reduction::Mean),
        reduce(Reduction::Max),
        Op::Softmax,
        Op::SoftmaxGrad,
        Op::LogSoftmax,
        Op::LogSoftmaxGrad,
        Op::CrossEntropy,
        Op::CrossEntropyGrad,
        Op::Contiguous,
        Op::Reshape { shape },
        Op::Permute { axes: shape },
        Op::Slice { axis: 0, start: 0, len: 0 },
        Op::Broadcast { shape },
        Op::Pad { axis: 0, before: 0, after: 0 },
        Op::Concat { axis: 0 },
        Op::Gather { axis: 0 },
        Op::ScatterAdd { axis: 0, size: 0 },
        Op::Fill { shape, value: 1.5 },
        random(Distribution::Uniform { low: 0.0, high: 1.0 }),
        random(Distribution::Normal { mean: 0.0, std: 1.0 }),
        random(Distribution::Bernoulli { p: 0.5 }),
        Op::SgdMomentum { lr: 0.1, momentum: 0.9, weight_decay: 0.0 },
        Op::Accumulate,
    ]);
    let names: BTreeSet<&str> = ops.iter().map(|op| op.name()).collect();
    assert_eq!(names, super::names().iter().copied().collect(), "ops that are missing here");
    ops
}

const SIZES: [usize; 12] = [0, 1, 1, 2, 2, 3, 4, 8, 1 << 31, 1 << 62, usize::MAX - 1, usize::MAX];

/// Random layouts and parameters; sizes near overflow among them.
pub(crate) struct Absurd {
    state: u64,
    ops: Vec<Op>,
}

impl Absurd {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed, ops: one_of_each() }
    }

    fn below(&mut self, n: usize) -> usize {
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) as usize % n
    }

    fn size(&mut self) -> usize {
        let top = [6, 8, SIZES.len()][self.below(3)];
        SIZES[self.below(top)]
    }

    fn pair(&mut self) -> [usize; 2] {
        [self.size(), self.size()]
    }

    fn dims(&mut self) -> Dims {
        let rank = [1, 2, 4, 4, 4, MAX_RANK, self.below(MAX_RANK + 1)][self.below(7)];
        Dims::new(&(0..rank).map(|_| self.size()).collect::<Vec<_>>())
    }

    fn layout(&mut self) -> Layout {
        let dtype = [FLOAT, FLOAT, FLOAT, DType::I32, DType::U8][self.below(5)];
        let layout = Layout::contiguous(dtype, self.dims());
        match (self.below(4), layout.rank()) {
            (0, rank @ 1..) => {
                let mut axes: Vec<usize> = (0..rank).collect();
                axes.rotate_left(self.below(rank));
                layout.permute(&axes).unwrap()
            }
            (1, rank @ 1..) => layout.slice(self.below(rank), 0, 1).unwrap_or(layout),
            (2, _) => layout.broadcast_to(&self.dims()).unwrap_or(layout),
            _ => layout,
        }
    }

    /// An op, and inputs that fit it as often as not.
    pub(crate) fn op(&mut self) -> (Op, Vec<Layout>) {
        let at = self.below(self.ops.len());
        let op = self.ops[at].clone();
        let (op, fitting) = self.like(&op);
        let any = self.layout();
        let inputs = match self.below(4) {
            0 => (0..self.below(6)).map(|_| self.layout()).collect(),
            1 => vec![any; self.below(6)],
            _ => fitting,
        };
        (op, inputs)
    }

    /// A number, sometimes of no use.
    fn number(&mut self) -> f32 {
        [0.0, 0.5, 0.5, 1.0, -1.0, 1e30, f32::NAN, f32::INFINITY][self.below(8)]
    }

    /// An op with other parameters, and inputs that fit it but for their sizes.
    fn like(&mut self, op: &Op) -> (Op, Vec<Layout>) {
        let f = |shape: &[usize]| Layout::contiguous(FLOAT, Dims::new(shape));
        let int = |shape: &[usize]| Layout::contiguous(DType::I32, Dims::new(shape));
        let x = Layout::contiguous(FLOAT, self.dims());
        let shape = *x.shape();
        let (axis, size) = (self.below(shape.len() + 1), self.size());
        let along = |size| if axis < shape.len() { shape.with(axis, size) } else { shape };
        match *op {
            Op::Unary(_) => (op.clone(), vec![self.layout()]),
            Op::Affine { .. } => {
                (Op::Affine { scale: self.number(), shift: self.number() }, vec![self.layout()])
            }
            Op::Binary(_) => (op.clone(), vec![x, f(&shape[self.below(shape.len() + 1)..])]),
            Op::MatMul => {
                let ([m, k], n) = (self.pair(), self.size());
                let lead = &shape[..shape.len().min(MAX_RANK - 2)];
                (Op::MatMul, vec![f(&[lead, &[m, k]].concat()), f(&[k, n])])
            }
            Op::Conv2d(_) | Op::Conv2dGradInput { .. } | Op::Conv2dGradWeight { .. } => {
                let [[n, c], [h, w], kernel] = [(); 3].map(|()| self.pair());
                let conv = Conv2d { stride: self.pair(), padding: self.pair() };
                let (x, weight) = (f(&[n, c, h, w]), f(&[self.size(), c, kernel[0], kernel[1]]));
                let y = first(&Op::Conv2d(conv), &[x, weight]).unwrap_or(x);
                match op {
                    Op::Conv2d(_) => (Op::Conv2d(conv), vec![x, weight]),
                    Op::Conv2dGradInput { .. } => {
                        (Op::Conv2dGradInput { conv, input: [h, w] }, vec![y, weight])
                    }
                    _ => (Op::Conv2dGradWeight { conv, kernel }, vec![x, y]),
                }
            }
            Op::BatchNorm { .. } | Op::BatchNormGrad | Op::BatchNormInfer { .. } => {
                let c = f(&shape[shape.len().min(1)..shape.len().min(2)]);
                let last = if *op == Op::BatchNormGrad { x } else { c };
                let (momentum, eps) = (self.number(), self.number());
                let op = match op {
                    Op::BatchNorm { .. } => Op::BatchNorm { momentum, eps },
                    Op::BatchNormGrad => Op::BatchNormGrad,
                    _ => Op::BatchNormInfer { eps },
                };
                (op, vec![x, c, c, c, last])
            }
            Op::MaxPool2d(_)
            | Op::MaxPool2dGrad { .. }
            | Op::AvgPool2d(_)
            | Op::AvgPool2dGrad { .. } => {
                let ([n, c], input) = (self.pair(), self.pair());
                let pool =
                    Pool2d { kernel: self.pair(), stride: self.pair(), padding: self.pair() };
                let x = f(&[n, c, input[0], input[1]]);
                let y = first(&Op::AvgPool2d(pool), &[x]).unwrap_or(x);
                match op {
                    Op::MaxPool2d(_) => (Op::MaxPool2d(pool), vec![x]),
                    Op::AvgPool2d(_) => (Op::AvgPool2d(pool), vec![x]),
                    Op::AvgPool2dGrad { .. } => (Op::AvgPool2dGrad { pool, input }, vec![y]),
                    _ => (Op::MaxPool2dGrad { pool, input }, vec![int(y.shape()), y]),
                }
            }
            Op::Reduce { kind, .. } => {
                let axes = if self.below(4) == 0 { self.dims() } else { Dims::new(&[axis]) };
                (
                    Op::Reduce { kind, axes, keep_dims: self.below(2) == 0 },
                    vec![if self.below(2) == 0 { x } else { self.layout() }],
                )
            }
            Op::Softmax | Op::LogSoftmax => (op.clone(), vec![x]),
            Op::SoftmaxGrad | Op::LogSoftmaxGrad => (op.clone(), vec![x, x]),
            Op::CrossEntropy | Op::CrossEntropyGrad => {
                let [n, classes] = self.pair();
                let inputs = [f(&[n, classes]), int(&[n]), f(&[])];
                (op.clone(), inputs[..if *op == Op::CrossEntropy { 2 } else { 3 }].to_vec())
            }
            Op::Contiguous => (Op::Contiguous, vec![self.layout()]),
            Op::Reshape { .. } => {
                let mut shape = shape;
                shape.reverse();
                (Op::Reshape { shape }, vec![x])
            }
            Op::Permute { .. } => {
                let axes: Vec<usize> = (0..shape.len()).rev().collect();
                (Op::Permute { axes: Dims::new(&axes) }, vec![x])
            }
            Op::Slice { .. } => {
                (Op::Slice { axis, start: size, len: self.size() }, vec![self.layout()])
            }
            Op::Broadcast { .. } => {
                (Op::Broadcast { shape }, vec![f(&shape[self.below(shape.len() + 1)..])])
            }
            Op::Pad { .. } => (Op::Pad { axis, before: size, after: self.size() }, vec![x]),
            Op::Concat { .. } => {
                let other = Layout::contiguous(FLOAT, along(size));
                (Op::Concat { axis }, vec![x, other, x, other])
            }
            Op::Gather { .. } => (Op::Gather { axis }, vec![x, int(&[size])]),
            Op::ScatterAdd { .. } => {
                let y = Layout::contiguous(FLOAT, along(size));
                (Op::ScatterAdd { axis, size: self.size() }, vec![y, int(&[size])])
            }
            Op::Fill { .. } => (Op::Fill { shape, value: self.number() }, vec![]),
            Op::Random { distribution, .. } => {
                let [a, b] = [(); 2].map(|()| self.number());
                let distribution = match distribution {
                    Distribution::Uniform { .. } => Distribution::Uniform { low: a, high: b },
                    Distribution::Normal { .. } => Distribution::Normal { mean: a, std: b },
                    Distribution::Bernoulli { .. } => Distribution::Bernoulli { p: a },
                };
                (Op::Random { distribution, shape, key: u64::MAX, counter: u64::MAX }, vec![])
            }
            Op::SgdMomentum { .. } => {
                let [lr, momentum, weight_decay] = [(); 3].map(|()| self.number());
                (Op::SgdMomentum { lr, momentum, weight_decay }, vec![x, x, x])
            }
            Op::Accumulate => (Op::Accumulate, vec![x, x]),
        }
    }
}

/// The first output of an op, if its inputs fit.
fn first(op: &Op, inputs: &[Layout]) -> Option<Layout> {
    layouts(inputs, &op.infer(inputs).ok()?).first().copied()
}

/// The layouts of what `infer` said.
pub(crate) fn layouts(inputs: &[Layout], outputs: &Outputs) -> Vec<Layout> {
    let layout = |output: &Output| match *output {
        Output::Fresh(layout) | Output::View { layout, .. } => layout,
        Output::InPlace { input } => inputs[input],
    };
    outputs.iter().map(layout).collect()
}
