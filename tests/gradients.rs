//! Gradients of every op, and gradients of gradients, agree with central differences. Gradients
//! have the same bits when memory is short. The tests go through the registry of ops, so a new op
//! is tested as soon as it has samples.

use crate::common::cells;
use crate::common::device::{Target, targets};
use crate::common::walk::{Case, H, Pass, constant_inputs};
use remat::autograd::Tape;
use remat::op::Operation;
use remat::ops::{BatchNormParameters, Distribution, Op};
use remat::unstable::ops::samples::each;
use remat::unstable::ops::{Accumulate, CrossEntropy, Random};
use remat::{Error, HostTensor, PolicyKind, Runtime, Stats, Tensor};
use std::collections::BTreeSet;

/// Ops without a gradient.
const MISSING: [&str; 4] = ["accumulate", "adamw", "lion", "sgd_momentum"];

/// Number of samples of each op, if `REMAT_ALL_CELLS` is set.
const SAMPLES: usize = 20;

/// Comparison of gradients with differences, on one device.
struct Comparison {
    runtime: Runtime,
    /// Number of samples of each op.
    samples: usize,
    /// Number of elements of each operand that are changed one at a time. All elements are also
    /// changed together.
    moved: usize,
}

impl Comparison {
    fn on(target: Target) -> Self {
        let runtime = target.start(Runtime::builder().budget("4MiB").threads(1));
        let (one_in, moved) = if target.is_pretend() { (5, 2) } else { (2, 6) };
        let samples = cells(0..SAMPLES, one_in).count();
        Self { runtime, samples, moved }
    }
}

/// Ops with a gradient.
fn with_gradient() -> impl Iterator<Item = Op> {
    each().into_iter().filter(|op| !MISSING.contains(&op.name()))
}

/// Inputs with elements moved: `by[i]` is added to input `i`; `None` adds nothing.
fn moved(hosts: &[HostTensor], by: &[Option<Vec<f32>>]) -> Vec<HostTensor> {
    let each = hosts.iter().zip(by).map(|(host, by)| {
        let Some(by) = by else { return host.clone() };
        let values = host.as_f32().unwrap().iter().zip(by).map(|(x, by)| x + by);
        HostTensor::f32(*host.shape(), values.collect()).unwrap()
    });
    each.collect()
}

impl Comparison {
    /// Checks the gradients of order `order` by differences of the values of the previous order.
    /// Returns whether any gradient is not zero.
    fn check(&self, case: &Case, order: usize) -> Result<bool, Error> {
        let hosts = case.hosts();
        let mut pass = Pass::start(&self.runtime, case, &hosts)?;
        pass.derive(order - 1)?;
        let found = pass.finish()?;
        let found: Vec<Option<Vec<f32>>> = (found.iter().zip(&case.given))
            .map(|(found, given)| {
                if !given.watched {
                    assert!(found.is_none(), "{}: a gradient of what is not watched", case.name);
                    return Ok(None);
                }
                let zeros = || Ok(vec![0.0; given.host.shape().elements()]);
                if let Some(found) = found {
                    assert_eq!(found.layout().shape(), given.host.shape(), "{}", case.name);
                }
                found.as_ref().map_or_else(zeros, Tensor::to_vec).map(Some)
            })
            .collect::<Result<_, Error>>()?;

        let sum = |by: &[Option<Vec<f32>>], times: f32| {
            let scaled = |by: &Vec<f32>| by.iter().map(|by| by * times).collect();
            let by: Vec<Option<Vec<f32>>> = by.iter().map(|by| by.as_ref().map(scaled)).collect();
            let mut pass = Pass::start(&self.runtime, case, &moved(&hosts, &by))?;
            pass.derive(order - 1)?;
            pass.sum()
        };
        let compare = |what: &str, by: &[Option<Vec<f32>>]| {
            let products = found.iter().flatten().flatten().zip(by.iter().flatten().flatten());
            let found = products.map(|(dx, by)| f64::from(*dx) * f64::from(*by)).sum::<f64>();
            // The error of the difference is of order H^4.
            let [[a, size], [b, _], [c, _], [d, _]] =
                [sum(by, 2.0 * H)?, sum(by, H)?, sum(by, -H)?, sum(by, -2.0 * H)?];
            let expected = (8.0 * (b - c) - (a - d)) / (12.0 * f64::from(H));
            let (error, rounding) = ((found - expected).abs(), 4e-5 * size);
            assert!(
                error <= 1e-3 * (1.0 + expected.abs()) + rounding,
                "{}: order {order}, {what}: {found} by the tape, {expected} by differences",
                case.name
            );
            Ok::<(), Error>(())
        };

        let still: Vec<Option<Vec<f32>>> =
            found.iter().map(|dx| dx.as_ref().map(|dx| vec![0.0; dx.len()])).collect();
        for (i, dx) in found.iter().enumerate() {
            let count = dx.as_ref().map_or(0, Vec::len);
            for at in (0..count).step_by(count.div_ceil(self.moved).max(1)) {
                let mut by = still.clone();
                by[i].as_mut().expect("it is watched")[at] = 1.0;
                compare(&format!("input {i}, element {at}"), &by)?;
            }
        }
        let sign = |(i, by): (usize, &mut f32)| *by = if i * i % 3 == 0 { 1.0 } else { -1.0 };
        let mut all = still;
        all.iter_mut().flatten().for_each(|by| by.iter_mut().enumerate().for_each(sign));
        compare("all together", &all)?;
        Ok(found.iter().flatten().flatten().any(|&dx| dx != 0.0))
    }

