//! Every op, over a grid of shapes: short rows and long ones, few and many, odd sizes, none at all, and
//! operands that are turned, repeated or a part of more.

use remat::ops::{Binary, Conv2d, Distribution, Op, Pool2d, Reduction, Unary};
use remat::{DType, Dims, HostTensor, Layout};

/// An op and what it is given.
#[derive(Clone, Debug)]
pub struct Sample {
    pub op: Op,
    pub inputs: Vec<Input>,
}

/// A tensor as it is stored, and as the op looks at it.
#[derive(Clone, Debug)]
pub struct Input {
    pub stored: Layout,
    pub seen: Layout,
    /// Integers are below this.
    below: usize,
}

impl Input {
    /// Elements for all of the storage, if they are integers.
    pub fn numbers(&self) -> Option<HostTensor> {
        let below = self.below.max(1);
        let numbers = (0..self.stored.elements()).map(|i| (i.wrapping_mul(7919) % below) as i32);
        let host = || HostTensor::i32(*self.stored.shape(), numbers.collect()).expect("as many");
        (self.stored.dtype() == DType::I32).then(host)
    }

    fn view(mut self, look: impl FnOnce(&Layout) -> Option<Layout>) -> Self {
        self.seen = look(&self.seen).expect("a view");
        self
    }
}

fn stored(dtype: DType, shape: &[usize], below: usize) -> Input {
    let stored = Layout::contiguous(dtype, Dims::new(shape));
    Input { stored, seen: stored, below }
}

fn f(shape: &[usize]) -> Input {
    stored(DType::F32, shape, 0)
}

fn ints(shape: &[usize], below: usize) -> Input {
    stored(DType::I32, shape, below)
}

/// The last two dimensions change places.
fn turned(shape: &[usize]) -> Input {
    let mut axes: Vec<usize> = (0..shape.len()).collect();
    axes.swap(shape.len() - 2, shape.len() - 1);
    let swapped: Vec<usize> = axes.iter().map(|&axis| shape[axis]).collect();
    f(&swapped).view(|x| x.permute(&axes))
}

fn repeated(from: &[usize], to: &[usize]) -> Input {
    f(from).view(|x| x.broadcast_to(&Dims::new(to)))
}

/// All but the first and the last entry of each row of more.
fn inside(shape: &[usize]) -> Input {
    let (last, mut more) = (shape.len() - 1, shape.to_vec());
    more[last] += 2;
    f(&more).view(|x| x.slice(last, 1, shape[last]))
}

const SHAPES: [&[usize]; 12] = [
    &[],
    &[1],
    &[0],
    &[3, 0, 2],
    &[7],
    &[400_003],
    &[2, 200_001],
    &[200_001, 2],
    &[1023, 512],
    &[31, 33, 513],
    &[5001, 1, 16, 7],
    &[3, 1, 2, 5, 1, 20_000],
];

/// Of one shape, in every arrangement.
fn arranged(shape: &[usize]) -> Vec<Input> {
    let mut all = vec![f(shape)];
    if let Some(last) = shape.len().checked_sub(1) {
        let mut one = shape.to_vec();
        one[last] = 1;
        all.extend([inside(shape), repeated(&one, shape), repeated(&shape[last..], shape)]);
    }
    if shape.len() > 1 {
        all.push(turned(shape));
    }
    all
}

/// The same axes, joined in every way of note.
fn axes_of(rank: usize) -> Vec<Vec<usize>> {
    let mut all = vec![(0..rank).collect(), vec![]];
    all.extend((0..rank).map(|axis| vec![axis]));
    if rank > 2 {
        all.push((0..rank).filter(|axis| axis % 2 == 0).collect());
    }
    all
}

/// Everything. Large ones have a few MiB.
pub fn samples() -> Vec<Sample> {
    let mut all = Vec::new();
    let mut add = |op: Op, inputs: Vec<Input>| all.push(Sample { op, inputs });
    elementwise(&mut add);
    products(&mut add);
    norms(&mut add);
    pools(&mut add);
    reductions(&mut add);
    rows(&mut add);
    moves(&mut add);
    updates(&mut add);
    all
}

