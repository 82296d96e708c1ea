//! The gradient of every op is what central differences say, also for strided and broadcast operands.

#[path = "common/device.rs"]
mod device;

use device::targets;
use remat::autograd::Tape;
use remat::op::Op as _;
use remat::ops::{Binary, Conv2d, Distribution, Op, Pool2d, Reduction, Unary};
use remat::{Error, HostTensor, Ops, Runtime, Tensor, Tensors};
use std::cell::RefCell;
use std::collections::BTreeSet;

/// Half the distance between the two points of a difference, and how far inputs stay from kinks.
const H: f32 = 1.0 / 128.0;

/// An input of a case.
enum Input {
    /// Its gradient is checked.
    Watched(HostTensor),
    /// It has none.
    Fixed(HostTensor),
}

type Function = Box<dyn Fn(&dyn Ops, &[Tensor]) -> Result<Tensor, Error>>;

struct Case {
    name: &'static str,
    inputs: Vec<Input>,
    function: Function,
}

fn case(
    name: &'static str,
    inputs: Vec<Input>,
    function: impl Fn(&dyn Ops, &[Tensor]) -> Result<Tensor, Error> + 'static,
) -> Case {
    Case { name, inputs, function: Box::new(function) }
}

/// Values in a jumbled order, evenly apart and around 0: none is nearer than `2 H` to another, or than
/// `H` to 0.
fn spread<const N: usize>(shape: [usize; N]) -> HostTensor {
    let n: usize = shape.iter().product();
    // The golden ratio of the count, made coprime, jumbles any count.
    let mut stride = (n as f64 * 0.618) as usize | 1;
    while (2..=stride).any(|d| stride.is_multiple_of(d) && n.is_multiple_of(d)) {
        stride += 2;
    }
    let step = (2.0 / n as f32).max(3.0 * H);
    let value = |i: usize| ((i * stride % n) as f32 - n as f32 / 2.0 + 0.5) * step;
    HostTensor::f32(shape, (0..n).map(value).collect()).unwrap()
}

fn x<const N: usize>(shape: [usize; N]) -> Input {
    Input::Watched(spread(shape))
}

/// The same between 0.5 and 2.5 or so.
fn positive<const N: usize>(shape: [usize; N]) -> Input {
    Input::Watched(above_zero(shape))
}

fn above_zero<const N: usize>(shape: [usize; N]) -> HostTensor {
    let values = spread(shape);
    let values = values.as_f32().unwrap();
    let lowest = values.iter().copied().fold(f32::INFINITY, f32::min);
    HostTensor::f32(shape, values.iter().map(|v| v - lowest + 0.5).collect()).unwrap()
}

/// Other values than those of `spread` of the same shape, in between them.
fn between<const N: usize>(shape: [usize; N]) -> Input {
    let mut values = spread(shape).as_f32().unwrap().to_vec();
    let n = values.len();
    let half = 0.5 * (2.0 / n as f32).max(3.0 * H);
    values.rotate_left(n / 2);
    Input::Watched(HostTensor::f32(shape, values.iter().map(|v| v + half).collect()).unwrap())
}

fn index(values: &[i32]) -> Input {
    Input::Fixed(HostTensor::i32([values.len()], values.to_vec()).unwrap())
}

fn unary(name: &'static str, unary: Unary) -> Case {
    case(name, vec![positive([2, 5])], move |ops, x| ops.run1(Op::Unary(unary), &[&x[0]]))
}

fn binary(name: &'static str, binary: Binary, a: Input, b: Input) -> Case {
    case(name, vec![a, b], move |ops, x| ops.run1(Op::Binary(binary), &[&x[0], &x[1]]))
}

fn conv(
    name: &'static str,
    image: Input,
    kernel: Input,
    stride: [usize; 2],
    pad: [usize; 2],
) -> Case {
    let conv = Conv2d { stride, padding: pad };
    case(name, vec![image, kernel], move |ops, x| ops.conv2d(&x[0], &x[1], conv))
}

fn pool(
    name: &'static str,
    max: bool,
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
) -> Case {
    let pool = Pool2d { kernel, stride, padding };
    case(name, vec![x([1, 2, 5, 6])], move |ops, x| {
        if max { ops.max_pool2d(&x[0], pool) } else { ops.avg_pool2d(&x[0], pool) }
    })
}

