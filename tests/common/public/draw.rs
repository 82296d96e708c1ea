//! Strategies that draw programs: the acts and operands, and how often each one comes.

use super::program::{
    Act, Calc, Data, Distribution, Gradients, Pick, Program, Segment, Update, Window,
};
use proptest::prelude::*;
use remat::unstable::ops::{Binary, Reduction, Unary};

/// Programs of mostly one thread and small tensors. A few have large tensors, which kernels share
/// among threads.
pub fn program(most_acts: usize) -> impl Strategy<Value = Program> {
    let small = (acts(most_acts, shape().boxed()), Just(4096usize));
    let large = (acts(1 + most_acts / 3, large_shape().boxed()), Just(100_000usize));
    let deep = (deep(3 * most_acts), Just(4096usize));
    let both = prop_oneof![12 => small, 1 => large, 1 => deep];
    let beside = prop_oneof![12 => Just(vec![]), 1 => acts(1 + most_acts / 2, shape().boxed())];
    (both, beside, prop::bool::weighted(0.08)).prop_map(
        |((acts, most_elements), beside, cancels)| Program { acts, beside, most_elements, cancels },
    )
}

/// Programs of one thread that do the same each time.
pub fn deterministic(most_acts: usize) -> impl Strategy<Value = Program> {
    program(most_acts).prop_map(|program| Program { beside: vec![], cancels: false, ..program })
}

/// Programs of one thread with small tensors.
pub fn small(most_acts: usize) -> impl Strategy<Value = Program> {
    acts(most_acts, shape().boxed()).prop_map(|acts| Program {
        acts,
        beside: vec![],
        most_elements: 2048,
        cancels: false,
    })
}

/// Acts that make long chains with skips. All values have one size, and most are deleted, so that a
/// read of a remaining value may need all its history.
fn deep(most: usize) -> impl Strategy<Value = Vec<Act>> {
    let near = || 0..16usize;
    let calc = prop_oneof![
        3 => unary().prop_map(|f| Calc::Unary(f, 0)),
        6 => (binary(), near()).prop_map(|(f, x)| Calc::Binary(f, 0, x)),
        1 => near().prop_map(|x| Calc::Affine { x, scale: 0.5, shift: 0.1 }),
    ];
    let act = prop_oneof![
        20 => calc.prop_map(Act::Calc),
        14 => (1..16usize).prop_map(Act::Del),
        2 => near().prop_map(Act::DropNow),
        1 => near().prop_map(Act::Get),
    ];
    let acts = prop::collection::vec(act, most / 2..=most);
    (64..400usize, seed(), acts).prop_map(|(n, seed, acts)| {
        let put = Act::Put { data: Data { shape: vec![n], seed }, leaf: false };
        std::iter::once(put).chain(acts).collect()
    })
}

fn acts(most: usize, shapes: BoxedStrategy<Vec<usize>>) -> impl Strategy<Value = Vec<Act>> {
    prop::collection::vec(act(shapes), most / 4..=most)
}

/// Sizes, often the same few so that shapes match, and in rare cases 0.
fn size() -> impl Strategy<Value = usize> {
    prop_oneof![
        40 => prop::sample::select(vec![1usize, 2, 3, 4, 8]),
        20 => 1..12usize,
        8 => prop::sample::select(vec![15usize, 16, 17, 31, 32, 33, 63, 64, 65]),
        1 => Just(0usize),
    ]
}

fn shape() -> impl Strategy<Value = Vec<usize>> {
    let vec = prop::collection::vec;
    prop_oneof![
        1 => Just(vec![]),
        4 => (1..900usize).prop_map(|n| vec![n]),
        2 => vec(size(), 1),
        8 => vec(size(), 2),
        3 => (1..6usize, 100..600usize).prop_map(|(rows, columns)| vec![rows, columns]),
        1 => (100..600usize, 1..4usize).prop_map(|(rows, columns)| vec![rows, columns]),
        3 => vec(size(), 3),
        6 => (1..4usize, 1..6usize, 3..11usize, 3..11usize).prop_map(|(n, c, h, w)| vec![n, c, h, w]),
        1 => prop::collection::vec(0..4usize, 4..=6),
    ]
}