fn elementwise(add: &mut impl FnMut(Op, Vec<Input>)) {
    let large = [1023, 512];
    for function in [
        Unary::Neg,
        Unary::Exp,
        Unary::Log,
        Unary::Sqrt,
        Unary::Recip,
        Unary::Square,
        Unary::Tanh,
        Unary::Sigmoid,
    ] {
        add(Op::Unary(function), vec![f(&large)]);
        add(Op::Unary(function), vec![turned(&large)]);
    }
    for function in [
        Binary::Sub,
        Binary::Mul,
        Binary::Div,
        Binary::Maximum,
        Binary::Greater,
        Binary::ReluGrad,
        Binary::TanhGrad,
        Binary::SigmoidGrad,
    ] {
        add(Op::Binary(function), vec![f(&large), f(&large)]);
        add(Op::Binary(function), vec![turned(&large), f(&[1])]);
    }
    for shape in SHAPES {
        for x in arranged(shape) {
            add(Op::Unary(Unary::Relu), vec![x.clone()]);
            add(Op::Affine { scale: 2.0, shift: 1.0 }, vec![x.clone()]);
            add(Op::Binary(Binary::Add), vec![x.clone(), f(shape)]);
            add(Op::Binary(Binary::Add), vec![f(&[]), x]);
        }
    }
}

fn products(add: &mut impl FnMut(Op, Vec<Input>)) {
    for ([m, k, n], batch, shared) in [
        ([1, 1, 1], 1, false),
        ([700, 800, 900], 1, false),
        ([1, 300_001, 1], 1, false),
        ([300_001, 1, 3], 1, false),
        ([3, 5, 200_001], 1, false),
        ([257, 64, 33], 40, false),
        ([2, 3, 2], 30_001, true),
        ([0, 3, 4], 5, false),
        ([3, 0, 4], 5, true),
        ([300, 0, 1001], 1, false),
        ([3, 4, 0], 5, false),
        ([3, 4, 5], 0, false),
    ] {
        let of_batch = |rows, columns| [batch, rows, columns];
        let (a, mut b) = (of_batch(m, k), of_batch(k, n));
        b[0] = if shared { 1 } else { batch };
        for a in [f(&a), turned(&a), inside(&a)] {
            for b in [f(&b), turned(&b)] {
                add(Op::MatMul, vec![a.clone(), b]);
            }
        }
        add(Op::MatMul, vec![repeated(&[1, k], &[m, k]), repeated(&[k, 1], &[k, n])]);
    }
    for ([n, c, h, w], [o, kh, kw], stride, padding) in [
        ([1, 1, 1, 1], [1, 1, 1], [1, 1], [0, 0]),
        ([8, 16, 32, 32], [16, 3, 3], [1, 1], [1, 1]),
        ([8, 16, 31, 33], [17, 3, 3], [2, 2], [1, 1]),
        ([3, 3, 65, 64], [13, 7, 7], [2, 2], [3, 3]),
        ([2, 3, 128, 128], [24, 16, 16], [16, 16], [0, 0]),
        // As many phases as there are places in a window.
        ([2, 2, 128, 128], [3, 64, 64], [64, 64], [0, 0]),
        ([300, 5, 6, 4], [3, 1, 1], [1, 1], [0, 0]),
        ([40, 40, 9, 9], [40, 1, 1], [2, 2], [0, 0]),
        ([1, 2, 1, 20_001], [2, 1, 5], [1, 1], [0, 2]),
        ([1, 2, 20_001, 1], [2, 5, 1], [3, 1], [2, 0]),
        ([2, 1, 3, 3], [1, 9, 9], [1, 1], [8, 8]),
        ([2, 2, 5, 5], [2, 3, 3], [1000, 999], [500, 499]),
        ([0, 3, 8, 8], [4, 3, 3], [1, 1], [1, 1]),
        ([2, 0, 8, 8], [4, 3, 3], [1, 1], [1, 1]),
        ([2, 3, 8, 8], [0, 3, 3], [1, 1], [1, 1]),
        ([2, 3, 0, 8], [4, 3, 3], [1, 1], [2, 1]),
    ] {
        let conv = Conv2d { stride, padding };
        let [rows, columns] =
            [(h, kh, 0), (w, kw, 1)].map(|(n, k, i)| (n + 2 * padding[i] - k) / stride[i] + 1);
        let (x, weight, y) = (f(&[n, c, h, w]), f(&[o, c, kh, kw]), f(&[n, o, rows, columns]));
        add(Op::Conv2d(conv), vec![x.clone(), weight.clone()]);
        add(Op::Conv2dGradInput { conv, input: [h, w] }, vec![y.clone(), weight]);
        add(Op::Conv2dGradWeight { conv, kernel: [kh, kw] }, vec![x, y]);
    }
}

