//! Optimizers make the updates of PyTorch's optimizers in float64, as computed by
//! `tests/fixtures/optimizers.py`. The bits are the same however updates are grouped.

use crate::common::device::targets;
use remat::autograd::Gradients;
use remat::nn::{Mode, Module, ResNet, State, mlp, resnet, state};
use remat::optim::{Group, Optimizer, Rule, Schedule, clip_grad_norm};
use remat::prelude::*;
use serde_json::Value;

/// Largest allowed error, as a share of the largest element.
const TOLERANCE: f64 = 1e-5;

/// Two tensors, each moving towards a goal.
struct Pair {
    weight: Tensor,
    vector: Tensor,
    goals: [Tensor; 2],
    curves: [Tensor; 2],
}

impl Module for Pair {
    fn forward(&mut self, _x: &Tensor, _mode: Mode) -> Result<Tensor, Error> {
        let all = [&self.weight, &self.vector].into_iter().zip(&self.goals).zip(&self.curves);
        let mut terms = all.map(|((x, goal), curve)| x.sub(goal)?.square()?.mul(curve)?.sum());
        let first = terms.next().expect("two")?;
        first.add(&terms.next().expect("two")?)
    }

    fn state<'a>(&'a mut self, _prefix: &str, found: &mut Vec<(String, State<'a>)>) {
        found.push(("weight".to_owned(), State::Parameter(&mut self.weight)));
        found.push(("vector".to_owned(), State::Parameter(&mut self.vector)));
    }
}

fn floats(value: &Value) -> Vec<f64> {
    value.as_array().expect("a list").iter().map(|x| x.as_f64().expect("a number")).collect()
}

impl Pair {
    fn new(runtime: &Runtime, case: &Value) -> Result<Self, Error> {
        let tensor = |what: &str, i: usize| {
            let shape: &[usize] = [&[3, 4][..], &[5]][i];
            runtime.tensor(shape, floats(&case[what][i]).iter().map(|&x| x as f32).collect())
        };
        let both = |what| Ok::<_, Error>([tensor(what, 0)?, tensor(what, 1)?]);
        let [weight, vector] = both("start")?;
        Ok(Self { weight, vector, goals: both("goals")?, curves: both("curves")? })
    }
}

/// Optimizer of a case, and its learning rates.
fn optimizer_of(name: &str) -> (Optimizer, Schedule) {
    let stairs = Schedule::constant(0.1).then(3, Schedule::constant(0.01)).warmup(4);
    let (optimizer, schedule) = match name {
        "sgd" => (Optimizer::sgd(0.05, 0.0, 0.0), None),
        "momentum" => (Optimizer::sgd(0.02, 0.9, 0.01), None),
        "nesterov" => {
            (Optimizer::new(Rule::Sgd { momentum: 0.9, nesterov: true }, 0.02, 0.01), None)
        }
        "adamw" => (Optimizer::adamw(0.1, 0.1), None),
        "adamw of groups" => {
            let vector = Group::vectors().lr_scale(0.5).weight_decay(0.0);
            (Optimizer::adamw(0.1, 0.1).group(vector), None)
        }
        "lion" => (Optimizer::lion(0.03, 0.1), None),
        "clipped" => {
            let mut sgd = Optimizer::sgd(0.1, 0.9, 0.0);
            sgd.max_norm = Some(2.0);
            (sgd, None)
        }
        "scheduled" => (Optimizer::adamw(0.1, 0.01), Some(stairs)),
        other => panic!("no optimizer for {other}"),
    };
    let constant = Schedule::constant(optimizer.lr);
    (optimizer, schedule.unwrap_or(constant))
}