fn large_shape() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![
        2 => (33_000..60_000usize).prop_map(|n| vec![n]),
        2 => (1..5usize, 9_000..20_000usize).prop_map(|(rows, columns)| vec![rows, columns]),
        2 => (9_000..20_000usize, 1..5usize).prop_map(|(rows, columns)| vec![rows, columns]),
        3 => (100..300usize, 100..300usize).prop_map(|(rows, columns)| vec![rows, columns]),
        3 => (1..5usize, 3..9usize, 30..50usize, 30..50usize)
            .prop_map(|(n, c, h, w)| vec![n, c, h, w]),
        1 => shape(),
    ]
}

/// Picks, mostly of new tensors, as in usual programs.
fn pick() -> impl Strategy<Value = Pick> {
    prop_oneof![3 => 0..4usize, 2 => 0..64usize]
}

fn seed() -> impl Strategy<Value = u64> {
    0..1000u64
}

fn data(shapes: BoxedStrategy<Vec<usize>>) -> impl Strategy<Value = Data> {
    (shapes, seed()).prop_map(|(shape, seed)| Data { shape, seed })
}

fn window() -> impl Strategy<Value = Window> {
    let pair = |range: std::ops::Range<usize>| [range.clone(), range];
    (pair(1..5), pair(1..4), pair(0..3)).prop_map(|(kernel, stride, padding)| Window {
        kernel,
        stride,
        padding,
    })
}

fn unary() -> impl Strategy<Value = Unary> {
    use Unary::{Exp, Gelu, Log, Neg, Recip, Relu, Sigmoid, Sqrt, Square, Tanh};
    // Functions that keep values small come most often, or all values would soon be infinite.
    prop_oneof![
        6 => prop::sample::select(vec![Neg, Relu, Tanh, Sigmoid, Gelu]),
        2 => prop::sample::select(vec![Exp, Square]),
        1 => prop::sample::select(vec![Log, Sqrt, Recip]),
    ]
}

fn binary() -> impl Strategy<Value = Binary> {
    use Binary::{Add, Div, Gt, Maximum, Mul, ReluGrad, SigmoidGrad, Sub, TanhGrad};
    prop_oneof![
        8 => prop::sample::select(vec![Add, Sub, Mul, Maximum]),
        2 => prop::sample::select(vec![Gt, ReluGrad, TanhGrad, SigmoidGrad]),
        1 => Just(Div),
    ]
}

fn calc(shapes: BoxedStrategy<Vec<usize>>) -> impl Strategy<Value = Calc> {
    let reduction = prop::sample::select(vec![Reduction::Sum, Reduction::Mean, Reduction::Max]);
    let from = prop::sample::select(vec![
        Distribution::Uniform,
        Distribution::Normal,
        Distribution::Bernoulli,
    ]);
    let elementwise = prop_oneof![
        8 => (unary(), pick()).prop_map(|(f, x)| Calc::Unary(f, x)),
        8 => (binary(), pick(), pick()).prop_map(|(f, a, b)| Calc::Binary(f, a, b)),
        2 => (pick(), -1.5..1.5f32, -1.0..1.0f32)
            .prop_map(|(x, scale, shift)| Calc::Affine { x, scale, shift }),
        1 => pick().prop_map(Calc::Contiguous),
        2 => (pick(), 0.0..=1.0f32).prop_map(|(x, p)| Calc::Dropout { x, p }),
    ];
    let networks = prop_oneof![
        8 => (pick(), pick(), any::<[bool; 2]>(), size())
            .prop_map(|(a, b, turned, columns)| Calc::MatMul { a, b, turned, columns }),
        6 => (pick(), prop::option::of(pick()), 1..5usize, window(), seed()).prop_map(
            |(x, weight, channels, window, seed)| Calc::Conv { x, weight, channels, window, seed }
        ),
        5 => (pick(), pick(), 0.0..1.0f32, any::<bool>()).prop_map(
            |(x, vectors, momentum, keeps)| Calc::BatchNorm { x, vectors, momentum, keeps }
        ),
        1 => (pick(), pick()).prop_map(|(x, vectors)| Calc::BatchNormInfer { x, vectors }),
        3 => (pick(), window()).prop_map(|(x, window)| Calc::MaxPool { x, window }),
        2 => (pick(), window()).prop_map(|(x, window)| Calc::AvgPool { x, window }),
        2 => pick().prop_map(Calc::Softmax),
        2 => pick().prop_map(Calc::LogSoftmax),
        2 => (pick(), pick()).prop_map(|(x, vectors)| Calc::LayerNorm { x, vectors }),
        2 => (pick(), seed()).prop_map(|(logits, seed)| Calc::CrossEntropy { logits, seed }),
        4 => (pick(), reduction, 0..64usize, any::<bool>())
            .prop_map(|(x, kind, axes, keep_dims)| Calc::Reduce { x, kind, axes, keep_dims }),
    ];
    let moves = prop_oneof![
        4 => (prop::collection::vec(pick(), 1..4), 0..6usize)
            .prop_map(|(parts, axis)| Calc::Concat { parts, axis }),
        2 => (pick(), 0..6usize, 0..4usize, 0..4usize)
            .prop_map(|(x, axis, before, after)| Calc::Pad { x, axis, before, after }),
        2 => (pick(), 0..6usize, 0..9usize, seed())
            .prop_map(|(x, axis, count, seed)| Calc::Gather { x, axis, count, seed }),
        2 => (pick(), 0..6usize, 1..9usize, seed())
            .prop_map(|(x, axis, size, seed)| Calc::ScatterAdd { x, axis, size, seed }),
    ];
    let views = prop_oneof![
        3 => (pick(), 0..64usize).prop_map(|(x, how)| Calc::Reshape { x, how }),
        3 => (pick(), 0..64usize).prop_map(|(x, how)| Calc::Permute { x, how }),
        4 => (pick(), 0..6usize, 0..64usize, 0..64usize)
            .prop_map(|(x, axis, start, len)| Calc::Slice { x, axis, start, len }),
        2 => (pick(), 1..5usize).prop_map(|(x, times)| Calc::Broadcast { x, times }),
    ];
    let sources = prop_oneof![
        1 => (shapes.clone(), -1.0..1.0f32).prop_map(|(shape, value)| Calc::Full { shape, value }),
        2 => (shapes, from).prop_map(|(shape, from)| Calc::Random { shape, from }),
    ];
    let samples = (0..1000usize, any::<u64>(), pick()).prop_map(|(op, seed, from)| Calc::Sample {
        op,
        seed,
        from,
    });
    prop_oneof![8 => elementwise, 10 => networks, 3 => moves, 4 => views, 1 => sources, 2 => samples]
}