fn reduce(name: &'static str, kind: Reduction, axes: &'static [usize], keep_dims: bool) -> Case {
    case(name, vec![x([2, 3, 4])], move |ops, x| ops.reduce(&x[0], kind, axes, keep_dims))
}

/// An op on a transposed, a sliced and a broadcast operand.
fn strided(
    name: &'static str,
    of: impl Fn(&dyn Ops, &Tensor) -> Result<Tensor, Error> + 'static,
) -> Case {
    case(name, vec![positive([4, 3])], move |ops, x| {
        let turned = of(ops, &ops.transpose(&x[0])?)?;
        let part = of(ops, &ops.slice(&x[0], 1, 1, 2)?)?;
        let row = ops.slice(&x[0], 0, 2, 1)?;
        let wide = of(ops, &ops.broadcast(&row, &[2, 3])?)?;
        let sums = [ops.sum(&turned)?, ops.sum(&part)?, ops.sum(&wide)?];
        let sums = sums.iter().map(|s| ops.reshape(s, &[1])).collect::<Result<Vec<_>, _>>()?;
        let all = ops.concat(&sums.iter().collect::<Vec<_>>(), 0)?;
        ops.square(&all)
    })
}

fn elementwise() -> Vec<Case> {
    use Binary::{Add, Div, Maximum, Mul, Sub};
    vec![
        unary("neg", Unary::Neg),
        case("relu", vec![x([2, 5])], |ops, x| ops.relu(&x[0])),
        unary("exp", Unary::Exp),
        unary("log", Unary::Log),
        unary("sqrt", Unary::Sqrt),
        unary("recip", Unary::Recip),
        case("square", vec![x([2, 5])], |ops, x| ops.square(&x[0])),
        case("tanh", vec![x([2, 5])], |ops, x| ops.tanh(&x[0])),
        case("sigmoid", vec![x([2, 5])], |ops, x| ops.sigmoid(&x[0])),
        case("affine", vec![x([2, 5])], |ops, x| ops.affine(&x[0], -1.5, 0.25)),
        binary("add", Add, x([2, 3]), between([2, 3])),
        binary("sub", Sub, x([2, 3]), between([2, 3])),
        binary("mul", Mul, x([2, 3]), between([2, 3])),
        binary("div", Div, x([2, 3]), positive([2, 3])),
        binary("maximum", Maximum, x([2, 3]), between([2, 3])),
        binary("add a row", Add, x([4, 3]), x([3])),
        binary("sub from a row", Sub, x([3]), x([4, 3])),
        binary("mul outer", Mul, x([4, 1]), between([1, 3])),
        binary("div by a column", Div, x([4, 3]), positive([4, 1])),
        binary("div by a scalar", Div, x([4, 3]), positive([])),
        binary("maximum outer", Maximum, x([4, 1]), between([4, 3])),
        binary("add in front", Add, x([3]), x([2, 1, 3])),
        case("the same twice", vec![positive([2, 3])], |ops, x| {
            let product = ops.mul(&x[0], &x[0])?;
            ops.add(&ops.div(&product, &ops.exp(&x[0])?)?, &x[0])
        }),
        case("dropout", vec![x([4, 5])], |ops, x| {
            let op = Op::Random {
                distribution: Distribution::Bernoulli { p: 0.5 },
                shape: *x[0].shape(),
                key: 1,
                counter: 2,
            };
            ops.mul(&x[0], &ops.affine(&ops.run1(op, &[])?, 2.0, 0.0)?)
        }),
        strided("log, strided", |ops, x| ops.log(x)),
        strided("mul, strided", |ops, x| ops.mul(x, &ops.tanh(x)?)),
        strided("maximum, strided", |ops, x| ops.maximum(x, &ops.affine(x, 2.0, -1.51)?)),
        strided("affine, strided", |ops, x| ops.affine(x, 3.0, 1.0)),
        strided("softmax, strided", |ops, x| ops.square(&ops.softmax(x)?)),
    ]
}

