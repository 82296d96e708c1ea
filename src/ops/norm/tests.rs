//! Compares values and gradients with formulas in f64. The formulas of the gradients are themselves
//! compared with finite differences of the formulas of the values.

use super::{LayerNorm, LayerNormGrad};
use crate::autograd::Tape;
use crate::layout::Dims;
use crate::op::Operation as _;
use crate::ops::samples::{Draw, Sizes};
use crate::ops::{Op, Tensor};
use crate::sync::Mutex;
use crate::trace::{Entry, Recorder};
use crate::{Builder, Error, HostTensor, Runtime};
use std::sync::Arc;

const EPS: f32 = 1e-3;

type Lists = Vec<Vec<f64>>;

/// Computes `y`, `mean` and `inv_std` from `x`, `gamma` and `beta`.
fn forward(inputs: &[Vec<f64>]) -> Lists {
    let [x, gamma, beta] = [0, 1, 2].map(|i| &inputs[i]);
    let n = gamma.len();
    let mut all = vec![vec![]; 3];
    for row in x.chunks(n.max(1)) {
        let mean = row.iter().sum::<f64>() / n as f64;
        let var = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n as f64;
        let inv_std = 1.0 / (var + f64::from(EPS)).sqrt();
        all[0].extend((0..n).map(|i| (row[i] - mean) * inv_std * gamma[i] + beta[i]));
        all[1].push(mean);
        all[2].push(inv_std);
    }
    all
}

/// Computes `dx`, `dgamma` and `dbeta` from `x`, `gamma`, `mean`, `inv_std` and `dy`.
fn grad(inputs: &[Vec<f64>]) -> Lists {
    let [x, gamma, mean, inv_std, dy] = [0, 1, 2, 3, 4].map(|i| &inputs[i]);
    let n = gamma.len();
    let mut all = vec![vec![], vec![0.0; n], vec![0.0; n]];
    for (row, (mean, inv_std)) in mean.iter().zip(inv_std).enumerate() {
        let normal: Vec<f64> = (0..n).map(|i| (x[row * n + i] - mean) * inv_std).collect();
        let dy = &dy[row * n..][..n];
        let z: Vec<f64> = (0..n).map(|i| gamma[i] * dy[i]).collect();
        let plain = z.iter().sum::<f64>() / n as f64;
        let weight = (0..n).map(|i| z[i] * normal[i]).sum::<f64>() / n as f64;
        all[0].extend((0..n).map(|i| inv_std * (z[i] - plain - normal[i] * weight)));
        for i in 0..n {
            all[1][i] += dy[i] * normal[i];
            all[2][i] += dy[i];
        }
    }
    all
}

/// An op, its inputs, and the exact function.
struct Case {
    op: Op,
    exact: fn(&[Vec<f64>]) -> Lists,
    shapes: Vec<Dims>,
    inputs: Lists,
}

impl Case {
    /// Cases of a layer norm and of its gradient. `x` has the shape `shape`, and elements near
    /// `about`. All numbers are exact in f32.
    fn both(shape: &[usize], about: f32, draw: &mut Draw) -> [Self; 2] {
        let (rows, n) = shape.split_at(shape.len() - 1);
        let [shape, rows, n] = [shape, rows, n].map(Dims::new);
        let mut numbers = |shape: Dims, about: f32| -> Vec<f64> {
            (0..shape.elements()).map(|_| f64::from(draw.float() + about)).collect()
        };
        let x = numbers(shape, about);
        let [gamma, beta, dy] = [n, n, shape].map(|shape| numbers(shape, 0.0));
        let (mean, inv_std) = (numbers(rows, about), numbers(rows, 2.5));
        let with = |op, exact, shapes, inputs| Self { op, exact, shapes, inputs };
        [
            with(
                LayerNorm { eps: EPS }.into(),
                forward,
                vec![shape, n, n],
                vec![x.clone(), gamma.clone(), beta],
            ),
            with(
                LayerNormGrad.into(),
                grad,
                vec![shape, n, rows, rows, shape],
                vec![x, gamma, mean, inv_std, dy],
            ),
        ]
    }