fn update() -> impl Strategy<Value = Update> {
    (pick(), pick(), prop::option::of(pick())).prop_map(|(target, other, velocity)| Update {
        target,
        other,
        velocity,
    })
}

fn segment(shapes: BoxedStrategy<Vec<usize>>) -> impl Strategy<Value = Segment> {
    let gradients = prop::sample::select(vec![
        Gradients::Hold,
        Gradients::LetGo,
        Gradients::Descend,
        Gradients::DescendAll,
        Gradients::DescendMeanwhile,
    ]);
    let (watched, calcs) =
        (prop::collection::vec(pick(), 1..4), prop::collection::vec(calc(shapes), 1..9));
    (watched, calcs, prop::bool::weighted(0.7), gradients).prop_map(
        |(watched, calcs, lets_go, gradients)| Segment { watched, calcs, lets_go, gradients },
    )
}

fn act(shapes: BoxedStrategy<Vec<usize>>) -> impl Strategy<Value = Act> {
    let makes = prop_oneof![
        8 => (data(shapes.clone()), prop::bool::weighted(0.2))
            .prop_map(|(data, leaf)| Act::Put { data, leaf }),
        60 => calc(shapes.clone()).prop_map(Act::Calc),
        8 => segment(shapes).prop_map(Act::Tape),
        3 => pick().prop_map(Act::Clone),
    ];
    let changes = prop_oneof![
        8 => update().prop_map(Act::Update),
        3 => prop::collection::vec(update(), 1..5).prop_map(Act::UpdateAll),
        4 => (pick(), pick()).prop_map(|(target, value)| Act::Replace { target, value }),
        2 => pick().prop_map(Act::Commit),
        5 => pick().prop_map(Act::DropNow),
        1 => pick().prop_map(Act::Label),
    ];
    let looks = prop_oneof![
        6 => pick().prop_map(Act::Get),
        4 => pick().prop_map(Act::GetLater),
        3 => Just(Act::Wait),
        1 => Just(Act::Forget),
        2 => Just(Act::Sync),
        1 => Just(Act::Stats),
    ];
    prop_oneof![
        75 => makes,
        23 => changes,
        17 => looks,
        32 => pick().prop_map(Act::Del),
        4 => Just(Act::Step),
        2 => Just(Act::Cancel),
    ]
}