fn products() -> Vec<Case> {
    vec![
        case("matmul", vec![x([3, 4]), between([4, 2])], |ops, x| ops.matmul(&x[0], &x[1])),
        case("matmul, transposed", vec![x([4, 3]), between([2, 4])], |ops, x| {
            ops.matmul(&ops.transpose(&x[0])?, &ops.transpose(&x[1])?)
        }),
        case("matmul, sliced", vec![x([5, 6]), between([5, 4])], |ops, x| {
            let a = ops.slice(&ops.slice(&x[0], 0, 1, 3)?, 1, 2, 4)?;
            ops.matmul(&a, &ops.slice(&ops.slice(&x[1], 0, 1, 4)?, 1, 1, 2)?)
        }),
        case("matmul, batched", vec![x([2, 3, 4]), between([2, 4, 2])], |ops, x| {
            ops.matmul(&x[0], &x[1])
        }),
        case("matmul, batched and transposed", vec![x([2, 4, 3]), between([2, 2, 4])], |ops, x| {
            ops.matmul(&ops.transpose(&x[0])?, &ops.transpose(&x[1])?)
        }),
        case("matmul, batches broadcast", vec![x([2, 1, 2, 3]), between([3, 3, 2])], |ops, x| {
            ops.matmul(&x[0], &x[1])
        }),
        case("matmul, one matrix for all", vec![x([3, 4]), between([2, 4, 2])], |ops, x| {
            ops.matmul(&x[0], &x[1])
        }),
        case("matmul with itself", vec![x([3, 3])], |ops, x| {
            ops.matmul(&x[0], &ops.transpose(&x[0])?)
        }),
        conv("conv2d", x([2, 2, 4, 5]), between([3, 2, 3, 2]), [1, 1], [0, 0]),
        conv("conv2d, stride", x([1, 2, 7, 6]), between([2, 2, 3, 3]), [2, 3], [0, 0]),
        conv("conv2d, padding", x([1, 2, 4, 4]), between([2, 2, 3, 3]), [1, 1], [1, 2]),
        conv("conv2d, both", x([2, 1, 5, 6]), between([2, 1, 3, 3]), [2, 2], [1, 1]),
        conv("conv2d, pointwise", x([2, 3, 3, 3]), between([2, 3, 1, 1]), [1, 1], [0, 0]),
        case("conv2d, strided operands", vec![x([4, 5, 2, 1]), between([3, 2, 2, 2])], |ops, x| {
            let image = ops.permute(&x[0], &[3, 2, 0, 1])?;
            let kernel = ops.permute(&x[1], &[1, 0, 3, 2])?;
            let kernel = ops.slice(&kernel, 1, 0, 2)?;
            ops.conv2d(&image, &kernel, Conv2d { stride: [1, 1], padding: [1, 1] })
        }),
    ]
}

fn norms_and_pools() -> Vec<Case> {
    let batch_norm = |ops: &dyn Ops, x: &[Tensor]| {
        let c = x[0].shape()[1];
        let [mean, var] = [ops.full(&[c], 0.5)?, ops.full(&[c], 2.0)?];
        let [y, ..] = ops.batch_norm(&x[0], [&x[1], &x[2], &mean, &var], 0.1, 1e-3)?;
        Ok(y)
    };
    let infer = |ops: &dyn Ops, x: &[Tensor]| {
        ops.batch_norm_infer(&x[0], [&x[1], &x[2], &x[3], &x[4]], 1e-3)
    };
    let statistics = || [Input::Fixed(spread([3])), Input::Fixed(above_zero([3]))];
    let with = |x: Input| {
        let [mean, var] = statistics();
        vec![x, between([3]), self::x([3]), mean, var]
    };
    vec![
        case("batch norm", vec![x([2, 3, 2, 3]), between([3]), x([3])], batch_norm),
        case("batch norm, matrix", vec![x([5, 2]), between([2]), x([2])], batch_norm),
        case("batch norm, strided", vec![x([3, 5]), between([3]), x([3])], move |ops, x| {
            let turned = ops.transpose(&x[0])?;
            batch_norm(ops, &[turned, x[1].clone(), x[2].clone()])
        }),
        case("batch norm, infer", with(x([2, 3, 2, 2])), infer),
        case("batch norm, infer, matrix", with(x([4, 3])), infer),
        pool("max pool", true, [2, 2], [2, 2], [0, 0]),
        pool("max pool, overlapping and padded", true, [3, 3], [1, 2], [1, 1]),
        pool("avg pool", false, [2, 3], [2, 3], [0, 0]),
        pool("avg pool, overlapping and padded", false, [3, 2], [2, 1], [1, 1]),
        case("global avg pool", vec![x([2, 3, 2, 3])], |ops, x| ops.global_avg_pool(&x[0])),
        case("pool of a permuted image", vec![x([3, 4, 4, 1])], |ops, x| {
            let pool = Pool2d { kernel: [2, 2], stride: [1, 1], padding: [0, 0] };
            let image = ops.permute(&x[0], &[3, 0, 1, 2])?;
            ops.add(&ops.max_pool2d(&image, pool)?, &ops.avg_pool2d(&image, pool)?)
        }),
        reduce("sum, first", Reduction::Sum, &[0], false),
        reduce("sum, last, kept", Reduction::Sum, &[2], true),
        reduce("sum, outer two", Reduction::Sum, &[2, 0], false),
        reduce("sum, none", Reduction::Sum, &[], false),
        reduce("mean, middle", Reduction::Mean, &[1], false),
        reduce("mean, all, kept", Reduction::Mean, &[0, 1, 2], true),
        reduce("max, first", Reduction::Max, &[0], true),
        reduce("max, last two", Reduction::Max, &[1, 2], false),
        reduce("max, all", Reduction::Max, &[0, 1, 2], false),
        case("reduce, strided", vec![x([3, 2, 4])], |ops, x| {
            let turned = ops.permute(&x[0], &[2, 0, 1])?;
            let sum = ops.reduce(&turned, Reduction::Sum, &[0, 2], false)?;
            let mean = ops.reduce(&turned, Reduction::Mean, &[0, 2], false)?;
            let max = ops.reduce(&turned, Reduction::Max, &[0, 2], false)?;
            ops.mul(&ops.mul(&sum, &mean)?, &max)
        }),
    ]
}

