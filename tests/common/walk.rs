//! Walk through the registry of ops: samples of every op with data, and their derivatives of any
//! order by the tape.

use remat::autograd::Tape;
use remat::op::Operation;
use remat::ops::Op;
use remat::unstable::ops::samples::{Draw, Sample, Sizes, Values, samples};
use remat::{DType, Dims, Error, HostTensor, Layout, Runtime, Tensor};

/// Distance of the inner two points of a difference from its middle. The outer two points are at `2
/// * H`.
pub const H: f32 = 1.0 / 128.0;

/// Least distance between two numbers of an input, and thus from kinks of functions such as
/// `maximum`. Two numbers that each move by `2 * H` towards each other still differ.
const APART: f32 = 4.5 * H;

/// Least distance of a number from 0.
const LEAST: f32 = 0.3;

/// Most floats that a sample for differences may have.
const FEW: usize = 96;

/// Operand: the tensor that is put, and the view of it that the function reads.
#[derive(Clone, Debug)]
pub struct Given {
    pub host: HostTensor,
    pub watched: bool,
    /// Whether the last two dimensions are swapped.
    turned: bool,
    /// Shape to which the view is then broadcast.
    shape: Dims,
}

impl Given {
    fn look(&self, put: &Tensor) -> Result<Tensor, Error> {
        let x = if self.turned { put.transpose()? } else { put.clone() };
        if *x.shape() == *self.shape { Ok(x) } else { x.broadcast(&self.shape) }
    }
}

type Function = Box<dyn Fn(&Runtime, &[Tensor]) -> Result<Vec<Tensor>, Error>>;

/// Function with its operands.
pub struct Case {
    pub name: String,
    pub given: Vec<Given>,
    function: Function,
}

impl Case {
    /// Case of `function` with positive floats of `shapes`, all watched.
    pub fn of(
        name: &str,
        shapes: &[&[usize]],
        function: impl Fn(&Runtime, &[Tensor]) -> Result<Tensor, Error> + 'static,
    ) -> Self {
        let mut numbers = Numbers::new(shapes.iter().map(|s| s.iter().product::<usize>()).sum(), 0);
        let given = shapes.iter().map(|shape| {
            let shape = Dims::new(shape);
            let host = numbers.host(&shape, DType::F32, Values::Positive);
            Given { host, watched: true, turned: false, shape }
        });
        Self {
            name: name.to_owned(),
            given: given.collect(),
            function: Box::new(move |runtime, x| Ok(vec![function(runtime, x)?])),
        }
    }

    /// Case of `function` with these values, each with whether it is watched. Not all tests use it.
    #[allow(dead_code)]
    pub fn given(
        name: &str,
        given: Vec<(HostTensor, bool)>,
        function: impl Fn(&Runtime, &[Tensor]) -> Result<Vec<Tensor>, Error> + 'static,
    ) -> Self {
        let given = given.into_iter().map(|(host, watched)| {
            let shape = *host.shape();
            Given { host, watched, turned: false, shape }
        });
        Self { name: name.to_owned(), given: given.collect(), function: Box::new(function) }
    }

    /// Case of a sample of an op. Repeated operands of the sample are broadcast.
    ///
    /// Matrices are transposed in every second case. In every third case, only one operand is
    /// watched. The function leaves out outputs without a gradient.
    fn sample(sample: &Sample, number: usize) -> Self {
        let stored: Vec<Dims> = sample.layouts().iter().map(unrepeated).collect();
        let is_float = |layout: &Layout| layout.dtype() == DType::F32;
        let layouts = sample.layouts();
        let floats =
            stored.iter().zip(&layouts).filter(|(_, l)| is_float(l)).map(|(s, _)| s.elements());
        let mut numbers = Numbers::new(floats.sum(), number as u64);
        let alone = (number % 3 == 2).then(|| {
            let floats: Vec<usize> =
                (0..layouts.len()).filter(|&i| is_float(&layouts[i])).collect();
            floats.get(number / 3 % floats.len().max(1)).copied()
        });
        let given =
            sample.operands.iter().zip(stored).enumerate().map(|(i, (operand, mut stored))| {
                let (dtype, rank) = (operand.seen.dtype(), stored.len());
                let turned = number % 2 == 1 && rank >= 2 && dtype == DType::F32;
                if turned {
                    let [rows, columns] = [stored[rank - 2], stored[rank - 1]];
                    stored = stored.with(rank - 2, columns).with(rank - 1, rows);
                }
                let watched = dtype == DType::F32 && alone.is_none_or(|only| only == Some(i));
                let host = numbers.host(&stored, dtype, operand.values);
                Given { host, watched, turned, shape: *operand.seen.shape() }
            });
        let given = given.collect();
        let op = sample.op.clone();
        Self {
            name: format!("{op:?} of {layouts:?} (sample {number})"),
            given,
            function: Box::new(move |runtime, x| {
                let outputs = match x {
                    [] => runtime.apply(op.clone(), &[])?,
                    _ => Tensor::apply(op.clone(), &x.iter().collect::<Vec<_>>())?,
                };
                let has_gradient = |(i, y): &(usize, Tensor)| {
                    y.dtype() == DType::F32 && !constant_outputs(&op).contains(i)
                };
                Ok(outputs.into_iter().enumerate().filter(has_gradient).map(|(_, y)| y).collect())
            }),
        }
    }

