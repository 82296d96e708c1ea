//! The gradient of every op is what central differences say, also for strided and broadcast operands.

#[path = "common/device.rs"]
mod device;

use device::targets;
use remat::autograd::Tape;
use remat::ops::{
    Accumulate, BatchNormParameters, Binary, Conv2d, CrossEntropy, Distribution, Pool2d, Random,
    Reduce, Reduction, Unary,
};
use remat::trace::{Event, Recorder};
use remat::{Dims, Error, HostTensor, Runtime, Tensor, Tensors};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// Half the distance between the two points of a difference, and how far inputs stay from kinks.
const H: f32 = 1.0 / 128.0;

/// An input of a case.
enum Input {
    /// Its gradient is checked.
    Watched(HostTensor),
    /// It has none.
    Fixed(HostTensor),
}

type Function = Box<dyn Fn(&Runtime, &[Tensor]) -> Result<Tensor, Error>>;

struct Case {
    name: &'static str,
    inputs: Vec<Input>,
    function: Function,
}

fn case(
    name: &'static str,
    inputs: Vec<Input>,
    function: impl Fn(&Runtime, &[Tensor]) -> Result<Tensor, Error> + 'static,
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

fn first(outputs: Result<Tensors, Error>) -> Result<Tensor, Error> {
    Ok(outputs?.swap_remove(0))
}

/// Of a batch norm.
fn parameters([gamma, beta, running_mean, running_var]: [&Tensor; 4]) -> BatchNormParameters<'_> {
    BatchNormParameters { gamma, beta, running_mean, running_var }
}

fn unary(name: &'static str, unary: Unary) -> Case {
    case(name, vec![positive([2, 5])], move |_, x| first(Tensor::apply(unary, &[&x[0]])))
}

fn binary(name: &'static str, binary: Binary, a: Input, b: Input) -> Case {
    case(name, vec![a, b], move |_, x| first(Tensor::apply(binary, &[&x[0], &x[1]])))
}

fn conv(
    name: &'static str,
    image: Input,
    kernel: Input,
    stride: [usize; 2],
    pad: [usize; 2],
) -> Case {
    let conv = Conv2d { stride, padding: pad };
    case(name, vec![image, kernel], move |_, x| x[0].conv2d(&x[1], conv))
}

fn pool(
    name: &'static str,
    max: bool,
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
) -> Case {
    let pool = Pool2d { kernel, stride, padding };
    case(name, vec![x([1, 2, 5, 6])], move |_, x| {
        if max { x[0].max_pool2d(pool) } else { x[0].avg_pool2d(pool) }
    })
}

fn reduce(name: &'static str, kind: Reduction, axes: &'static [usize], keep_dims: bool) -> Case {
    case(name, vec![x([2, 3, 4])], move |_, x| {
        let op = Reduce { kind, axes: Dims::new(axes), keep_dims };
        first(Tensor::apply(op, &[&x[0]]))
    })
}

/// An op on a transposed, a sliced and a broadcast operand.
fn strided(name: &'static str, of: impl Fn(&Tensor) -> Result<Tensor, Error> + 'static) -> Case {
    case(name, vec![positive([4, 3])], move |_, x| {
        let turned = of(&x[0].transpose()?)?;
        let part = of(&x[0].slice(1, 1..3)?)?;
        let row = x[0].slice(0, 2..3)?;
        let wide = of(&row.broadcast(&[2, 3])?)?;
        let sums = [turned.sum()?, part.sum()?, wide.sum()?];
        let sums = sums.iter().map(|s| s.reshape(&[1])).collect::<Result<Vec<_>, _>>()?;
        let all = Tensor::concat(&sums.iter().collect::<Vec<_>>(), 0)?;
        all.square()
    })
}

