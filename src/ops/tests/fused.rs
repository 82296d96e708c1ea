//! Tests that compare fused ops with compositions of plain ops: values, gradients, and gradients of
//! gradients must be equal.

use crate::autograd::Tape;
use crate::layout::Dims;
use crate::ops::samples::{Draw, Sizes};
use crate::ops::{Attention, CrossEntropy, LstmSteps, Tensor};
use crate::{Error, HostTensor, Runtime};

type Function<'a> = &'a dyn Fn(&[Tensor]) -> Result<Tensor, Error>;

/// Computes the result, the gradients of the result's sum of squares, and the gradients of the sum
/// of the first gradients.
///
/// The sums are weighted, because in plain sums, errors might cancel.
fn orders(
    runtime: &Runtime,
    inputs: &[HostTensor],
    f: Function<'_>,
) -> Result<Vec<Vec<f32>>, Error> {
    let tape = Tape::new(runtime);
    let mut x: Vec<Tensor> =
        inputs.iter().map(|x| runtime.put(x.clone())).collect::<Result<_, _>>()?;
    x.iter_mut().for_each(|x| tape.watch(x));
    let weighted = |y: &Tensor| {
        let weights = (0..y.layout().elements()).map(|i| ((i * 7 % 11) as f32 - 4.5) / 4.0);
        let weights = HostTensor::f32(*y.layout().shape(), weights.collect()).expect("as many");
        y.mul(&runtime.put(weights)?)?.sum()
    };
    let y = f(&x)?;
    let mut all = vec![y.to_vec()?];
    let mut gradients = tape.backward_with_graph(&weighted(&y.square()?)?)?;
    let first: Vec<Tensor> = x.iter().filter_map(|x| gradients.take(x)).collect();
    assert_eq!(first.len(), x.len(), "a gradient is missing");
    let sums = first.iter().map(&weighted).collect::<Result<Vec<_>, _>>()?;
    let sum = sums[1..].iter().try_fold(sums[0].clone(), |sum, next| sum.add(next))?;
    let mut second = tape.backward(&sum)?;
    for found in first.into_iter().map(Some).chain(x.iter().map(|x| second.take(x))) {
        all.push(found.expect("a gradient").to_vec()?);
    }
    Ok(all)
}

fn same(
    runtime: &Runtime,
    shapes: &[&[usize]],
    what: &str,
    fused: Function<'_>,
    made: Function<'_>,
) {
    let mut draw = Draw::new(5, Sizes::Small);
    let mut host = |shape: &&[usize]| {
        let shape = Dims::new(shape);
        HostTensor::f32(shape, (0..shape.elements()).map(|_| draw.float()).collect()).unwrap()
    };
    let inputs: Vec<HostTensor> = shapes.iter().map(&mut host).collect();
    let [found, expected] = [fused, made].map(|f| orders(runtime, &inputs, f).unwrap());
    for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let largest = expected.iter().fold(1.0f32, |largest, x| largest.max(x.abs()));
        for (a, b) in found.iter().zip(expected) {
            let near = (a - b).abs() <= 2e-5 * largest;
            assert!(near, "{what} of {shapes:?}, list {i}: {a}, and {b} made of ops");
        }
    }
}

/// Divides each row by `sqrt(mean of squares + eps)`. If `centered` is set, subtracts the mean of
/// the row first.
fn normal(x: &Tensor, axes: &[usize], centered: bool, eps: f32) -> Result<Tensor, Error> {
    let far = if centered { x.sub(&x.mean_along(axes, true)?)? } else { x.clone() };
    let spread = far.square()?.mean_along(axes, true)?.affine(1.0, eps)?.sqrt()?;
    far.div(&spread)
}

