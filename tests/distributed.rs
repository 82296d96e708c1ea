//! Data-parallel training on ranks that are threads. The result has the bits of one rank that runs
//! the parts of all ranks as micro-batches, whatever each rank evicts.

use crate::common::cells;
use remat::autograd::Gradients;
use remat::device::{DeviceError, cpu};
use remat::nn::{
    Gpt, Linear, LstmSize, Module, ResNet, State, Vit, gpt, join, lstm, mlp, parameters, resnet,
    state, vit,
};
use remat::ops::CustomOp;
use remat::optim::Optimizer;
use remat::prelude::*;
use remat::unstable::collective::{Ranks, threads};
use remat::unstable::lab::InMemory;
use remat::unstable::program::Command;
use remat::{Layout, Plan, PolicyKind, Stats};
use remat_rng::SplitMix64;

const STEPS: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Net {
    Mlp,
    Gpt,
    Lstm,
    Vit,
    /// A residual net with batch norms, which have running statistics.
    Norms,
    /// Three layers; the data of a step select the one that runs.
    Branches,
}

const NETS: [Net; 6] = [Net::Mlp, Net::Gpt, Net::Lstm, Net::Vit, Net::Norms, Net::Branches];

/// See [`Net::Branches`].
struct Branches([Linear; 3]);

impl Module for Branches {
    fn forward(&mut self, x: &Tensor, mode: Mode) -> Result<Tensor, Error> {
        // The number of rows, 2 to 4, selects the layer.
        self.0[x.shape()[0] - 2].forward(x, mode)
    }

    fn state<'a>(&'a mut self, prefix: &str, found: &mut Vec<(String, State<'a>)>) {
        for (i, layer) in self.0.iter_mut().enumerate() {
            layer.state(&join(prefix, i.to_string()), found);
        }
    }
}

impl Net {
    fn make(self, runtime: &Runtime) -> Box<dyn Module> {
        match self {
            Self::Mlp => Box::new(mlp(runtime, 64, &[48, 32, 32, 24], 10).unwrap()),
            Self::Gpt => {
                let size = Gpt {
                    vocabulary: 31,
                    context: 12,
                    layers: 2,
                    width: 16,
                    heads: 2,
                    dropout: 0.1,
                };
                Box::new(gpt(runtime, &size).unwrap())
            }
            Self::Lstm => {
                let storage = remat::DType::F32;
                let size = LstmSize { vocabulary: 31, width: 12, hidden: 16, layers: 2, storage };
                Box::new(lstm(runtime, size).unwrap())
            }
            Self::Vit => {
                let size = Vit {
                    image: [1, 8, 8],
                    patch: 4,
                    layers: 2,
                    width: 16,
                    heads: 2,
                    classes: 10,
                    dropout: 0.1,
                };
                Box::new(vit(runtime, &size).unwrap())
            }
            Self::Norms => {
                Box::new(resnet(runtime, ResNet::Cifar { n: 1 }, 1, [8, 8], 10).unwrap())
            }
            Self::Branches => {
                // The parameters of a layer are larger than the smallest message buffer.
                let layer = || Linear::new(runtime, 16, 40).unwrap();
                Box::new(Branches([layer(), layer(), layer()]))
            }
        }
    }

    /// Loss of a part of a batch, drawn by the numbers of step and part.
    fn loss(self, net: &mut dyn Module, runtime: &Runtime, step: usize, part: usize) -> Tensor {
        let mut numbers = SplitMix64::new((step * 64 + part) as u64);
        // Random draws of dropout depend on step and part alone.
        runtime.set_random_position(((step * 64 + part) << 16) as u64);
        let mut floats = |shape: &[usize]| {
            let count = shape.iter().product::<usize>();
            let values = (0..count).map(|_| numbers.below(1000) as f32 / 500.0 - 1.0).collect();
            runtime.tensor::<f32>(shape, values).unwrap()
        };
        let (x, rows, classes) = match self {
            Self::Mlp | Self::Vit => (floats(&[24, 1, 8, 8]), 24, 10),
            Self::Norms => (floats(&[4, 1, 8, 8]), 4, 10),
            Self::Branches => {
                // In step 2, no part uses the last layer. In most other steps, some part does not
                // use it.
                let rows = 2 + (step * 7 + part * 5) % if step == 2 { 2 } else { 3 };
                (floats(&[rows, 16]), rows, 4)
            }
            Self::Gpt | Self::Lstm => {
                let tokens: Vec<i32> = (0..96).map(|_| numbers.below(31) as i32).collect();
                (runtime.tensor(&[8, 12], tokens).unwrap(), 96, 31)
            }
        };
        let labels: Vec<i32> = (0..rows).map(|_| numbers.below(classes) as i32).collect();
        let labels = runtime.tensor(&[rows], labels).unwrap();
        let y = net.forward(&x, Mode::Train).unwrap();
        let y = y.reshape(&[rows, y.layout().elements() / rows]).unwrap();
        y.cross_entropy(&labels).unwrap()
    }
}