fn elementwise() -> Vec<Case> {
    use Binary::{Add, Div, Maximum, Mul, Sub};
    vec![
        unary("neg", Unary::Neg),
        case("relu", vec![x([2, 5])], |_, x| x[0].relu()),
        unary("exp", Unary::Exp),
        unary("log", Unary::Log),
        unary("sqrt", Unary::Sqrt),
        unary("recip", Unary::Recip),
        case("square", vec![x([2, 5])], |_, x| x[0].square()),
        case("tanh", vec![x([2, 5])], |_, x| x[0].tanh()),
        case("sigmoid", vec![x([2, 5])], |_, x| x[0].sigmoid()),
        case("affine", vec![x([2, 5])], |_, x| x[0].affine(-1.5, 0.25)),
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
        case("the same twice", vec![positive([2, 3])], |_, x| {
            let product = x[0].mul(&x[0])?;
            product.div(&x[0].exp()?)?.add(&x[0])
        }),
        case("dropout", vec![x([4, 5])], |runtime, x| {
            let op = Random {
                distribution: Distribution::Bernoulli { p: 0.5 },
                shape: *x[0].layout().shape(),
                key: 1,
                counter: 2,
            };
            x[0].mul(&first(runtime.apply(op, &[]))?.affine(2.0, 0.0)?)
        }),
        strided("log, strided", Tensor::log),
        strided("mul, strided", |x| x.mul(&x.tanh()?)),
        strided("maximum, strided", |x| x.maximum(&x.affine(2.0, -1.51)?)),
        strided("affine, strided", |x| x.affine(3.0, 1.0)),
        strided("softmax, strided", |x| x.softmax()?.square()),
    ]
}

fn products() -> Vec<Case> {
    vec![
        case("matmul", vec![x([3, 4]), between([4, 2])], |_, x| x[0].matmul(&x[1])),
        case("matmul, transposed", vec![x([4, 3]), between([2, 4])], |_, x| {
            x[0].transpose()?.matmul(&x[1].transpose()?)
        }),
        case("matmul, sliced", vec![x([5, 6]), between([5, 4])], |_, x| {
            let a = x[0].slice(0, 1..4)?.slice(1, 2..6)?;
            a.matmul(&x[1].slice(0, 1..5)?.slice(1, 1..3)?)
        }),
        case("matmul, batched", vec![x([2, 3, 4]), between([2, 4, 2])], |_, x| x[0].matmul(&x[1])),
        case("matmul, batched and transposed", vec![x([2, 4, 3]), between([2, 2, 4])], |_, x| {
            x[0].transpose()?.matmul(&x[1].transpose()?)
        }),
        case("matmul, batches broadcast", vec![x([2, 1, 2, 3]), between([3, 3, 2])], |_, x| {
            x[0].matmul(&x[1])
        }),
        case("matmul, one matrix for all", vec![x([3, 4]), between([2, 4, 2])], |_, x| {
            x[0].matmul(&x[1])
        }),
        case("matmul with itself", vec![x([3, 3])], |_, x| x[0].matmul(&x[0].transpose()?)),
        conv("conv2d", x([2, 2, 4, 5]), between([3, 2, 3, 2]), [1, 1], [0, 0]),
        conv("conv2d, stride", x([1, 2, 7, 6]), between([2, 2, 3, 3]), [2, 3], [0, 0]),
        conv("conv2d, padding", x([1, 2, 4, 4]), between([2, 2, 3, 3]), [1, 1], [1, 2]),
        conv("conv2d, both", x([2, 1, 5, 6]), between([2, 1, 3, 3]), [2, 2], [1, 1]),
        conv("conv2d, pointwise", x([2, 3, 3, 3]), between([2, 3, 1, 1]), [1, 1], [0, 0]),
        case("conv2d, strided operands", vec![x([4, 5, 2, 1]), between([3, 2, 2, 2])], |_, x| {
            let image = x[0].permute(&[3, 2, 0, 1])?;
            let kernel = x[1].permute(&[1, 0, 3, 2])?;
            let kernel = kernel.slice(1, 0..2)?;
            image.conv2d(&kernel, Conv2d { stride: [1, 1], padding: [1, 1] })
        }),
    ]
}