fn norms(runtime: &Runtime) {
    const EPS: f32 = 0.01;
    for shape in [&[4][..], &[3, 5], &[2, 3, 70], &[40, 12], &[2, 600]] {
        let axis = shape.len() - 1;
        let n = &shape[axis..];
        same(
            runtime,
            &[shape, n, n],
            "layer norm",
            &|x| x[0].layer_norm(&x[1], &x[2], EPS),
            &|x| normal(&x[0], &[axis], true, EPS)?.mul(&x[1])?.add(&x[2]),
        );
        same(runtime, &[shape, n], "RMS norm", &|x| x[0].rms_norm(&x[1], EPS), &|x| {
            normal(&x[0], &[axis], false, EPS)?.mul(&x[1])
        });
    }
    for (shape, groups) in [
        (&[2, 4][..], 2),
        (&[3, 6, 5], 3),
        (&[2, 4, 3, 5], 1),
        (&[2, 8, 4, 4], 4),
        (&[1, 6, 20, 30], 2),
    ] {
        let channels = shape[1];
        same(
            runtime,
            &[shape, &[channels], &[channels]],
            "group norm",
            &|x| x[0].group_norm(groups, &x[1], &x[2], EPS),
            &|x| {
                let rows = x[0].reshape(&[
                    shape[0],
                    groups,
                    x[0].layout().elements() / shape[0] / groups,
                ])?;
                let y = normal(&rows, &[2], true, EPS)?.reshape(&[
                    shape[0],
                    channels,
                    shape[2..].iter().product(),
                ])?;
                let [gamma, beta] = [1, 2].map(|i| x[i].reshape(&[channels, 1]));
                y.mul(&gamma?)?.add(&beta?)?.reshape(shape)
            },
        );
    }
}

fn cross_entropies(runtime: &Runtime) {
    for (n, classes) in [(1, 3), (7, 5), (20, 40), (3, 600)] {
        for (smoothing, ignore) in [(0.0, -100), (0.0, 0), (0.3, -100), (0.3, 0)] {
            let label = |i: usize| 1 + i * 5 % (classes - 1);
            let labels: Vec<i32> =
                (0..n).map(|i| if i % 3 == 1 { ignore } else { label(i) as i32 }).collect();
            let targets = (0..n * classes).map(|i| {
                let (row, class) = (i / classes, i % classes);
                let at = if class == label(row) { 1.0 - smoothing } else { 0.0 };
                if row % 3 == 1 { 0.0 } else { at + smoothing / classes as f32 }
            });
            let targets = runtime.tensor::<f32>(&[n, classes], targets.collect()).unwrap();
            let count = labels.iter().filter(|&&label| label != ignore).count();
            let labels = runtime.tensor(&[n], labels).unwrap();
            let with = CrossEntropy { label_smoothing: smoothing, ignore_index: ignore };
            same(
                runtime,
                &[&[n, classes]],
                &format!("cross entropy, {with:?}"),
                &|x| x[0].cross_entropy_with(&labels, with),
                &|x| x[0].log_softmax()?.mul(&targets)?.sum()?.affine(-1.0 / count as f32, 0.0),
            );
        }
    }
}

/// Compares gradients that fused ops compute with the gradients of composed ops.
fn activations(runtime: &Runtime) {
    const ROOT: f32 = std::f32::consts::FRAC_1_SQRT_2;
    let shapes: [&[usize]; 1] = [&[500]];
    same(runtime, &shapes, "silu", &|x| x[0].silu(), &|x| x[0].mul(&x[0].sigmoid()?));
    same(runtime, &shapes, "gelu", &|x| x[0].gelu(), &|x| {
        x[0].affine(0.5, 0.0)?.mul(&x[0].affine(ROOT, 0.0)?.erf()?.affine(1.0, 1.0)?)
    });
    same(runtime, &shapes, "gelu_tanh", &|x| x[0].gelu_tanh(), &|x| {
        let cube = x[0].square()?.mul(&x[0])?.affine(0.044_715, 0.0)?;
        let u = x[0].add(&cube)?.affine((2.0 / std::f32::consts::PI).sqrt(), 0.0)?;
        x[0].affine(0.5, 0.0)?.mul(&u.tanh()?.affine(1.0, 1.0)?)
    });
    same(runtime, &shapes, "softplus", &|x| x[0].softplus(), &|x| {
        x[0].exp()?.affine(1.0, 1.0)?.log()
    });
}

