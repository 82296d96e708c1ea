use super::*;
use crate::command::{Apply, Consumed};
use crate::cost::CostModelKind;
use crate::device::sim::Sim;
use crate::driver::{Driver, Learner, Turn};
use crate::engine::{Engine, Settings};
use crate::evict::{Learn, PolicyKind};
use crate::host::HostTensor;
use crate::layout::{DType, Layout};
use crate::op::Outputs;
use crate::ops::{Accumulate, Binary, MatMul, Op, Unary};
use crate::step::NEVER;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

const DEPTH: usize = 4;

/// Commands that train a network of equal layers on a new batch in each step.
#[derive(Default)]
struct Program {
    commands: Vec<Command<Op, HostTensor>>,
    tensors: u64,
}

impl Program {
    fn put(&mut self) -> TensorId {
        let tensor = TensorId(self.tensors);
        self.tensors += 1;
        let host = Arc::new(HostTensor::zeros(DType::F32, [4, 4]).unwrap());
        self.commands.push(Command::Put { tensor, host, leaf: false });
        tensor
    }

    fn call(&mut self, op: impl Into<Op>, inputs: &[TensorId], updates: bool) -> TensorId {
        let made = TensorId(self.tensors);
        self.tensors += 1;
        let outputs = match updates {
            true => Outputs::updates(1),
            false => Outputs::fresh([Layout::contiguous(DType::F32, [4, 4])]),
        };
        let mut call = Apply::new(op.into(), inputs, outputs, made);
        call.consumed = [0].into_iter().filter(|_| updates).collect::<Consumed>();
        self.commands.push(Command::Apply(call));
        made
    }

    fn delete(&mut self, tensors: impl IntoIterator<Item = TensorId>) {
        self.commands.extend(tensors.into_iter().map(Command::Del));
    }

    /// Adds one step. If `in_place` is set, weights are updated in place; otherwise each update
    /// makes new weights.
    fn step(&mut self, weights: &mut [TensorId], marked: bool, in_place: bool) {
        let mut passed = vec![self.put()];
        for &weight in &*weights {
            let product = self.call(MatMul, &[passed[passed.len() - 1], weight], false);
            passed.push(self.call(Unary::Relu, &[product], false));
            self.delete([product]);
        }
        let mut gradient = self.call(Unary::Neg, &[passed[DEPTH]], false);
        for layer in (0..DEPTH).rev() {
            let of_weight = self.call(MatMul, &[passed[layer], gradient], false);
            let next = self.call(MatMul, &[gradient, weights[layer]], false);
            let old = weights[layer];
            weights[layer] = match in_place {
                true => self.call(Accumulate, &[old, of_weight], true),
                false => self.call(Binary::Add, &[old, of_weight], false),
            };
            self.delete([gradient, of_weight]);
            self.delete([old].into_iter().filter(|_| !in_place));
            gradient = next;
        }
        self.delete(passed);
        self.commands.push(Command::Get(gradient));
        self.delete([gradient]);
        if marked {
            self.commands.push(Command::Step);
        }
    }
}

/// After two whole steps between marks, predictions are right for each tensor.
#[test]
fn recognized_steps_are_predicted_tensor_by_tensor() {
    for (marked, in_place) in [(false, true), (true, true), (true, false)] {
        let mut program = Program::default();
        let mut weights: Vec<_> = (0..DEPTH).map(|_| program.put()).collect();
        let mut begins = Vec::new();
        for _ in 0..6 {
            begins.push(program.commands.len());
            program.step(&mut weights, marked, in_place);
        }
        let known_from = begins[if in_place { 2 } else { 3 }];
        let Program { commands, .. } = program;
        let costs = CostModelKind::Flops.build();
        let (device, evictor) =
            (Sim::<Op, HostTensor>::cpu(1 << 20), PolicyKind::Learned(Learn::Ahead).build(0));
        let engine = Engine::new(device, Settings::default(), evictor, costs).unwrap();
        let mut driver = Driver::new(engine);
        driver.recognize_steps();
        let mut live: BTreeMap<TensorId, ()> = BTreeMap::new();
        let mut compared = 0;
        for (at, command) in commands.iter().enumerate().take(begins[5]) {
            driver.execute(command.clone());
            assert!(driver.engine_mut().take_failure().is_none());
            command.makes(|tensor| _ = live.insert(tensor, ()));
            command.ends(|tensor| _ = live.remove(&tensor));
            if at < known_from || !command.is_position() {
                continue;
            }
            let foreseen = driver.engine().graph().future().foreseen();
            let foreseen = foreseen.expect("steps have come");
            for &tensor in live.keys() {
                // Position of the next command that reads the tensor under its current number.
                let counted = commands[at + 1..].iter().filter(|command| command.is_position());
                let next = counted.take(foreseen.step().len()).position(|command| {
                    let mut reads = false;
                    command.reads(|read| reads |= read == tensor);
                    reads
                });
                let storage = driver.books.storage_of(tensor).unwrap();
                let value = foreseen.ordinal(storage).expect("it has a role");
                let known = foreseen.step().next_use(value, foreseen.at() + 1);
                let known = (known != NEVER).then(|| (known - foreseen.at()) as usize - 1);
                let end = foreseen.step().len() - foreseen.at() as usize - 2;
                match next {
                    // The prediction ends with the step. At the mark, values made in the step count
                    // as used.
                    Some(next) if next >= end => {
                        let known = known.expect("it is used");
                        assert!(known == end || !in_place && known + 1 == end);
                    }
                    next => assert_eq!(known, next, "{tensor} after {at}: {command:?}"),
                }
                compared += 1;
            }
        }
        assert!(compared > 100, "{compared}");
    }
}

/// Counts the turns that a driver gives to a learner.
#[derive(Clone, Debug, Default)]
struct Counter(Arc<AtomicU32>);

impl Learner for Counter {
    fn begin(&mut self, _: Turn) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Regression: an adapter gave its driver a learner, but did not ask for recognition. The learner
/// got no turns, and nothing said so.
#[test]
fn a_learner_gets_turns_without_a_further_call() {
    let run = |policy: PolicyKind, budget: Option<u64>| {
        let mut program = Program::default();
        let mut weights: Vec<_> = (0..DEPTH).map(|_| program.put()).collect();
        (0..12).for_each(|_| program.step(&mut weights, true, true));
        let device = Sim::<Op, HostTensor>::cpu(1 << 20);
        let costs = CostModelKind::Flops.build();
        let settings = Settings::default();
        let engine = Engine::new(device, settings, policy.build(0), costs).unwrap();
        let mut driver = Driver::new(engine);
        let turns = Counter::default();
        driver.learn_by(Some(Box::new(turns.clone())));
        if let Some(budget) = budget {
            driver.set_budget(budget).unwrap();
        }
        program.commands.into_iter().for_each(|command| driver.execute(command));
        assert!(driver.engine_mut().take_failure().is_none());
        let stats = driver.engine().stats();
        (turns.0.load(Ordering::Relaxed), stats.evictions, stats.peak_bytes)
    };
    let ahead = PolicyKind::Learned(Learn::Ahead);
    let (turns, evictions, peak) = run(ahead, None);
    assert_eq!((turns, evictions), (0, 0), "memory sufficed");
    let (turns, evictions, _) = run(ahead, Some(peak - 1));
    assert!(turns > 0 && evictions > 0, "{turns}, {evictions}");
    let (turns, evictions, _) = run(PolicyKind::Lru, Some(peak - 1));
    assert!(turns == 0 && evictions > 0, "{turns}, {evictions}");
}