fn shapes_and_losses() -> Vec<Case> {
    vec![
        case("softmax", vec![x([3, 4])], |ops, x| ops.softmax(&x[0])),
        case("softmax, rank 3", vec![x([2, 2, 3])], |ops, x| ops.softmax(&x[0])),
        case("log softmax", vec![x([3, 4])], |ops, x| ops.log_softmax(&x[0])),
        case("cross entropy", vec![x([3, 4]), index(&[2, 0, 3])], |ops, x| {
            ops.cross_entropy(&x[0], &x[1])
        }),
        case("cross entropy, log probabilities", vec![x([3, 4]), index(&[2, 0, 3])], |ops, x| {
            Ok(ops.run(Op::CrossEntropy, &[&x[0], &x[1]])?.swap_remove(1))
        }),
        case("cross entropy, both outputs", vec![x([3, 4]), index(&[1, 1, 0])], |ops, x| {
            let both = ops.run(Op::CrossEntropy, &[&x[0], &x[1]])?;
            ops.mul(&both[0], &both[1])
        }),
        case("contiguous", vec![x([3, 4])], |ops, x| ops.contiguous(&ops.transpose(&x[0])?)),
        case("reshape", vec![x([3, 4])], |ops, x| ops.reshape(&x[0], &[2, 6])),
        case("reshape, strided", vec![x([3, 4])], |ops, x| {
            ops.reshape(&ops.transpose(&x[0])?, &[2, 6])
        }),
        case("permute", vec![x([2, 3, 4])], |ops, x| ops.permute(&x[0], &[2, 0, 1])),
        case("slice", vec![x([3, 4])], |ops, x| ops.slice(&ops.slice(&x[0], 0, 1, 2)?, 1, 0, 3)),
        case("slices that overlap", vec![x([6])], |ops, x| {
            ops.mul(&ops.slice(&x[0], 0, 0, 4)?, &ops.slice(&x[0], 0, 2, 4)?)
        }),
        case("broadcast", vec![x([3, 1])], |ops, x| ops.broadcast(&x[0], &[2, 3, 4])),
        case("pad", vec![x([2, 3])], |ops, x| ops.pad(&ops.pad(&x[0], 0, 1, 0)?, 1, 2, 3)),
        case("pad, strided", vec![x([2, 3])], |ops, x| ops.pad(&ops.transpose(&x[0])?, 0, 1, 1)),
        case("concat", vec![x([2, 3]), between([1, 3]), x([3, 2])], |ops, x| {
            ops.concat(&[&x[0], &x[1], &ops.transpose(&x[2])?, &x[0]], 0)
        }),
        case("concat of columns", vec![x([2, 3]), between([2, 1])], |ops, x| {
            ops.concat(&[&x[1], &x[0]], 1)
        }),
        case("gather", vec![x([4, 3]), index(&[2, 0, 2, 2, 1])], |ops, x| {
            ops.gather(&x[0], &x[1], 0)
        }),
        case("gather of columns", vec![x([2, 3]), index(&[2, 0])], |ops, x| {
            ops.gather(&ops.transpose(&ops.transpose(&x[0])?)?, &x[1], 1)
        }),
        case("scatter_add", vec![x([5, 2]), index(&[2, 0, 2, 2, 1])], |ops, x| {
            ops.scatter_add(&x[0], &x[1], 0, 4)
        }),
        case("scatter_add of columns", vec![x([3, 2]), index(&[3, 0, 3])], |ops, x| {
            ops.scatter_add(&ops.transpose(&x[0])?, &x[1], 1, 5)
        }),
    ]
}