/// Attention with the whole matrix of probabilities in memory.
fn attention(x: &[Tensor], op: Attention) -> Result<Tensor, Error> {
    let [q, k, v] = [0, 1, 2].map(|i| &x[i]);
    let [t, s] = [q, k].map(|x| x.shape()[2]);
    let scale = op.scale.unwrap_or(1.0 / (q.shape()[3] as f32).sqrt());
    let mut scores = q.matmul(&k.transpose()?)?.affine(scale, 0.0)?;
    if op.causal {
        let count = |n: usize, axis: usize| {
            let shape = if axis == 0 { [n, 1] } else { [1, n] };
            q.scalar(1.0)?.broadcast(&shape)?.contiguous()?.cumsum(axis)
        };
        scores = scores.masked_fill(&count(s, 1)?.gt(&count(t, 0)?)?, f32::NEG_INFINITY)?;
    }
    scores.softmax()?.matmul(v)
}

fn attentions(runtime: &Runtime) {
    for [b, h, t, s, d] in [
        [1, 1, 1, 1, 1],
        [2, 3, 4, 4, 5],
        [2, 1, 40, 150, 9],
        [1, 2, 150, 40, 16],
        [1, 1, 70, 300, 33],
    ] {
        for causal in [false, true] {
            for scale in [None, Some(-0.7)] {
                let op = Attention { causal, scale };
                let [q, k] = [[b, h, t, d], [b, h, s, d]];
                same(
                    runtime,
                    &[&q, &k, &k],
                    &format!("{op:?}"),
                    &|x| x[0].attention(&x[1], &x[2], op),
                    &|x| attention(x, op),
                );
                // Queries are views of one matrix; keys and values are views of another matrix. A
                // row has all heads of a token.
                let beside = |x: &Tensor, axis: usize| {
                    let n = x.shape()[0] / b;
                    x.slice(1, axis * h * d..(axis + 1) * h * d)?
                        .contiguous()?
                        .reshape(&[b, n, h, d])?
                        .permute(&[0, 2, 1, 3])
                };
                let part = |x: &[Tensor]| -> Result<Vec<Tensor>, Error> {
                    (0..3).map(|axis| beside(&x[usize::from(axis > 0)], axis)).collect()
                };
                let [q, k] = [[b * t, 3 * h * d], [b * s, 3 * h * d]];
                same(
                    runtime,
                    &[&q, &k],
                    &format!("{op:?} of heads beside each other"),
                    &|x| {
                        let x = part(x)?;
                        x[0].attention(&x[1], &x[2], op)
                    },
                    &|x| attention(&part(x)?, op),
                );
            }
        }
    }
}

/// Checks gradients through the second output, the logarithms of the sums of exponentials.
fn sums_of_attention(runtime: &Runtime) {
    for causal in [false, true] {
        let op = Attention { causal, scale: Some(0.5) };
        same(
            runtime,
            &[&[2, 2, 9, 6], &[2, 2, 9, 6], &[2, 2, 9, 6]],
            "sums of exponentials",
            &|x| {
                let all = Tensor::apply(op, &[&x[0], &x[1], &x[2]])?;
                all[1].add(&all[0].sum_along(&[3], false)?)
            },
            &|x| {
                let mut scores = x[0].matmul(&x[1].transpose()?)?.affine(0.5, 0.0)?;
                if causal {
                    let ones = x[0].scalar(1.0)?.broadcast(&[9, 9])?.contiguous()?;
                    let hidden = ones.cumsum(1)?.gt(&ones.cumsum(0)?)?;
                    scores = scores.masked_fill(&hidden, -1e30)?;
                }
                let y = attention(x, op)?.sum_along(&[3], false)?;
                scores.logsumexp(&[3], false)?.add(&y)
            },
        );
    }
}