fn norms_and_pools() -> Vec<Case> {
    let batch_norm = |runtime: &Runtime, x: &[Tensor]| {
        let c = x[0].shape()[1];
        let [mean, var] = [runtime.full(&[c], 0.5)?, runtime.full(&[c], 2.0)?];
        let parameters = parameters([&x[1], &x[2], &mean, &var]);
        Ok(x[0].batch_norm(&parameters, 0.1, 1e-3)?.y)
    };
    let infer = |_: &Runtime, x: &[Tensor]| {
        x[0].batch_norm_infer(&parameters([&x[1], &x[2], &x[3], &x[4]]), 1e-3)
    };
    let statistics = || [Input::Fixed(spread([3])), Input::Fixed(above_zero([3]))];
    let with = |x: Input| {
        let [mean, var] = statistics();
        vec![x, between([3]), self::x([3]), mean, var]
    };
    vec![
        case("batch norm", vec![x([2, 3, 2, 3]), between([3]), x([3])], batch_norm),
        case("batch norm, matrix", vec![x([5, 2]), between([2]), x([2])], batch_norm),
        case("batch norm, strided", vec![x([3, 5]), between([3]), x([3])], move |runtime, x| {
            let turned = x[0].transpose()?;
            batch_norm(runtime, &[turned, x[1].clone(), x[2].clone()])
        }),
        case("batch norm, infer", with(x([2, 3, 2, 2])), infer),
        case("batch norm, infer, matrix", with(x([4, 3])), infer),
        pool("max pool", true, [2, 2], [2, 2], [0, 0]),
        pool("max pool, overlapping and padded", true, [3, 3], [1, 2], [1, 1]),
        pool("avg pool", false, [2, 3], [2, 3], [0, 0]),
        pool("avg pool, overlapping and padded", false, [3, 2], [2, 1], [1, 1]),
        case("global avg pool", vec![x([2, 3, 2, 3])], |_, x| x[0].global_avg_pool()),
        case("pool of a permuted image", vec![x([3, 4, 4, 1])], |_, x| {
            let pool = Pool2d { kernel: [2, 2], stride: [1, 1], padding: [0, 0] };
            let image = x[0].permute(&[3, 0, 1, 2])?;
            image.max_pool2d(pool)?.add(&image.avg_pool2d(pool)?)
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
        case("reduce, strided", vec![x([3, 2, 4])], |_, x| {
            let turned = x[0].permute(&[2, 0, 1])?;
            let sum = turned.sum_along(&[0, 2], false)?;
            let mean = turned.mean_along(&[0, 2], false)?;
            let max = turned.max_along(&[0, 2], false)?;
            sum.mul(&mean)?.mul(&max)
        }),
    ]
}

fn shapes_and_losses() -> Vec<Case> {
    vec![
        case("softmax", vec![x([3, 4])], |_, x| x[0].softmax()),
        case("softmax, rank 3", vec![x([2, 2, 3])], |_, x| x[0].softmax()),
        case("log softmax", vec![x([3, 4])], |_, x| x[0].log_softmax()),
        case("cross entropy", vec![x([3, 4]), index(&[2, 0, 3])], |_, x| x[0].cross_entropy(&x[1])),
        case("cross entropy, log probabilities", vec![x([3, 4]), index(&[2, 0, 3])], |_, x| {
            Ok(Tensor::apply(CrossEntropy, &[&x[0], &x[1]])?.swap_remove(1))
        }),
        case("cross entropy, both outputs", vec![x([3, 4]), index(&[1, 1, 0])], |_, x| {
            let both = Tensor::apply(CrossEntropy, &[&x[0], &x[1]])?;
            both[0].mul(&both[1])
        }),
        case("contiguous", vec![x([3, 4])], |_, x| x[0].transpose()?.contiguous()),
        case("reshape", vec![x([3, 4])], |_, x| x[0].reshape(&[2, 6])),
        case("reshape, strided", vec![x([3, 4])], |_, x| x[0].transpose()?.reshape(&[2, 6])),
        case("permute", vec![x([2, 3, 4])], |_, x| x[0].permute(&[2, 0, 1])),
        case("slice", vec![x([3, 4])], |_, x| x[0].slice(0, 1..3)?.slice(1, 0..3)),
        case("slices that overlap", vec![x([6])], |_, x| {
            x[0].slice(0, 0..4)?.mul(&x[0].slice(0, 2..6)?)
        }),
        case("broadcast", vec![x([3, 1])], |_, x| x[0].broadcast(&[2, 3, 4])),
        case("pad", vec![x([2, 3])], |_, x| x[0].pad(0, 1, 0)?.pad(1, 2, 3)),
        case("pad, strided", vec![x([2, 3])], |_, x| x[0].transpose()?.pad(0, 1, 1)),
        case("concat", vec![x([2, 3]), between([1, 3]), x([3, 2])], |_, x| {
            Tensor::concat(&[&x[0], &x[1], &x[2].transpose()?, &x[0]], 0)
        }),
        case("concat of columns", vec![x([2, 3]), between([2, 1])], |_, x| {
            Tensor::concat(&[&x[1], &x[0]], 1)
        }),
        case("gather", vec![x([4, 3]), index(&[2, 0, 2, 2, 1])], |_, x| x[0].gather(&x[1], 0)),
        case("gather of columns", vec![x([2, 3]), index(&[2, 0])], |_, x| {
            x[0].transpose()?.transpose()?.gather(&x[1], 1)
        }),
        case("scatter_add", vec![x([5, 2]), index(&[2, 0, 2, 2, 1])], |_, x| {
            x[0].scatter_add(&x[1], 0, 4)
        }),
        case("scatter_add of columns", vec![x([3, 2]), index(&[3, 0, 3])], |_, x| {
            x[0].transpose()?.scatter_add(&x[1], 1, 5)
        }),
    ]
}

/// The names of the ops that a runtime ran.
#[derive(Clone, Debug, Default)]
struct Names(Arc<Mutex<BTreeSet<String>>>);

impl Recorder for Names {
    fn record(&mut self, event: &Event) {
        if let Event::Apply { op, .. } = event {
            self.0.lock().unwrap().insert(op.clone());
        }
    }

    fn finish(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Names {
    /// Those since the last time.
    fn take(&self, runtime: &Runtime) -> BTreeSet<String> {
        runtime.sync().unwrap();
        std::mem::take(&mut self.0.lock().unwrap())
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
fn by_tape(
    runtime: &Runtime,
    names: &Names,
    case: &Case,
) -> (Vec<Option<HostTensor>>, BTreeSet<String>) {
    let mut inputs = put(runtime, &hosts(case));
    let tape = Tape::new(runtime);
    for (tensor, input) in inputs.iter_mut().zip(&case.inputs) {
        if matches!(input, Input::Watched(_)) {
            tape.watch(tensor);
        }
    }
    names.take(runtime);
    let y = (case.function)(runtime, &inputs).unwrap();
    let names = names.take(runtime);
    let weights = (0..y.layout().elements()).map(weight).collect();
    let weights = runtime.put(HostTensor::f32(*y.layout().shape(), weights).unwrap()).unwrap();
    let loss = y.mul(&weights).unwrap().sum().unwrap();
    let mut gradients = tape.backward(&loss).unwrap();
    let gradients =
        inputs.iter().map(|x| gradients.take(x).map(|g| runtime.get(&g).unwrap())).collect();
    (gradients, names)
}

fn check(runtime: &Runtime, names: &Names, case: &Case) -> BTreeSet<String> {
    let (gradients, names) = by_tape(runtime, names, case);
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
    let all = |target: device::Target| {
        let names = Names::default();
        let builder = Runtime::builder().budget("1MiB").threads(1).record(names.clone());
        let runtime = target.start(builder);
        cases.iter().flat_map(|case| check(&runtime, &names, case)).collect::<Vec<_>>()
    };
    targets().into_iter().flat_map(all).collect()
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
    let mut x = runtime.put(HostTensor::f32([2], vec![1.0, 2.0]).unwrap()).unwrap();
    let mut unused = runtime.put(HostTensor::scalar(1.0)).unwrap();
    tape.watch(&mut x);
    tape.watch(&mut unused);
    let mut y = x.square().unwrap();
    tape.watch(&mut y);
    let mut loss = y.mul(&y.affine(3.0, 0.0).unwrap()).unwrap().sum().unwrap();
    tape.watch(&mut loss);
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
    let mut x = runtime.put(HostTensor::f32([2], vec![1.0, 2.0]).unwrap()).unwrap();
    let tape = Tape::new(&runtime);
    tape.watch(&mut x);
    let error = runtime.apply(Accumulate, &[&x, &x]).unwrap_err().to_string();
    assert!(error.contains("accumulate") && error.contains("no gradient"), "{error}");
    let error = tape.backward(&x).unwrap_err().to_string();
    assert!(error.contains("scalar") && error.contains("[2]"), "{error}");
}