/// A tape that remembers the names of what it ran.
struct Named<'a> {
    tape: &'a Tape,
    names: RefCell<BTreeSet<String>>,
}

impl Ops for Named<'_> {
    fn run(&self, op: Op, inputs: &[&Tensor]) -> Result<Tensors, Error> {
        self.names.borrow_mut().insert(op.name().to_owned());
        self.tape.run(op, inputs)
    }

    fn random_state(&self) -> (u64, u64) {
        self.tape.random_state()
    }

    fn commit(&self, x: &Tensor) -> Result<(), Error> {
        Ops::commit(self.tape, x)
    }

    fn replace(&self, target: &mut Tensor, value: &Tensor) -> Result<(), Error> {
        Ops::replace(self.tape, target, value)
    }
}

fn hosts(case: &Case) -> Vec<HostTensor> {
    let host = |input: &Input| match input {
        Input::Watched(host) | Input::Fixed(host) => host.clone(),
    };
    case.inputs.iter().map(host).collect()
}

fn put(runtime: &Runtime, hosts: &[HostTensor]) -> Vec<Tensor> {
    hosts.iter().map(|host| runtime.put(host.clone()).unwrap()).collect()
}

/// How much each element of an output counts.
fn weight(i: usize) -> f32 {
    [0.5, -1.0, 0.75, 1.25, -0.25, 1.0, -0.625][i % 7]
}

/// The weighted sum of the outputs, added up in double precision.
fn weighted_sum(runtime: &Runtime, case: &Case, hosts: &[HostTensor]) -> f64 {
    let y = (case.function)(runtime, &put(runtime, hosts)).unwrap();
    let y = runtime.get(&y).unwrap();
    let terms = y.as_f32().unwrap().iter().enumerate();
    terms.map(|(i, &y)| f64::from(weight(i)) * f64::from(y)).sum()
}

/// The gradients by the tape of all watched inputs, and the ops that ran.
fn by_tape(runtime: &Runtime, case: &Case) -> (Vec<Option<HostTensor>>, BTreeSet<String>) {
    let inputs = put(runtime, &hosts(case));
    let tape = Tape::new(runtime);
    for (tensor, input) in inputs.iter().zip(&case.inputs) {
        if matches!(input, Input::Watched(_)) {
            tape.watch(tensor);
        }
    }
    let named = Named { tape: &tape, names: RefCell::default() };
    let y = (case.function)(&named, &inputs).unwrap();
    let names = named.names.into_inner();
    let weights = (0..y.layout().elements()).map(weight).collect();
    let weights = runtime.put(HostTensor::f32(*y.shape(), weights).unwrap()).unwrap();
    let loss = tape.sum(&tape.mul(&y, &weights).unwrap()).unwrap();
    let mut gradients = tape.backward(&loss).unwrap();
    let gradients =
        inputs.iter().map(|x| gradients.take(x).map(|g| runtime.get(&g).unwrap())).collect();
    (gradients, names)
}