/// Computes the steps of an LSTM by plain ops, one step after another. Returns `y`, `c` and the
/// gates of all steps, and the last `y` and `c`.
fn lstm_steps(x: &[Tensor]) -> Result<[Tensor; 5], Error> {
    let [sums, weight, bias] = [0, 1, 2].map(|i| &x[i]);
    let (mut h, mut c) = (x[3].clone(), x[4].clone());
    let mut all = [const { Vec::new() }; 3];
    for step in sums.split(1, 1)? {
        let step = step.reshape(&[h.shape()[0], weight.shape()[0]])?;
        let of_gates = step.add(&h.matmul(&weight.t()?)?)?.add(bias)?;
        let parts = of_gates.split(h.shape()[1], 1)?;
        let [i, f, o] = [0, 1, 3].map(|k| parts[k].sigmoid());
        let (i, f, g, o) = (i?, f?, parts[2].tanh()?, o?);
        c = f.mul(&c)?.add(&i.mul(&g)?)?;
        h = o.mul(&c.tanh()?)?;
        let gates = Tensor::concat(&[&i, &f, &g, &o], 1)?;
        for (all, of_step) in all.iter_mut().zip([&h, &c, &gates]) {
            all.push(of_step.clone());
        }
    }
    let [y, each, gates] = all.map(|of| Tensor::stack(&of.iter().collect::<Vec<_>>(), 1));
    Ok([y?, each?, gates?, h, c])
}

fn recurrent_steps(runtime: &Runtime) {
    for [n, t, h] in [[1, 1, 1], [2, 3, 4], [5, 4, 7], [17, 2, 5], [3, 2, 50]] {
        let shapes: [&[usize]; 5] = [&[n, t, 4 * h], &[4 * h, h], &[4 * h], &[n, h], &[n, h]];
        let fused = |x: &[Tensor]| {
            let inputs: Vec<&Tensor> = x.iter().collect();
            Tensor::apply(LstmSteps, &inputs)
        };
        // Scale the inputs down, because large sums would make all gates nearly 0 or 1.
        let less = |x: &[Tensor]| -> Result<Vec<Tensor>, Error> {
            x.iter().map(|x| x.affine(1.0 / (h as f32).sqrt(), 0.0)).collect()
        };
        let joined = |of: &[&Tensor]| {
            let flat = of.iter().map(|x| x.reshape(&[x.layout().elements()]));
            let flat = flat.collect::<Result<Vec<_>, Error>>()?;
            Tensor::concat(&flat.iter().collect::<Vec<_>>(), 0)
        };
        for kept in [&[0][..], &[3, 4], &[0, 4], &[0, 1, 2, 3, 4]] {
            same(
                runtime,
                &shapes,
                &format!("outputs {kept:?} of LSTM steps"),
                &|x| {
                    let all = fused(&less(x)?)?;
                    joined(&kept.iter().map(|&i| &all[i]).collect::<Vec<_>>())
                },
                &|x| {
                    let all = lstm_steps(&less(x)?)?;
                    joined(&kept.iter().map(|&i| &all[i]).collect::<Vec<_>>())
                },
            );
        }
    }
}

fn cpu() -> Runtime {
    Runtime::builder().budget("16MiB").threads(2).cpu().unwrap()
}

#[test]
fn norms_are_what_they_are_made_of() {
    norms(&cpu());
}

#[test]
fn cross_entropies_are_what_they_are_made_of() {
    cross_entropies(&cpu());
}

#[test]
fn activations_are_what_they_are_made_of() {
    activations(&cpu());
}

#[test]
fn attention_is_what_it_is_made_of() {
    attentions(&cpu());
    sums_of_attention(&cpu());
}

#[test]
fn recurrent_steps_are_what_they_are_made_of() {
    recurrent_steps(&cpu());
}

#[cfg(feature = "cuda")]
#[test]
fn on_cuda_they_are_as_well() {
    use crate::device::cuda::{Cuda, context_for_tests};
    let Some(gpu) = context_for_tests() else { return };
    let device = move |bytes| Cuda::of(&gpu, bytes);
    let runtime = Runtime::builder().budget("16MiB").device(device).unwrap();
    norms(&runtime);
    cross_entropies(&runtime);
    activations(&runtime);
    attentions(&runtime);
    sums_of_attention(&runtime);
    recurrent_steps(&runtime);
}