/// Runs a case of the fixture. Returns a text about the first difference, if any.
fn differs(runtime: &Runtime, case: &Value, in_backward: bool) -> Result<Option<String>, Error> {
    let name = case["name"].as_str().expect("a name");
    let mut pair = Pair::new(runtime, case)?;
    let (mut optimizer, schedule) = optimizer_of(name);
    optimizer.step_in_backward = in_backward;
    let nothing = runtime.zeros(&[1])?;
    for (step, expected) in case["path"].as_array().expect("a list").iter().enumerate() {
        optimizer.lr = schedule.rate(step);
        let tape = Tape::new(runtime);
        tape.watch(&mut pair);
        let loss = pair.forward(&nothing, Mode::Train)?;
        optimizer.minimize(tape, &loss, &mut pair)?;
        runtime.step()?;
        for (i, x) in [&pair.weight, &pair.vector].into_iter().enumerate() {
            let (found, expected) = (x.to_vec::<f32>()?, floats(&expected[i]));
            let largest = expected.iter().fold(0.0f64, |largest, x| largest.max(x.abs()));
            let near = |(&a, &b): (&f32, &f64)| (f64::from(a) - b).abs() <= TOLERANCE * largest;
            if !found.iter().zip(&expected).all(near) {
                return Ok(Some(format!("{name}, step {step}: {found:?}, expected {expected:?}")));
            }
        }
    }
    Ok(None)
}

#[test]
fn ten_steps_are_those_of_pytorch() {
    let cases: Value = serde_json::from_str(include_str!("fixtures/optimizers.json")).unwrap();
    let cases = cases.as_array().unwrap();
    assert_eq!(cases.len(), 8);
    for target in targets() {
        for case in cases {
            for in_backward in [true, false] {
                let runtime = target.start(Runtime::builder().budget("1MiB"));
                assert_eq!(differs(&runtime, case, in_backward).unwrap(), None, "{target:?}");
            }
        }
    }
}

#[test]
fn norms_are_those_of_pytorch() {
    let cases: Value = serde_json::from_str(include_str!("fixtures/optimizers.json")).unwrap();
    let case = cases.as_array().unwrap().iter().find(|case| case["name"] == "clipped").unwrap();
    let runtime = Runtime::builder().budget("1MiB").cpu().unwrap();
    let mut pair = Pair::new(&runtime, case).unwrap();
    let tape = Tape::new(&runtime);
    tape.watch(&mut pair);
    let loss = pair.forward(&runtime.zeros(&[1]).unwrap(), Mode::Train).unwrap();
    let mut gradients = tape.backward(&loss).unwrap();
    let norm = clip_grad_norm(&runtime, &mut pair, &mut gradients, 2.0).unwrap().item().unwrap();
    let expected = floats(&case["norms"])[0];
    assert!((f64::from(norm) - expected).abs() < 1e-5 * expected, "{norm}, expected {expected}");
}

/// Small network with its optimizer. [`Self::loss`] makes images and labels.
struct Learner {
    runtime: Runtime,
    network: Box<dyn Module>,
    optimizer: Optimizer,
}

const BATCH: usize = 8;

impl Learner {
    fn new(runtime: Runtime, optimizer: Optimizer, batch_norm: bool) -> Result<Self, Error> {
        let network: Box<dyn Module> = match batch_norm {
            true => Box::new(resnet(&runtime, ResNet::Cifar { n: 1 }, 1, [8, 8], 4)?),
            false => Box::new(mlp(&runtime, 64, &[32, 32, 32], 4)?),
        };
        Ok(Self { runtime, network, optimizer })
    }

    /// Loss of `n` images of a step, beginning with image number `from`.
    fn loss(&mut self, step: usize, from: usize, n: usize) -> Result<Tensor, Error> {
        let pixel = |i: usize| ((i * 37 + step * 11) % 64) as f32 / 32.0 - 1.0;
        let images = (from * 64..(from + n) * 64).map(pixel).collect();
        let x = self.runtime.tensor(&[n, 1, 8, 8], images)?;
        let labels = (from..from + n).map(|i| ((i + step) % 4) as i32).collect();
        let labels = self.runtime.tensor(&[n], labels)?;
        self.network.forward(&x, Mode::Train)?.cross_entropy(&labels)
    }

    /// Runs a step whose batch comes in `parts` parts.
    fn step(&mut self, step: usize, parts: usize) -> Result<(), Error> {
        let mut gradients = Gradients::default();
        let each = BATCH / parts;
        for part in 0..parts {
            let tape = Tape::new(&self.runtime);
            tape.watch(&mut *self.network);
            let mut loss = self.loss(step, part * each, each)?;
            if parts > 1 {
                loss = (loss / parts as f32)?;
            }
            if part + 1 < parts {
                tape.backward_onto(&loss, &mut gradients)?;
            } else {
                let gradients = std::mem::take(&mut gradients);
                self.optimizer.minimize_with(tape, &loss, &mut *self.network, gradients)?;
            }
        }
        self.runtime.step()
    }