    /// `count` small samples of an op for differences, always the same.
    pub fn small(op: &Op, count: usize) -> Vec<Self> {
        let mut draw = Draw::new(1, Sizes::Small);
        let floats = |sample: &Sample| sample.layouts().iter().map(Layout::elements).sum::<usize>();
        let all = std::iter::repeat_with(|| draw.sample(op)).take(100 * count);
        let few = all.filter(|sample| floats(sample) <= FEW).take(count);
        let cases: Vec<_> = few.enumerate().map(|(i, sample)| Self::sample(&sample, i)).collect();
        assert_eq!(cases.len(), count, "samples of {} are too large", op.name());
        cases
    }

    /// Samples of an op that are a little larger.
    pub fn larger(op: &Op) -> Vec<Self> {
        let mut draw = Draw::new(2, Sizes::Small);
        let mut all: Vec<Sample> = (0..24).map(|_| draw.sample(op)).collect();
        let fits = |s: &Sample| {
            let inputs = s.layouts();
            let outputs = s.op.infer(&inputs).expect("a sample fits");
            let fresh = outputs.written().map_or(&[][..], |(_, fresh)| fresh).iter().copied();
            let fits = |layout: Layout| (1..=3000).contains(&layout.elements());
            s.op.name() == op.name() && inputs.iter().copied().chain(fresh).all(fits)
        };
        all.extend(samples().into_iter().filter(fits).take(6));
        all.iter().enumerate().map(|(i, sample)| Self::sample(sample, i)).collect()
    }

    /// Tensors to put.
    pub fn hosts(&self) -> Vec<HostTensor> {
        self.given.iter().map(|given| given.host.clone()).collect()
    }
}

/// Inputs of an op that get no gradient: running statistics.
pub fn constant_inputs(op: &Op) -> &'static [usize] {
    if matches!(op, Op::BatchNormInfer(_)) { &[3, 4] } else { &[] }
}

/// Outputs of an op that pass on no gradient: running statistics.
fn constant_outputs(op: &Op) -> &'static [usize] {
    if matches!(op, Op::BatchNorm(_)) { &[3, 4] } else { &[] }
}

/// Shape of a layout, with size 1 for each repeated dimension.
fn unrepeated(layout: &Layout) -> Dims {
    let strides = layout.strides().iter();
    let sizes = layout
        .shape()
        .iter()
        .zip(strides)
        .map(|(&n, &stride)| if stride == 0 { n.min(1) } else { n });
    Dims::new(&sizes.collect::<Vec<_>>())
}

/// Numbers in random order, at least [`LEAST`] from 0, whose absolute values differ by at least
/// [`APART`].
///
/// More than [`FEW`] numbers lie closer together. A case with so many numbers is not used for
/// differences.
struct Numbers {
    left: Vec<f32>,
    draw: Draw,
}

impl Numbers {
    fn new(count: usize, seed: u64) -> Self {
        let step = APART.min(APART * FEW as f32 / count.max(1) as f32);
        let mut left: Vec<f32> = (0..count).map(|i| LEAST + step * i as f32).collect();
        let mut draw = Draw::new(seed, Sizes::Small);
        for i in (1..count).rev() {
            left.swap(i, draw.below(i + 1));
        }
        Self { left, draw }
    }

    fn host(&mut self, shape: &Dims, dtype: DType, values: Values) -> HostTensor {
        let elements = shape.elements();
        let host = match (dtype, values) {
            (DType::I32, Values::Below(n)) => {
                HostTensor::i32(*shape, (0..elements).map(|_| self.draw.below(n) as i32).collect())
            }
            (DType::F32, values) => {
                let mut next = || {
                    let number = self.left.pop().expect("as many as were counted");
                    match values {
                        Values::Real if self.draw.flip() => -number,
                        Values::Share => number / (number + 1.0),
                        _ => number,
                    }
                };
                HostTensor::f32(*shape, (0..elements).map(|_| next()).collect())
            }
            (dtype, values) => panic!("{values:?} in {dtype}"),
        };
        host.expect("as many as the shape has")
    }
}