/// Settings that all ranks share.
#[derive(Clone, Copy, Debug)]
struct Case {
    net: Net,
    rule: usize,
    /// Micro-batches of each rank.
    parts: usize,
    /// 0: updates while the backward pass runs; 1: updates after; 2: all or none; 3: clipped.
    way: usize,
}

impl Case {
    fn optimizer(self) -> Optimizer {
        let mut optimizer = match self.rule {
            0 => Optimizer::sgd(0.1, 0.9, 1e-3),
            1 => Optimizer::adamw(0.01, 0.01),
            _ => Optimizer::lion(0.003, 0.1),
        };
        optimizer.step_in_backward = self.way == 0;
        optimizer.all_or_none = self.way == 2;
        optimizer.max_norm = (self.way == 3).then_some(0.5);
        optimizer
    }

    /// Trains on the parts of rank `rank` of `ranks`, or on all parts of a training of `ranks` if
    /// `rank` is `None`. Returns all parameters and buffers.
    fn train(
        self,
        runtime: &Runtime,
        mut optimizer: Optimizer,
        (rank, ranks): (Option<usize>, usize),
    ) -> Result<Vec<f32>, Error> {
        let mut net = self.net.make(runtime);
        for step in 0..STEPS {
            let mut gradients = Gradients::default();
            // Part `p` of rank `r` is the part `p * ranks + r` of a step.
            let all: Vec<usize> = match rank {
                Some(rank) => (0..self.parts).map(|part| part * ranks + rank).collect(),
                None => (0..self.parts * ranks).collect(),
            };
            for (i, &part) in all.iter().enumerate() {
                let tape = Tape::new(runtime);
                tape.watch(&mut *net);
                let loss = self.net.loss(&mut *net, runtime, step, part);
                let loss = (loss / (self.parts * ranks) as f32)?;
                if i + 1 < all.len() {
                    tape.backward_onto(&loss, &mut gradients)?;
                } else {
                    let gradients = std::mem::take(&mut gradients);
                    optimizer.minimize_with(tape, &loss, &mut *net, gradients)?;
                }
            }
            runtime.step()?;
        }
        let mut values = Vec::new();
        for (_, State::Parameter(tensor) | State::Buffer(tensor)) in state(&mut *net) {
            values.extend(tensor.to_vec::<f32>()?);
        }
        Ok(values)
    }
}

/// Budget, policy and plan of a rank.
#[derive(Clone, Copy, Debug)]
struct Own {
    budget: u64,
    policy: PolicyKind,
    plan: Plan,
}

impl Own {
    fn plentiful() -> Self {
        Self { budget: 64 << 20, policy: PolicyKind::None, plan: Plan::Off }
    }

    fn start(self) -> Runtime {
        let Self { budget, policy, plan } = self;
        let builder = Runtime::builder().budget(budget).policy(policy).plan(plan);
        builder.threads(1).seed(7).cpu().unwrap()
    }
}

type Found = Result<(Vec<f32>, Stats), String>;

fn on_ranks(case: Case, buffer: usize, own: Vec<Own>) -> Vec<Found> {
    let size = own.len();
    let start = |(fabric, own): (_, Own)| {
        std::thread::spawn(move || {
            let ranks = Ranks::with_buffer(fabric, buffer);
            let runtime = own.start();
            ranks.share_statistics(&runtime);
            let optimizer = case.optimizer().distributed(&ranks);
            let trained = case.train(&runtime, optimizer, (Some(ranks.rank()), size));
            let values = trained.map_err(|error| error.to_string())?;
            Ok((values, runtime.stats().unwrap()))
        })
    };
    let ranks: Vec<_> = threads(size).into_iter().zip(own).map(start).collect();
    ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
}