    /// All state of the network and of the optimizer.
    fn values(&mut self) -> Result<Vec<HostTensor>, Error> {
        let mut found = Vec::new();
        for (_, state) in state(&mut *self.network) {
            let (State::Parameter(tensor) | State::Buffer(tensor)) = state;
            found.push(self.runtime.get(tensor)?);
        }
        for (_, _, tensor) in self.optimizer.states() {
            found.push(self.runtime.get(tensor)?);
        }
        self.runtime.sync()?;
        Ok(found)
    }
}

fn each_optimizer() -> [Optimizer; 3] {
    let vectors = || Group::vectors().weight_decay(0.0);
    [
        Optimizer::sgd(0.1, 0.9, 1e-3),
        Optimizer::adamw(0.01, 0.1).group(vectors()),
        Optimizer::lion(0.003, 0.1).group(vectors()),
    ]
}

/// How parameters are updated.
#[derive(Clone, Copy, Debug)]
enum How {
    InBackward,
    AllOrNone,
    /// Several parameters at once, up to this share of the budget.
    Fused(f64),
}

fn train(
    budget: u64,
    mut optimizer: Optimizer,
    how: How,
    parts: usize,
    batch_norm: bool,
) -> Result<(Vec<HostTensor>, u64), Error> {
    match how {
        How::InBackward => {}
        How::AllOrNone => optimizer.all_or_none = true,
        How::Fused(share) => {
            optimizer.step_in_backward = false;
            optimizer.fused_share = share;
        }
    }
    let runtime = Runtime::builder().budget(budget).seed(3).threads(1).cpu()?;
    let mut learner = Learner::new(runtime, optimizer, batch_norm)?;
    for step in 0..3 {
        learner.step(step, parts)?;
    }
    let values = learner.values()?;
    Ok((values, learner.runtime.stats()?.peak_bytes))
}

const AMPLE: u64 = 64 << 20;

#[test]
fn bits_do_not_depend_on_when_and_in_what_groups_updates_are_made() {
    for kind in 0..3 {
        let optimizer = || each_optimizer().into_iter().nth(kind).unwrap();
        let run = |how, parts| train(AMPLE, optimizer(), how, parts, true).unwrap().0;
        for parts in [1, 2] {
            let expected = run(How::InBackward, parts);
            for how in [How::AllOrNone, How::Fused(0.0), How::Fused(1e-3), How::Fused(1.0 / 16.0)] {
                assert!(run(how, parts) == expected, "{kind} {how:?} in {parts} parts");
            }
        }
    }
}

#[test]
fn bits_do_not_depend_on_the_budget() {
    for kind in 0..3 {
        let optimizer = || each_optimizer().into_iter().nth(kind).unwrap();
        for (how, parts) in [(How::InBackward, 2), (How::Fused(1.0 / 16.0), 4)] {
            let (expected, peak) = train(AMPLE, optimizer(), how, parts, true).unwrap();
            let least = smallest(peak, |budget| train(budget, optimizer(), how, parts, true));
            assert!(least < peak, "{least} of {peak}");
            for budget in [least, (least + peak) / 2, peak] {
                let (found, used) = train(budget, optimizer(), how, parts, true).unwrap();
                assert!(found == expected, "{kind} {how:?} {budget}");
                assert!(used <= budget);
            }
        }
    }
}

/// Smallest budget that passes, in steps of 1 % of the peak.
fn smallest<T>(peak: u64, run: impl Fn(u64) -> Result<T, Error>) -> u64 {
    let passes = |percent: u64| run(peak * percent / 100).is_ok();
    let (mut low, mut high) = (1, 100);
    while low < high {
        let middle = (low + high) / 2;
        if passes(middle) { high = middle } else { low = middle + 1 }
    }
    peak * high / 100
}