/// Run of a case, differentiated order by order. The values of an order are the gradients of a
/// weighted sum of the values of the previous order.
pub struct Pass {
    runtime: Runtime,
    tape: Tape,
    inputs: Vec<Tensor>,
    /// Whether each input is watched.
    watched: Vec<bool>,
    /// Outputs of the function; after differentiation, the gradient of each input that has one.
    pub values: Vec<Option<Tensor>>,
    order: usize,
}

impl Pass {
    /// Runs the function.
    pub fn start(runtime: &Runtime, case: &Case, hosts: &[HostTensor]) -> Result<Self, Error> {
        let tape = Tape::new(runtime);
        let mut inputs = Vec::new();
        for (given, host) in case.given.iter().zip(hosts) {
            let mut x = runtime.put(host.clone())?;
            if given.watched {
                tape.watch(&mut x);
            }
            inputs.push(x);
        }
        let looks = case.given.iter().zip(&inputs).map(|(given, x)| given.look(x));
        let values = (case.function)(runtime, &looks.collect::<Result<Vec<_>, _>>()?)?;
        let values = values.into_iter().map(Some).collect();
        let watched = case.given.iter().map(|given| given.watched).collect();
        Ok(Self { runtime: runtime.clone(), tape, inputs, watched, values, order: 0 })
    }

    /// Differentiates `times` times, and keeps the graph.
    pub fn derive(&mut self, times: usize) -> Result<(), Error> {
        for _ in 0..times {
            let loss = self.loss()?;
            let found = loss.map(|loss| self.tape.backward_with_graph(&loss)).transpose();
            let mut gradients = unless_flat(found)?;
            self.values = self.inputs.iter().map(|x| gradients.as_mut()?.take(x)).collect();
            self.order += 1;
        }
        Ok(())
    }

    /// Differentiates a last time, without keeping the graph.
    pub fn finish(self) -> Result<Vec<Option<Tensor>>, Error> {
        let loss = self.loss()?;
        let Self { tape, inputs, .. } = self;
        let found = loss.map(|loss| tape.backward(&loss)).transpose();
        let mut gradients = unless_flat(found)?;
        Ok(inputs.iter().map(|x| gradients.as_mut()?.take(x)).collect())
    }

    /// Weighted sum of all values. `None` if no input is watched or no value has a gradient.
    fn loss(&self) -> Result<Option<Tensor>, Error> {
        let mut loss: Option<Tensor> = None;
        if !self.watched.contains(&true) {
            return Ok(None);
        }
        for (k, values) in self.values.iter().enumerate() {
            let Some(values) = values else { continue };
            let weights = (0..values.layout().elements()).map(|i| weight(self.order, k, i));
            let weights = HostTensor::f32(*values.layout().shape(), weights.collect());
            let weights = self.runtime.put(weights.expect("as many"))?;
            let term = values.mul(&weights)?.sum()?;
            loss = Some(loss.map_or_else(|| Ok(term.clone()), |loss| loss.add(&term))?);
        }
        Ok(loss)
    }

    /// Weighted sum of all values in double precision, and the sum of the absolute values of its
    /// terms.
    pub fn sum(&self) -> Result<[f64; 2], Error> {
        let mut sums = [0.0; 2];
        for (k, values) in self.values.iter().enumerate() {
            let Some(values) = values else { continue };
            for (i, value) in values.to_vec::<f32>()?.into_iter().enumerate() {
                let term = f64::from(weight(self.order, k, i)) * f64::from(value);
                sums = [sums[0] + term, sums[1] + term.abs()];
            }
        }
        Ok(sums)
    }
}

/// `None` instead of the error that says that the loss depends on no watched tensor.
fn unless_flat<T>(found: Result<Option<T>, Error>) -> Result<Option<T>, Error> {
    match found {
        Err(error) if error.to_string().contains("the result depends on none of") => Ok(None),
        found => found,
    }
}

/// Weight of element `i` of value `k`, in the sum of order `order`.
fn weight(order: usize, k: usize, i: usize) -> f32 {
    [0.5, -1.0, 0.75, 1.25, -0.25, 1.0, -0.625][(i + 3 * k + 2 * order) % 7]
}