fn check(runtime: &Runtime, case: &Case) -> BTreeSet<String> {
    let (gradients, names) = by_tape(runtime, case);
    let mut hosts = hosts(case);
    for (i, gradient) in gradients.into_iter().enumerate() {
        let Input::Watched(original) = &case.inputs[i] else {
            assert!(gradient.is_none(), "{}: input {i} is not watched", case.name);
            continue;
        };
        let gradient = gradient.unwrap_or_else(|| panic!("{}: input {i} has none", case.name));
        assert_eq!(gradient.shape(), original.shape(), "{}: input {i}", case.name);
        let values = original.as_f32().unwrap();
        for (at, &found) in gradient.as_f32().unwrap().iter().enumerate() {
            let mut nudged = |by: f32| {
                let mut values = values.to_vec();
                values[at] += by;
                let moved = values[at];
                hosts[i] = HostTensor::f32(*original.shape(), values).unwrap();
                (weighted_sum(runtime, case, &hosts), f64::from(moved))
            };
            let ((above, right), (below, left)) = (nudged(H), nudged(-H));
            let expected = (above - below) / (right - left);
            let error = (f64::from(found) - expected).abs();
            assert!(
                error <= 2e-3 * (1.0 + expected.abs()),
                "{}: input {i}, element {at}: {found} by the tape, {expected} by differences",
                case.name
            );
        }
        hosts[i] = original.clone();
    }
    names
}

/// Checks the cases on each device. Returns the names of the ops that ran.
fn check_all(cases: Vec<Case>) -> BTreeSet<String> {
    let start = |target: device::Target| target.start(Runtime::builder().budget("1MiB").threads(1));
    let all = |runtime| cases.iter().flat_map(|case| check(&runtime, case)).collect::<Vec<_>>();
    targets().into_iter().flat_map(|target| all(start(target))).collect()
}

fn expect(names: &BTreeSet<String>, expected: &str) {
    let missing: Vec<&str> = expected.split(' ').filter(|name| !names.contains(*name)).collect();
    assert!(missing.is_empty(), "no case for {missing:?}");
}

#[test]
fn elementwise_ops() {
    let names = check_all(elementwise());
    expect(
        &names,
        "neg relu exp log sqrt recip square tanh sigmoid add sub mul div maximum affine",
    );
}

#[test]
fn products_and_convolutions() {
    expect(&check_all(products()), "matmul conv2d contiguous");
}

#[test]
fn norms_pools_and_reductions() {
    let names = check_all(norms_and_pools());
    expect(&names, "batch_norm batch_norm_infer max_pool2d avg_pool2d sum mean max");
}

#[test]
fn softmax_losses_and_shapes() {
    let names = check_all(shapes_and_losses());
    expect(
        &names,
        "softmax log_softmax cross_entropy contiguous reshape permute slice broadcast pad concat \
         gather scatter_add",
    );
}

#[test]
fn watched_results_and_steps_on_the_way_have_gradients_too() {
    let runtime = Runtime::builder().budget("1MiB").threads(1).cpu().unwrap();
    let tape = Tape::new(&runtime);
    let x = runtime.put(HostTensor::f32([2], vec![1.0, 2.0]).unwrap()).unwrap();
    let unused = runtime.put(HostTensor::scalar(1.0)).unwrap();
    tape.watch(&x);
    tape.watch(&unused);
    let y = tape.square(&x).unwrap();
    tape.watch(&y);
    let loss = tape.sum(&tape.mul(&y, &tape.affine(&y, 3.0, 0.0).unwrap()).unwrap()).unwrap();
    tape.watch(&loss);
    let mut gradients = tape.backward(&loss).unwrap();
    let mut read = |t: &Tensor| gradients.take(t).map(|g| runtime.get(&g).unwrap());
    // loss = sum(3 y^2), y = x^2
    assert_eq!(read(&y).unwrap().as_f32().unwrap(), [6.0, 24.0]);
    assert_eq!(read(&x).unwrap().as_f32().unwrap(), [12.0, 96.0]);
    assert_eq!(read(&loss).unwrap().as_f32().unwrap(), [1.0]);
    assert!(read(&unused).is_none());
}

#[test]
fn what_has_no_gradient_is_an_error() {
    let runtime = Runtime::builder().budget("1MiB").threads(1).cpu().unwrap();
    let x = runtime.put(HostTensor::f32([2], vec![1.0, 2.0]).unwrap()).unwrap();
    let tape = Tape::new(&runtime);
    tape.watch(&x);
    let error = tape.run(Op::Accumulate, &[&x, &x]).unwrap_err().to_string();
    assert!(error.contains("accumulate") && error.contains("no gradient"), "{error}");
    let error = tape.backward(&x).unwrap_err().to_string();
    assert!(error.contains("scalar") && error.contains("[2]"), "{error}");
}