/// Each net with each number of ranks, each rule and each way of updating at least once. Each rank
/// has its own budget, policy and plan.
#[test]
fn ranks_have_the_bits_of_one_rank_with_micro_batches() {
    let policies: Vec<PolicyKind> = PolicyKind::all().collect();
    let (mut recomputed, mut out_of_memory, mut right) = (0, 0, 0);
    let count = cells(0..200, 2).count() as u64;
    for number in 0..count {
        let mut numbers = SplitMix64::new(number);
        let size = 1 + (number as usize / NETS.len()) % 4;
        let case = Case {
            net: NETS[number as usize % NETS.len()],
            rule: numbers.below(3),
            // The sums have the bits of the reference only if each rank has one part.
            parts: 1,
            way: numbers.below(4),
        };
        let one = Own::plentiful().start();
        let expected = case.train(&one, case.optimizer(), (None, size)).unwrap();
        let buffer = [1 << 10, 4 << 10, 1 << 20][numbers.below(3)];
        let plentiful = on_ranks(case, buffer, vec![Own::plentiful(); size]);
        let mut peak = 0;
        for found in &plentiful {
            let (values, stats) = found.as_ref().unwrap();
            assert!(*values == expected, "{number}: {case:?} on {size} ranks, unlimited");
            peak = peak.max(stats.peak_bytes);
        }
        let own: Vec<Own> = (0..size)
            .map(|_| Own {
                budget: peak * [150, 110, 100, 90, 75][numbers.below(5)] / 100,
                policy: policies[numbers.below(policies.len())],
                plan: if numbers.below(2) == 0 { Plan::Auto } else { Plan::Off },
            })
            .collect();
        let found = on_ranks(case, buffer, own.clone());
        let what = format!("{number}: {case:?} with {own:?}, {buffer} B");
        if let Some(failed) = found.iter().find_map(|found| found.as_ref().err()) {
            // If one rank fails, all ranks fail.
            assert!(failed.contains("memory") || failed.contains("has left"), "{what}: {failed}");
            assert!(found.iter().all(Result::is_err), "{what}: {found:?}");
            out_of_memory += 1;
            continue;
        }
        for found in &found {
            let (values, stats) = found.as_ref().unwrap();
            assert!(*values == expected, "{what}");
            assert!(stats.peak_bytes <= stats.budget_bytes, "{what}");
            recomputed += stats.recomputed_ops;
        }
        right += 1;
    }
    println!("{right} with the reference's bits, {out_of_memory} out of memory; {recomputed} ops");
    let are_telling = 2 * right >= count && recomputed > 15 * count;
    assert!(are_telling, "{right} of {count} right, {recomputed} recomputed");
}

/// With several parts on each rank, all ranks agree.
/// The first sum of each step is started before the backward pass ends, also if updates wait for its
/// end.
#[test]
fn sums_start_while_the_backward_pass_goes_on() {
    for (net, backward) in [(Net::Mlp, "matmul"), (Net::Vit, "matmul"), (Net::Gpt, "matmul")] {
        for (way, parts) in [(0, 1), (1, 1), (2, 1), (3, 1), (2, 2), (3, 2)] {
            let case = Case { net, rule: 0, parts, way };
            let train = |fabric| {
                std::thread::spawn(move || {
                    let (ranks, recorded) = (Ranks::new(fabric), InMemory::default());
                    let runtime = Runtime::builder().budget("64MiB").threads(1);
                    let runtime = runtime.record(recorded.clone()).cpu().unwrap();
                    let optimizer = case.optimizer().distributed(&ranks);
                    case.train(&runtime, optimizer, (Some(ranks.rank()), ranks.size())).unwrap();
                    recorded.take().unwrap()
                })
            };
            let ranks: Vec<_> = threads(2).into_iter().map(train).collect();
            for rank in ranks {
                let program = rank.join().unwrap();
                let steps = program.commands().split(|command| matches!(command, Command::Step));
                for step in steps.take(STEPS) {
                    let ops: Vec<&str> = step.iter().filter_map(Command::op).collect();
                    let first = ops.iter().position(|op| *op == "all_reduce_start");
                    let last = ops.iter().rposition(|op| *op == backward);
                    assert!(first.is_some() && first < last, "{case:?}: {first:?}, {last:?}");
                }
            }
        }
    }
}