    fn put(&self, runtime: &Runtime) -> Vec<Tensor> {
        let put = |(shape, input): (&Dims, &Vec<f64>)| {
            runtime.tensor(shape, input.iter().map(|&x| x as f32).collect::<Vec<_>>()).unwrap()
        };
        self.shapes.iter().zip(&self.inputs).map(put).collect()
    }
}

/// Fails unless all elements are equal up to a tolerance: `tolerance` times the largest element, or
/// `tolerance` itself if all elements are below 1.
fn close(found: &[f32], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let largest = expected.iter().fold(1.0f64, |largest, x| largest.max(x.abs()));
    for (i, (&found, expected)) in found.iter().zip(expected).enumerate() {
        let near = (f64::from(found) - expected).abs() <= tolerance * largest;
        assert!(near, "element {i} is {found}, expected {expected}: {what}");
    }
}

fn values(runtime: &Runtime) {
    let mut draw = Draw::new(1, Sizes::Small);
    for shape in [
        &[1][..],
        &[2],
        &[777],
        &[5, 1],
        &[3, 2],
        &[40, 12],
        &[3, 16, 33],
        &[2, 3, 70, 4],
        &[700, 5],
        &[33, 260],
        &[2, 5000],
        &[1100, 68],
        &[1, 40_001],
        &[0, 5],
        &[2, 0, 0],
    ] {
        for about in [0.0, 300.0] {
            for case in Case::both(shape, about, &mut draw) {
                let inputs = case.put(runtime);
                let found = Tensor::apply(case.op.clone(), &inputs.iter().collect::<Vec<_>>());
                let found = found.unwrap();
                for (i, expected) in (case.exact)(&case.inputs).iter().enumerate() {
                    let what = format!("output {i} of {:?} of {shape:?} about {about}", case.op);
                    close(&found[i].to_vec::<f32>().unwrap(), expected, 1e-6, &what);
                }
            }
        }
    }
    // The mean of equal elements, or of a single element, must be exactly the element.
    for row in [&[3.3f32; 30][..], &[-7.7e6; 7], &[0.1], &[1e30; 1000]] {
        let x = runtime.tensor(&[row.len()], row.to_vec()).unwrap();
        let parameter = |value| runtime.full(&[row.len()], value).unwrap();
        let op = LayerNorm { eps: 0.25 };
        let found = Tensor::apply(op, &[&x, &parameter(2.0), &parameter(0.5)]).unwrap();
        let found: Vec<Vec<f32>> = found.iter().map(|y| y.to_vec().unwrap()).collect();
        assert_eq!(found, [vec![0.5; row.len()], vec![row[0]], vec![2.0]], "{row:?}");
    }
    let x = runtime.tensor(&[2, 2], vec![1.0, f32::NAN, 2.0, 4.0]).unwrap();
    let [gamma, beta] = [1.0, 0.0].map(|value| runtime.full(&[2], value).unwrap());
    let y = x.layer_norm(&gamma, &beta, 0.0).unwrap().to_vec::<f32>().unwrap();
    assert!(y[0].is_nan() && y[1].is_nan() && y[2..] == [-1.0, 1.0], "{y:?}");
}