    /// Checks samples of an op. Returns whether some gradient is not zero.
    fn check_op(&self, op: &Op, order: usize) -> bool {
        let mut any = false;
        for mut case in Case::small(op, self.samples) {
            for &i in constant_inputs(op) {
                case.given[i].watched = false;
            }
            any |= self.check(&case, order).unwrap_or_else(|e| panic!("{}: {e}", case.name));
        }
        any
    }

    /// Whether the function is linear, or has kinks at 0 only: from input 0, twice the inputs change
    /// the result twice as much.
    fn doubles(&self, case: &Case) -> bool {
        let hosts = case.hosts();
        let at = |times: f32| {
            let by = hosts
                .iter()
                .map(|x| x.as_f32().map(|x| x.iter().map(|x| (times - 1.0) * x).collect()));
            Pass::start(&self.runtime, case, &moved(&hosts, &by.collect::<Vec<_>>()))
                .unwrap()
                .sum()
                .unwrap()
        };
        let [[zero, _], [once, _], [twice, size]] = [at(0.0), at(1.0), at(2.0)];
        ((twice - zero) - 2.0 * (once - zero)).abs() <= 1e-5 * (1.0 + size)
    }
}

#[test]
fn gradients_are_what_differences_say() {
    for target in targets() {
        let comparison = Comparison::on(target);
        for op in with_gradient() {
            comparison.check_op(&op, 1);
        }
    }
}

#[test]
fn gradients_of_gradients_are_what_differences_say() {
    for target in targets() {
        let comparison = Comparison::on(target);
        let (curved, straight): (Vec<_>, Vec<_>) =
            with_gradient().partition(|op| comparison.check_op(op, 2));
        let names =
            |ops: &[Op]| ops.iter().map(|op| op.name().to_owned()).collect::<Vec<_>>().join(" ");
        println!("second order: {}", names(&curved));
        println!("zero: {}", names(&straight));
        for op in straight {
            // If all second gradients of an op are zero, the reason is not a lack of samples: the
            // op is constant, or linear apart from kinks.
            let is_flat = !comparison.check_op(&op, 1);
            let cases = Case::small(&op, comparison.samples);
            assert!(is_flat || cases.iter().all(|case| comparison.doubles(case)), "{}", op.name());
        }
    }
}

#[test]
fn gradients_are_missing_of_what_updates_in_place() {
    let runtime = Comparison::on(Target::Cpu).runtime;
    let is_missing = |op: &Op| {
        let error = |case: &Case| Pass::start(&runtime, case, &case.hosts()).err();
        let errors = Case::small(op, SAMPLES).iter().filter_map(error).collect::<Vec<_>>();
        let has_none = |error: &Error| error.to_string().contains("has no gradient");
        assert!(errors.iter().all(has_none), "{}: {errors:?}", op.name());
        !errors.is_empty()
    };
    let missing = each().into_iter().filter(is_missing);
    let names: BTreeSet<String> = missing.map(|op| op.name().to_owned()).collect();
    assert_eq!(names.iter().map(String::as_str).collect::<Vec<_>>(), MISSING);
}