#[test]
fn ranks_with_micro_batches_agree() {
    for (way, net) in [(0, Net::Mlp), (1, Net::Gpt), (2, Net::Norms), (3, Net::Branches)] {
        let case = Case { net, rule: 1, parts: 3, way };
        let found = on_ranks(case, 1 << 12, vec![Own::plentiful(); 3]);
        let all: Vec<Vec<f32>> = found.into_iter().map(|found| found.unwrap().0).collect();
        assert!(all[0] == all[1] && all[0] == all[2], "{case:?}");
    }
}

/// Op that fails in its run number `at` on one rank.
#[derive(Debug)]
struct FailsOnce;

impl CustomOp for FailsOnce {
    fn name(&self) -> &str {
        "fails_once"
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Vec<Layout>, String> {
        Ok(vec![inputs[0]])
    }

    fn cpu(&self, _operands: cpu::Operands<'_>) -> Result<(), DeviceError> {
        Err(DeviceError::new("this part cannot be read"))
    }

    fn gradient(&self, _of: &remat::ops::Recorded<'_>) -> remat::ops::Gradient {
        remat::ops::Gradient::of_one(|dy| Ok(dy.clone()))
    }
}

/// With `all_or_none`, a step that fails on one rank changes no parameter on any rank. All ranks go
/// on.
#[test]
fn a_failed_step_is_failed_on_all_ranks() {
    let train = |ranks: Ranks| {
        let runtime = Own::plentiful().start();
        let mut net = mlp(&runtime, 16, &[12], 4).unwrap();
        let mut optimizer = Optimizer::sgd(0.1, 0.9, 0.0).distributed(&ranks);
        optimizer.all_or_none = true;
        let mut after = Vec::new();
        for step in 0..4 {
            let mut x = runtime.full(&[2, 16], (step + ranks.rank()) as f32).unwrap();
            if step == 2 && ranks.rank() == 1 {
                x = Tensor::apply(FailsOnce, &[&x]).unwrap().remove(0);
            }
            let tape = Tape::new(&runtime);
            tape.watch(&mut net);
            let loss = net.forward(&x, Mode::Train).unwrap().square().unwrap().mean().unwrap();
            optimizer.minimize(tape, &loss, &mut net).unwrap();
            runtime.step().unwrap();
            let failed = runtime.sync().err().map(|error| error.to_string());
            assert_eq!(failed.is_some(), step == 2, "{failed:?}");
            if let Some(failed) = failed {
                assert!(failed.contains("this part cannot be read"), "{failed}");
            }
            let values = parameters(&mut net).flat_map(|(_, w)| w.to_vec::<f32>().unwrap());
            after.push(values.collect::<Vec<f32>>());
        }
        after
    };
    let ranks: Vec<_> = threads(3)
        .into_iter()
        .map(|fabric| std::thread::spawn(move || train(Ranks::new(fabric))))
        .collect();
    let all: Vec<Vec<Vec<f32>>> = ranks.into_iter().map(|rank| rank.join().unwrap()).collect();
    assert!(all[0] == all[1] && all[0] == all[2]);
    assert!(all[0][1] == all[0][2] && all[0][2] != all[0][3]);
}

/// With `all_or_none`, an update that fails for lack of memory on one rank is made on no rank.
/// Training goes on, and the parameters of the ranks never differ.
#[test]
fn an_update_without_memory_on_one_rank_is_made_on_none() {
    let train = |ranks: Ranks, budget: u64| {
        let own = Own { budget, ..Own::plentiful() };
        let runtime = own.start();
        let mut net = mlp(&runtime, 16, &[24], 4).unwrap();
        let mut optimizer = Optimizer::adamw(0.1, 0.0).distributed(&ranks);
        optimizer.all_or_none = true;
        let (mut after, mut failures) = (Vec::new(), Vec::new());
        for step in 0..5 {
            // A second handle on each parameter makes the update copy the old value.
            let held: Vec<Tensor> = match step % 2 {
                0 => Vec::new(),
                _ => parameters(&mut net).map(|(_, parameter)| parameter.clone()).collect(),
            };
            let x = runtime.full(&[2, 16], 0.1 * (1 + step + ranks.rank()) as f32).unwrap();
            let tape = Tape::new(&runtime);
            tape.watch(&mut net);
            let loss = net.forward(&x, Mode::Train).unwrap().square().unwrap().mean().unwrap();
            drop(x);
            let made = optimizer.minimize(tape, &loss, &mut net);
            drop(loss);
            drop(held);
            let ended = made.and_then(|()| runtime.step()).and_then(|()| runtime.sync());
            failures.push(ended.err().map(|error| error.to_string()));
            let values = parameters(&mut net).flat_map(|(_, w)| w.to_vec::<f32>().unwrap());
            after.push(values.collect::<Vec<f32>>());
        }
        (after, failures, runtime.stats().unwrap().peak_bytes)
    };
    let on_ranks = |budgets: [u64; 3]| {
        let start = |(fabric, budget)| {
            std::thread::spawn(move || train(Ranks::with_buffer(fabric, 1 << 10), budget))
        };
        let ranks: Vec<_> = threads(3).into_iter().zip(budgets).map(start).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect::<Vec<_>>()
    };
    let peak = on_ranks([64 << 20; 3])[0].2;
    let (mut failed, mut all_made) = (0, 0);
    for percent in (50..=100).step_by(2) {
        let all = on_ranks([64 << 20, peak * percent / 100, 64 << 20]);
        for (step, why) in all[1].1.iter().enumerate() {
            let same = |rank: usize| all[rank].0[step] == all[1].0[step];
            assert!(same(0) && same(2), "ranks differ at {percent} % after step {step}: {why:?}");
            let fails = |rank: usize| all[rank].1[step].is_some();
            assert!(fails(0) == fails(1) && fails(2) == fails(1), "{percent} %, {step}: {why:?}");
            match why {
                Some(why) => {
                    assert!(why.contains("memory"), "{why}");
                    if step > 0 {
                        assert!(all[1].0[step] == all[1].0[step - 1], "{percent} %, step {step}");
                    }
                    failed += 1;
                }
                None => all_made += 1,
            }
        }
    }
    assert!(failed > 10 && all_made > 10, "{failed} failed, {all_made} made");
}

/// A batch that is too large for one rank is halved on all ranks, which then go on.
#[test]
fn all_ranks_halve_the_batch_that_one_has_no_memory_for() {
    let train = |ranks: Ranks, budget: u64| {
        let runtime = Own { budget, ..Own::plentiful() }.start();
        let mut net = mlp(&runtime, 64, &[96, 96], 10).unwrap();
        let mut optimizer = Optimizer::sgd(0.1, 0.9, 0.0).distributed(&ranks);
        optimizer.all_or_none = true;
        let (mut batch, mut steps, mut batches) = (256, 0, Vec::new());
        while steps < 3 {
            let value = 0.1 * (1 + steps + ranks.rank()) as f32;
            let x = runtime.full(&[batch, 64], value).unwrap();
            let tape = Tape::new(&runtime);
            tape.watch(&mut net);
            let y = net.forward(&x, Mode::Train).unwrap();
            let loss = y.square().unwrap().mean().unwrap();
            drop((x, y));
            let made = optimizer.minimize(tape, &loss, &mut net);
            drop(loss);
            match made.and_then(|()| runtime.step()).and_then(|()| runtime.sync()) {
                Ok(()) => steps += 1,
                Err(_) => batch /= 2,
            }
            batches.push(batch);
            assert!(batch > 0, "no batch fits");
        }
        let values = parameters(&mut net).flat_map(|(_, w)| w.to_vec::<f32>().unwrap());
        (batches, values.collect::<Vec<f32>>())
    };
    let ranks = threads(2).into_iter().zip([64 << 20, 300 << 10]).map(|(fabric, budget)| {
        std::thread::spawn(move || train(Ranks::with_buffer(fabric, 1 << 10), budget))
    });
    let all: Vec<_> = ranks.collect::<Vec<_>>().into_iter().map(|r| r.join().unwrap()).collect();
    let (batches, _) = &all[1];
    let last = batches[batches.len() - 1];
    assert!(batches[0] < 256 && batches.ends_with(&[last; 3]), "{batches:?}");
    assert!(all[0] == all[1], "{batches:?}");
}