fn norms(add: &mut impl FnMut(Op, Vec<Input>)) {
    for shape in [
        &[2, 3][..],
        &[1, 1, 1],
        &[2048, 512],
        &[64, 16_384],
        &[2, 400_001],
        &[400_001, 2],
        &[30_001, 33],
        &[501, 4095],
        &[3, 100_001, 3],
        &[300, 50, 7, 9],
        &[64, 64, 2, 2],
        &[8, 16, 65, 63],
        &[1, 50_001, 16],
        &[1, 50_001, 4, 5],
        &[2, 3, 401, 403],
        &[2, 0, 4],
        &[0, 100_001, 4],
    ] {
        let c = [shape[1]];
        let [gamma, beta, mean, var] = [f(&c), f(&c), f(&c), f(&c)];
        let x = f(shape);
        let inputs = vec![x.clone(), gamma.clone(), beta, mean.clone(), var.clone()];
        if x.stored.elements() > 0 || c == [0] {
            add(Op::BatchNorm { momentum: 0.1, eps: 1e-5 }, inputs.clone());
        }
        add(Op::BatchNormInfer { eps: 10.0 }, inputs);
        add(Op::BatchNormGrad, vec![x.clone(), gamma, mean, var, x]);
    }
}

fn pools(add: &mut impl FnMut(Op, Vec<Input>)) {
    for ([n, c, h, w], kernel, stride, padding) in [
        ([1, 1, 1, 1], [1, 1], [1, 1], [0, 0]),
        ([8, 16, 64, 65], [3, 3], [2, 2], [1, 1]),
        ([8, 16, 64, 65], [2, 5], [3, 1], [0, 2]),
        ([2, 3, 257, 255], [257, 255], [1, 1], [0, 0]),
        ([1, 2, 3, 6001], [2, 5001], [1, 7], [1, 2500]),
        ([1, 2, 6001, 3], [5001, 2], [7, 1], [2500, 1]),
        ([30_001, 3, 2, 2], [2, 2], [2, 2], [1, 1]),
        // Windows far larger than what they see.
        ([2, 3, 2, 1], [1 << 20, 1 << 20], [1, 1], [1 << 19, 1 << 19]),
        ([0, 3, 8, 8], [2, 2], [2, 2], [0, 0]),
        ([3, 0, 8, 8], [2, 2], [2, 2], [0, 0]),
    ] {
        let pool = Pool2d { kernel, stride, padding };
        let [rows, columns] =
            [(h, 0), (w, 1)].map(|(n, i)| (n + 2 * padding[i] - kernel[i]) / stride[i] + 1);
        let (x, y) = (f(&[n, c, h, w]), f(&[n, c, rows, columns]));
        // Place 0 is in all windows of an image of one place only, but no device minds.
        let argmax = ints(&[n, c, rows, columns], h * w);
        add(Op::MaxPool2d(pool), vec![x.clone()]);
        add(Op::MaxPool2dGrad { pool, input: [h, w] }, vec![argmax, y.clone()]);
        add(Op::AvgPool2d(pool), vec![x]);
        add(Op::AvgPool2dGrad { pool, input: [h, w] }, vec![y]);
    }
}