#[test]
fn running_statistics_are_constants_to_the_gradient() {
    let runtime = Comparison::on(Target::Cpu).runtime;
    for op in each() {
        for case in Case::small(&op, SAMPLES) {
            let constant = constant_inputs(&op);
            if constant.is_empty() {
                continue;
            }
            let mut pass = Pass::start(&runtime, &case, &case.hosts()).unwrap();
            for _ in 0..2 {
                pass.derive(1).unwrap();
                assert!(constant.iter().all(|&i| pass.values[i].is_none()), "{}", case.name);
            }
        }
    }
    let put = |shape: &[usize], values: &[f32]| runtime.tensor(shape, values.to_vec()).unwrap();
    let mut x = put(&[3, 1], &[1.0, 2.0, 4.0]);
    let [gamma, beta, mean, var] = [(); 4].map(|()| put(&[1], &[1.0]));
    let tape = Tape::new(&runtime);
    tape.watch(&mut x);
    let with =
        BatchNormParameters { gamma: &gamma, beta: &beta, running_mean: &mean, running_var: &var };
    let output = x.batch_norm(&with, 0.5, 1e-3).unwrap();
    let running = output.running_mean.add(&output.running_var).unwrap().sum().unwrap();
    assert!(tape.backward(&running).unwrap().get(&x).is_none());
}

/// The third derivative exists only through the statistics of the batch, which are inputs of the
/// gradient's op.
#[test]
fn batch_norm_has_a_third_order() {
    for target in targets() {
        let op = each().into_iter().find(|op| matches!(op, Op::BatchNorm(_))).unwrap();
        assert!(Comparison::on(target).check_op(&op, 3));
    }
}

#[test]
fn tensors_used_twice_add_up() {
    let cases = [
        Case::of("the same twice", &[&[2, 3]], |_, x| {
            x[0].mul(&x[0])?.div(&x[0].exp()?)?.add(&x[0])
        }),
        Case::of("matmul with itself", &[&[3, 3]], |_, x| x[0].matmul(&x[0].transpose()?)),
        Case::of("slices that overlap", &[&[6]], |_, x| {
            x[0].slice(0, 0..4)?.mul(&x[0].slice(0, 2..6)?)
        }),
        Case::of("concat of the same", &[&[2, 3], &[1, 3], &[3, 2]], |_, x| {
            Tensor::concat(&[&x[0], &x[1], &x[2].transpose()?, &x[0]], 0)?.square()
        }),
        Case::of("cross entropy, both outputs", &[&[3, 4]], |runtime, x| {
            let labels = runtime.tensor(&[3], vec![1, 1, 0])?;
            let both = Tensor::apply(CrossEntropy::default(), &[&x[0], &labels])?;
            both[0].mul(&both[1])
        }),
        Case::of("reduce, strided", &[&[3, 2, 4]], |_, x| {
            let turned = x[0].permute(&[2, 0, 1])?;
            let sum = turned.sum_along(&[0, 2], false)?;
            let mean = turned.mean_along(&[0, 2], false)?;
            sum.mul(&mean)?.mul(&turned.max_along(&[0, 2], false)?)
        }),
        Case::of("dropout", &[&[4, 5]], |runtime, x| {
            let distribution = Distribution::Bernoulli { p: 0.5 };
            let op = Random { distribution, shape: *x[0].layout().shape(), key: 1, counter: 2 };
            let mask = runtime.apply(op, &[])?.swap_remove(0);
            x[0].square()?.mul(&mask.affine(2.0, 0.0)?)
        }),
        Case::of("softmax, strided", &[&[4, 3]], |_, x| {
            let turned = x[0].transpose()?.softmax()?.square()?.sum()?;
            let part = x[0].slice(1, 1..3)?.softmax()?.square()?.sum()?;
            turned.mul(&part)
        }),
    ];
    for target in targets() {
        let comparison = Comparison::on(target);
        for (case, order) in cases.iter().flat_map(|case| [(case, 1), (case, 2)]) {
            let is_curved = comparison.check(case, order).unwrap();
            assert!(is_curved, "{}: order {order} is zero", case.name);
        }
    }
}

#[test]
fn the_second_derivative_of_a_cube_is_six_times_its_root() {
    for target in targets() {
        let runtime = Comparison::on(target).runtime;
        let mut x = runtime.tensor(&[4], vec![-2.0, 0.0, 0.5, 3.0]).unwrap();
        let tape = Tape::new(&runtime);
        tape.watch(&mut x);
        let cube = x.mul(&x).unwrap().mul(&x).unwrap().sum().unwrap();
        let slope = tape.backward_with_graph(&cube).unwrap().take(&x).unwrap();
        assert_eq!(slope.to_vec::<f32>().unwrap(), [12.0, 0.0, 0.75, 27.0]);
        let bend = tape.backward_with_graph(&slope.sum().unwrap()).unwrap().take(&x).unwrap();
        assert_eq!(bend.to_vec::<f32>().unwrap(), [-12.0, 0.0, 3.0, 18.0]);
        let third = tape.backward(&bend.sum().unwrap()).unwrap().take(&x).unwrap();
        assert_eq!(third.to_vec::<f32>().unwrap(), [6.0; 4]);
    }
}