/// Checks gradients of both ops of [`Case::both`], for any set of outputs and of watched inputs.
fn gradients(runtime: &Runtime) {
    let mut draw = Draw::new(2, Sizes::Small);
    for shape in [&[4][..], &[1], &[3, 1], &[3, 5], &[2, 3, 4]] {
        for case in Case::both(shape, 0.0, &mut draw) {
            let outputs = (case.exact)(&case.inputs);
            let count = case.inputs.len();
            let watched: Vec<Vec<usize>> =
                (0..count).map(|i| vec![i]).chain([(0..count).collect()]).collect();
            for parts in 1..8 {
                let mut weight = |part: u32| f64::from(draw.float()) * f64::from(part);
                let weights = |(i, y): (usize, &Vec<f64>)| -> Vec<f64> {
                    y.iter().map(|_| weight(parts >> i & 1)).collect()
                };
                let weights: Lists = outputs.iter().enumerate().map(weights).collect();
                let expected = differences(&case, &weights);
                for watched in &watched {
                    let found = by_tape(runtime, &case, &weights, parts, watched).unwrap();
                    for (&i, found) in watched.iter().zip(found) {
                        let what = format!(
                            "input {i} of {:?} of {shape:?}, outputs {parts:03b}, {watched:?} watched",
                            case.op
                        );
                        close(&found, &expected[i], 2e-5, &what);
                    }
                }
            }
        }
    }
}

/// Finite differences of the weighted sum of the outputs, with respect to each element of each
/// input.
fn differences(case: &Case, weights: &[Vec<f64>]) -> Lists {
    let mut inputs = case.inputs.clone();
    let sum = |inputs: &[Vec<f64>]| -> f64 {
        let outputs = (case.exact)(inputs);
        outputs.iter().flatten().zip(weights.iter().flatten()).map(|(y, w)| y * w).sum()
    };
    let mut slope = |i: usize, at: usize| {
        let x = inputs[i][at];
        let [above, below] = [1e-5, -1e-5].map(|step| {
            inputs[i][at] = x + step;
            sum(&inputs)
        });
        inputs[i][at] = x;
        (above - below) / 2e-5
    };
    let lengths = case.inputs.iter().map(Vec::len).enumerate();
    lengths.map(|(i, len)| (0..len).map(|at| slope(i, at)).collect()).collect()
}

/// Gradients of the weighted sum of the outputs in `parts`, with respect to the watched inputs,
/// computed by a tape.
fn by_tape(
    runtime: &Runtime,
    case: &Case,
    weights: &[Vec<f64>],
    parts: u32,
    watched: &[usize],
) -> Result<Vec<Vec<f32>>, Error> {
    let mut inputs = case.put(runtime);
    let tape = Tape::new(runtime);
    watched.iter().for_each(|&i| tape.watch(&mut inputs[i]));
    let outputs = Tensor::apply(case.op.clone(), &inputs.iter().collect::<Vec<_>>())?;
    let mut loss: Option<Tensor> = None;
    for (i, (y, weights)) in outputs.iter().zip(weights).enumerate() {
        if parts >> i & 1 == 1 {
            let weights = weights.iter().map(|&w| w as f32).collect::<Vec<_>>();
            let weights = runtime.put(HostTensor::f32(*y.layout().shape(), weights).unwrap())?;
            super::gradients::add(&mut loss, y.mul(&weights)?.sum()?)?;
        }
    }
    let gradients = tape.backward(&loss.unwrap())?;
    let found = watched.iter().map(|&i| match gradients.get(&inputs[i]) {
        Some(dx) => {
            assert_eq!(dx.shape(), inputs[i].shape());
            dx.to_vec()
        }
        None => Ok(vec![0.0; case.inputs[i].len()]),
    });
    found.collect()
}

fn cpu(builder: Builder) -> Runtime {
    builder.budget("16MiB").threads(2).cpu().unwrap()
}

/// A runtime on a GPU; `None`, with a message, if there is no GPU.
#[cfg(feature = "cuda")]
fn cuda() -> Option<Runtime> {
    use crate::device::cuda::{Cuda, context_for_tests};
    let gpu = context_for_tests()?;
    let device = move |bytes| Cuda::of(&gpu, bytes);
    Some(Runtime::builder().budget("16MiB").device(device).unwrap())
}

#[test]
fn values_are_those_of_the_formulas() {
    values(&cpu(Runtime::builder()));
}