#[test]
fn groups_of_updates_need_no_larger_budget_than_single_ones() {
    for optimizer in 0..3 {
        let least = |share| {
            let run = |budget| {
                let optimizer = each_optimizer().into_iter().nth(optimizer).unwrap();
                train(budget, optimizer, How::Fused(share), 1, true)
            };
            smallest(run(AMPLE).unwrap().1, run)
        };
        let (fused, single) = (least(1.0 / 16.0), least(0.0));
        assert!(fused <= single, "optimizer {optimizer}: {fused}, and one by one {single}");
    }
}

#[test]
fn micro_batches_come_to_the_batch_but_for_rounding() {
    for kind in 0..2 {
        for how in [How::InBackward, How::Fused(1.0 / 16.0)] {
            let run = |parts| {
                let optimizer = each_optimizer().into_iter().nth(kind).unwrap();
                train(AMPLE, optimizer, how, parts, false).unwrap().0
            };
            let whole = run(1);
            for parts in [2, 4, 8] {
                for (found, expected) in run(parts).iter().zip(&whole) {
                    let (found, expected) = (found.as_f32().unwrap(), expected.as_f32().unwrap());
                    for (a, b) in found.iter().zip(expected) {
                        assert!((a - b).abs() < 2e-4, "{how:?} in {parts} parts: {a}, {b}");
                    }
                }
            }
        }
    }
}

#[test]
fn stepping_in_the_backward_pass_saves_the_gradients() {
    // Parameters are larger than activations.
    let peak = |in_backward| {
        let runtime = Runtime::builder().budget(AMPLE).threads(1).cpu().unwrap();
        let mut network = mlp(&runtime, 64, &[256; 6], 4).unwrap();
        let bytes: u64 = remat::nn::parameters(&mut network).map(|(_, p)| p.layout().bytes()).sum();
        let mut optimizer = Optimizer::sgd(0.1, 0.9, 0.0);
        optimizer.step_in_backward = in_backward;
        let network: Box<dyn Module> = Box::new(network);
        let mut learner = Learner { runtime, network, optimizer };
        for step in 0..3 {
            learner.step(step, 1).unwrap();
        }
        (learner.runtime.stats().unwrap().peak_bytes, bytes)
    };
    let ((in_backward, bytes), (after, _)) = (peak(true), peak(false));
    let saved = after - in_backward;
    assert!(saved * 10 > bytes * 6, "{in_backward} and {after}, with {bytes} of parameters");
}

/// A failed step changes nothing, and is not counted as a step of the optimizer.
#[test]
fn a_step_that_fails_does_not_count() {
    let run = |fails: bool| {
        let runtime = Runtime::builder().budget(AMPLE).seed(3).threads(1).cpu().unwrap();
        let mut optimizer = Optimizer::adamw(0.01, 0.1);
        optimizer.all_or_none = true;
        let mut learner = Learner::new(runtime, optimizer, true).unwrap();
        learner.step(0, 1).unwrap();
        if fails {
            let huge = learner.runtime.full(&[AMPLE as usize], 1.0).unwrap();
            let poison = huge.sum().unwrap();
            drop(huge);
            let tape = Tape::new(&learner.runtime);
            tape.watch(&mut *learner.network);
            let loss = learner.loss(1, 0, BATCH).unwrap().add(&poison).unwrap();
            let error = learner.optimizer.minimize(tape, &loss, &mut *learner.network).unwrap_err();
            assert!(matches!(error, Error::OutOfMemory(_)), "{error}");
            drop((loss, poison));
            learner.runtime.step().unwrap();
        }
        learner.step(1, 1).unwrap();
        learner.values().unwrap()
    };
    assert!(run(true) == run(false));
}

/// One op updates many tensors.
#[test]
fn updates_are_few_ops() {
    let ops = |share: f64| {
        let runtime = Runtime::builder().budget(AMPLE).threads(1).cpu().unwrap();
        let mut optimizer = Optimizer::sgd(0.1, 0.9, 0.0);
        optimizer.step_in_backward = false;
        optimizer.fused_share = share;
        let mut learner = Learner::new(runtime, optimizer, true).unwrap();
        learner.step(0, 1).unwrap();
        let tensors = remat::nn::parameters(&mut *learner.network).count() as u64;
        (learner.runtime.stats().unwrap().ops, tensors)
    };
    let ((fused, tensors), (single, _)) = (ops(1.0 / 16.0), ops(0.0));
    assert_eq!(single - fused, tensors - 1);
}