fn reductions(add: &mut impl FnMut(Op, Vec<Input>)) {
    let mut reduce = |x: Input, axes: &[usize], keep_dims| {
        let joined: usize = axes.iter().map(|&axis| x.seen.shape()[axis]).product();
        for kind in [Reduction::Sum, Reduction::Mean, Reduction::Max] {
            // There is no largest of none.
            if kind != Reduction::Max || joined > 0 {
                add(Op::Reduce { kind, axes: Dims::new(axes), keep_dims }, vec![x.clone()]);
            }
        }
    };
    for (i, shape) in SHAPES.into_iter().enumerate() {
        for x in arranged(shape) {
            for axes in axes_of(shape.len()) {
                reduce(x.clone(), &axes, i % 2 == 0);
            }
        }
    }
    for shape in [[4096, 1023], [1024, 4095], [300, 4097], [200_001, 9], [63, 70_001], [1, 1 << 21]]
    {
        for axes in [&[0][..], &[1], &[0, 1]] {
            reduce(f(&shape), axes, false);
            reduce(turned(&shape), axes, true);
        }
    }
}

fn rows(add: &mut impl FnMut(Op, Vec<Input>)) {
    for [n, length] in [
        [1, 1],
        [1000, 1001],
        [3, 300_001],
        [300_001, 3],
        [1, 1 << 20],
        [1 << 19, 1],
        [0, 5],
        [5, 0],
    ] {
        let x = f(&[n, length]);
        add(Op::Softmax, vec![x.clone()]);
        add(Op::LogSoftmax, vec![x.clone()]);
        add(Op::SoftmaxGrad, vec![x.clone(), x.clone()]);
        add(Op::LogSoftmaxGrad, vec![x.clone(), x.clone()]);
        // There is no label among no classes.
        if length > 0 {
            let labels = ints(&[n], length);
            add(Op::CrossEntropy, vec![x.clone(), labels.clone()]);
            add(Op::CrossEntropyGrad, vec![x, labels, f(&[])]);
        }
    }
}

fn moves(add: &mut impl FnMut(Op, Vec<Input>)) {
    for shape in SHAPES {
        for x in arranged(shape) {
            add(Op::Contiguous, vec![x]);
        }
        add(Op::Fill { shape: Dims::new(shape), value: 1.5 }, vec![]);
        for distribution in [
            Distribution::Uniform { low: 0.0, high: 1.0 },
            Distribution::Normal { mean: 0.0, std: 1.0 },
            Distribution::Bernoulli { p: 0.5 },
        ] {
            let shape = Dims::new(shape);
            add(Op::Random { distribution, shape, key: 1, counter: 2 }, vec![]);
        }
        for axis in 0..shape.len() {
            add(Op::Pad { axis, before: 1, after: 2 }, vec![f(shape)]);
            add(Op::Concat { axis }, vec![f(shape), f(shape), f(shape)]);
            let (size, mut taken) = (shape[axis], shape.to_vec());
            for n in [0, 5, 50_001] {
                taken[axis] = n;
                let elements: usize = taken.iter().product();
                if elements <= 2_000_000 && (size > 0 || n == 0) {
                    add(Op::Gather { axis }, vec![f(shape), ints(&[n], size)]);
                    add(Op::ScatterAdd { axis, size }, vec![f(&taken), ints(&[n], size)]);
                }
            }
        }
    }
    add(Op::Concat { axis: 1 }, (0..100).map(|i| f(&[1000, i % 7])).collect());
    // They have no kernel, and are here to be told apart from what was forgotten.
    let x = f(&[4, 6]);
    add(Op::Reshape { shape: Dims::new(&[24]) }, vec![x.clone()]);
    add(Op::Permute { axes: Dims::new(&[1, 0]) }, vec![x.clone()]);
    add(Op::Slice { axis: 0, start: 1, len: 2 }, vec![x.clone()]);
    add(Op::Broadcast { shape: Dims::new(&[3, 4, 6]) }, vec![x]);
}

fn updates(add: &mut impl FnMut(Op, Vec<Input>)) {
    let step = Op::SgdMomentum { lr: 0.1, momentum: 0.9, weight_decay: 1e-4 };
    for shape in SHAPES {
        add(step.clone(), vec![f(shape), f(shape), f(shape)]);
        for x in arranged(shape) {
            add(Op::Accumulate, vec![f(shape), x]);
        }
    }
}