/// Makes outputs, gradients and second gradients of all cases in a row. All are held to the end,
/// and then read.
fn program(runtime: &Runtime, cases: &[Case]) -> Result<(Vec<HostTensor>, Stats), Error> {
    let (mut passes, mut held) = (Vec::new(), Vec::new());
    for case in cases {
        let mut pass = Pass::start(runtime, case, &case.hosts())?;
        for _ in 0..2 {
            held.extend(pass.values.iter().flatten().cloned());
            pass.derive(1)?;
        }
        held.extend(pass.values.iter().flatten().cloned());
        passes.push(pass);
    }
    let read = held.iter().map(|tensor| runtime.get(tensor)).collect::<Result<_, _>>()?;
    Ok((read, runtime.stats()?))
}

#[test]
fn gradients_have_the_same_bits_under_every_budget() {
    let settings = [
        (0.4, PolicyKind::DtrEq),
        (0.4, PolicyKind::Random),
        (0.5, PolicyKind::Lru),
        (0.7, PolicyKind::Largest),
    ];
    for target in targets() {
        let [mut evictions, mut recomputed] = [0, 0];
        let builder = || Runtime::builder().threads(1).min_evict_bytes(0u64);
        let is_pretend = target.is_pretend();
        for (number, op) in with_gradient().enumerate() {
            let cases = Case::larger(&op).into_iter().step_by(if is_pretend { 3 } else { 1 });
            let cases: Vec<Case> = cases.collect();
            let plenty = target.start(builder().budget("64MiB"));
            let (expected, stats) = program(&plenty, &cases).unwrap();
            assert_eq!(stats.evictions, 0, "{}", op.name());
            let outputs =
                |case: &Case| Pass::start(&plenty, case, &case.hosts()).unwrap().values.len();
            let is_flat = expected.len() == cases.iter().map(outputs).sum::<usize>();
            drop(plenty);
            // On a GPU, the workspace of one case may be larger than all tensors, so the budget is
            // at least the peak of each case alone.
            let least = if target == Target::Cpu { 0 } else { largest(target, &cases) };
            // On a pretend GPU, each op runs in one of the settings.
            let at = number % settings.len();
            let tried = if is_pretend { &settings[at..=at] } else { &settings };
            for &(share, policy) in tried {
                let part = (stats.peak_bytes as f64 * share) as u64;
                let budget = part.max(least);
                let short = target.start(builder().budget(budget).policy(policy));
                let (found, stats) = program(&short, &cases)
                    .unwrap_or_else(|e| panic!("{} at {share}: {e}", op.name()));
                assert!(stats.peak_bytes <= budget, "{}", op.name());
                let is_short = stats.evictions > 0 && stats.recomputed_ops > 0;
                // If the cases of an op have no gradient, no value is read again, so nothing needs
                // to be recomputed.
                let may_do = is_flat || budget > part;
                assert!(is_short || may_do, "{} at {share}: {stats:?}", op.name());
                evictions += stats.evictions;
                recomputed += stats.recomputed_ops;
                assert_eq!(found.len(), expected.len());
                for (found, expected) in found.iter().zip(&expected) {
                    let same = found.as_bytes() == expected.as_bytes();
                    assert!(same, "{} at {share} by {policy:?}", op.name());
                }
            }
        }
        println!("{target:?}: {evictions} evictions, {recomputed} ops recomputed");
        assert!(evictions > 0 && recomputed > 0);
    }
}

/// Largest peak of any of the cases alone.
fn largest(target: Target, cases: &[Case]) -> u64 {
    let runtime = target.start(Runtime::builder().budget("64MiB").threads(1));
    for case in cases {
        program(&runtime, std::slice::from_ref(case)).unwrap();
    }
    runtime.stats().unwrap().peak_bytes
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
fn ops_and_values_without_a_gradient_are_errors() {
    let runtime = Runtime::builder().budget("1MiB").threads(1).cpu().unwrap();
    let mut x = runtime.put(HostTensor::f32([2], vec![1.0, 2.0]).unwrap()).unwrap();
    let tape = Tape::new(&runtime);
    tape.watch(&mut x);
    let error = runtime.apply(Accumulate, &[&x, &x]).unwrap_err().to_string();
    assert!(error.contains("accumulate") && error.contains("no gradient"), "{error}");
    let error = tape.backward(&x).unwrap_err().to_string();
    assert!(error.contains("scalar") && error.contains("[2]"), "{error}");
}