#[test]
fn gradients_are_what_differences_say() {
    gradients(&cpu(Runtime::builder()));
}

#[cfg(feature = "cuda")]
#[test]
fn values_on_cuda_are_those_of_the_formulas() {
    cuda().iter().for_each(values);
}

#[cfg(feature = "cuda")]
#[test]
fn gradients_on_cuda_are_what_differences_say() {
    cuda().iter().for_each(gradients);
}

/// Names of the ops that ran.
#[derive(Clone, Debug, Default)]
struct Names(Arc<Mutex<Vec<String>>>);

impl Recorder for Names {
    fn record(&mut self, entry: &Entry) {
        if let Entry::Did { command, .. } = entry {
            let names = command.calls().iter().map(|call| call.op.name.to_string());
            self.0.lock().unwrap().extend(names);
        }
    }

    fn finish(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn the_gradient_of_the_result_is_one_op() {
    let names = Names::default();
    let runtime = cpu(Runtime::builder().record(names.clone()));
    let numbers = |shape: &[usize]| runtime.full(shape, 0.5).unwrap();
    let backward = |with: bool| {
        let [mut x, mut gamma, mut beta] = [numbers(&[3, 4]), numbers(&[4]), numbers(&[4])];
        let tape = Tape::new(&runtime);
        [&mut x, &mut gamma, &mut beta].into_iter().for_each(|input| tape.watch(input));
        let y = if with { x.layer_norm(&gamma, &beta, EPS).unwrap() } else { x };
        let loss = y.mul(&numbers(&[3, 4])).unwrap().sum().unwrap();
        runtime.sync().unwrap();
        names.0.lock().unwrap().clear();
        tape.backward(&loss).unwrap();
        runtime.sync().unwrap();
        std::mem::take(&mut *names.0.lock().unwrap())
    };
    let [mut without, with] = [false, true].map(backward);
    without.push("layer_norm_grad".to_owned());
    assert_eq!(with, without);
}

#[test]
fn errors_say_what_was_found_and_what_was_expected() {
    let f = |shape: &[usize]| crate::Layout::contiguous(crate::DType::F32, Dims::new(shape));
    let norm = |eps| Op::from(LayerNorm { eps });
    for (op, shapes, message) in [
        (
            norm(0.1),
            [&[][..], &[], &[]].as_slice(),
            "layer_norm: x is f32[] of rank 0, expected at least 1",
        ),
        (norm(0.1), &[&[2, 3], &[2], &[3]], "layer_norm: gamma is f32[2], expected f32[3]"),
        (norm(0.1), &[&[2, 3], &[3], &[3, 1]], "layer_norm: beta is f32[3, 1], expected f32[3]"),
        (
            norm(-1.0),
            &[&[2, 3], &[3], &[3]],
            "layer_norm: eps is -1, expected a finite number of at least 0",
        ),
        (
            norm(f32::NAN),
            &[&[2, 3], &[3], &[3]],
            "layer_norm: eps is NaN, expected a finite number of at least 0",
        ),
        (
            norm(0.1),
            &[&[2, 0], &[0], &[0]],
            "layer_norm: x is f32[2, 0], expected at least one element per row",
        ),
        (
            LayerNormGrad.into(),
            &[&[2, 3], &[3], &[2], &[3], &[2, 3]],
            "layer_norm_grad: inv_std is f32[3], expected f32[2]",
        ),
        (
            LayerNormGrad.into(),
            &[&[2, 3], &[3], &[2], &[2], &[3, 2]],
            "layer_norm_grad: dy is f32[3, 2], expected f32[2, 3]",
        ),
    ] {
        let inputs: Vec<_> = shapes.iter().map(|shape| f(shape)).collect();
        assert_eq!(op.infer(&inputs).unwrap_err().to_string(), message);
    }
    // A tensor without rows may have rows of length 0.
    assert!(norm(0.1).infer(&[f(&[0, 0]), f(&[0]), f(&[0])]).is_ok());
}
