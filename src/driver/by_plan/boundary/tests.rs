use super::*;
use crate::command::{Apply, Command};
use crate::cost::CostModelKind;
use crate::device::sim::Sim;
use crate::driver::{Driver, Plan};
use crate::engine::{Engine, Settings};
use crate::evict::PolicyKind;
use crate::host::HostTensor;
use crate::layout::{DType, Layout};
use crate::op::Outputs;
use crate::ops::{Binary, Op, Unary};
use remat_rng::SplitMix64;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A table built anew from all tensors, to compare with the updated table.
fn anew(tensors: &BTreeMap<u32, (TensorId, TensorInfo)>, graph: &Graph) -> Slots {
    let mut slots = Slots::default();
    for (&slot, (tensor, info)) in tensors {
        slots.fill(slot, *tensor, info, graph);
    }
    slots
}

#[test]
fn a_boundary_is_what_it_would_be_anew_whatever_came_before() {
    for seed in 0..20 {
        let mut draw = SplitMix64::new(seed);
        let mut graph = Graph::default();
        let storages: Vec<_> = (0..8).map(|i| graph.add_storage(64 << (i % 3), 0.0, 0)).collect();
        let mut slots = Slots::default();
        let mut model: BTreeMap<u32, (TensorId, TensorInfo)> = BTreeMap::new();
        let mut next = 0;
        for _ in 0..2000 {
            let slot = draw.below(40) as u32;
            next += 1;
            let tensor = TensorId(next);
            match (model.remove(&slot), draw.below(3)) {
                (Some((_, info)), 0) => {
                    slots.rename(slot, tensor);
                    model.insert(slot, (tensor, info));
                }
                (Some((before, info)), _) => {
                    assert_eq!((slots.tensor(slot), slots.of(before)), (Some(before), Some(slot)));
                    assert_eq!(slots.leave(slot), Some(info.storage));
                }
                (None, _) => {
                    let layout = Layout::contiguous(DType::F32, [1 + draw.below(3)]);
                    let info = TensorInfo { storage: storages[draw.below(8)], layout };
                    slots.fill(slot, tensor, &info, &graph);
                    model.insert(slot, (tensor, info));
                }
            }
            let lowest = (0..).find(|slot| !model.contains_key(slot)).unwrap();
            assert_eq!(slots.lowest_free(), lowest);
            for &storage in &storages {
                let first = model.iter().find(|(_, (_, info))| info.storage == storage);
                assert_eq!(slots.of_storage(storage), first.map(|(slot, _)| *slot));
            }
            assert_eq!(slots.boundary(), anew(&model, &graph).boundary());
            // The boundary of two tensors that share a storage differs from that of two tensors
            // with separate storages.
            if let Some((&slot, &(tensor, info))) = model.iter().next() {
                let mut other = model.clone();
                let storage = graph.add_storage(graph.storage(info.storage).bytes, 0.0, 0);
                other.insert(slot, (tensor, TensorInfo { storage, ..info }));
                let is_alone =
                    model.values().filter(|(_, o)| o.storage == info.storage).count() == 1;
                assert_eq!(anew(&other, &graph).boundary() == slots.boundary(), is_alone);
                graph.storages.remove(storage);
            }
        }
        for slot in model.into_keys() {
            slots.leave(slot);
        }
        assert_eq!(slots.boundary(), Slots::default().boundary());
        assert!(slots.all.is_empty() && slots.free.is_empty() && slots.storages.is_empty());
    }
}

/// A training loop over a state. The loop keeps a value from each step.
struct Loop {
    driver: Driver<Sim<Op, HostTensor>>,
    next: u64,
    state: TensorId,
}

impl Loop {
    fn new(policy: &str, plan: Plan) -> Self {
        let costs = CostModelKind::Flops.build();
        let policy: PolicyKind = policy.parse().unwrap();
        let device = Sim::<Op, HostTensor>::cpu(1 << 30);
        let engine = Engine::new(device, Settings::default(), policy.build(0), costs).unwrap();
        let mut driver = Driver::new(engine);
        driver.recognize_steps_once_short();
        driver.plan_steps(plan);
        let mut this = Self { driver, next: 0, state: TensorId(0) };
        this.state = this.put();
        this
    }

    fn id(&mut self) -> TensorId {
        self.next += 1;
        TensorId(self.next)
    }

    fn put(&mut self) -> TensorId {
        let tensor = self.id();
        let host = Arc::new(HostTensor::zeros(DType::F32, [4]).unwrap());
        self.driver.execute(Command::Put { tensor, host, leaf: true });
        tensor
    }

    fn call(&mut self, op: impl Into<Op>, inputs: &[TensorId]) -> TensorId {
        let made = self.id();
        let outputs = Outputs::fresh([Layout::contiguous(DType::F32, [4])]);
        self.driver.execute(Command::Apply(Apply::new(op.into(), inputs, outputs, made)));
        made
    }

    fn del(&mut self, tensor: TensorId) {
        self.driver.execute(Command::Del(tensor));
    }

    /// Runs a step with `beside` additional ops. Returns the loss of the step.
    fn step(&mut self, beside: usize) -> TensorId {
        let hidden = self.call(Unary::Neg, &[self.state]);
        let loss = self.call(Unary::Relu, &[hidden]);
        for _ in 0..beside {
            let other = self.call(Unary::Relu, &[hidden]);
            self.del(other);
        }
        let state = self.call(Binary::Add, &[self.state, hidden]);
        self.del(hidden);
        self.del(self.state);
        self.state = state;
        self.driver.execute(Command::Step);
        loss
    }

    fn changed(&self) -> u64 {
        self.driver.planning.as_ref().map_or(0, |planning| planning.numbers.slots.changed)
    }
}

/// Regression test: each mark took time in proportion to the number of held tensors.
#[test]
fn a_mark_costs_what_changed_whatever_is_held() {
    for policy in ["learned", "lru"] {
        for held in [0u64, 4000, 32_000] {
            let mut run = Loop::new(policy, Plan::Auto);
            let kept: Vec<_> = (0..held).map(|_| run.put()).collect();
            let (mut steps, mut made) = (0, held);
            // The turns of the test cover all cases: compared, captured on a tape, run by plan,
            // left, not compared, and hashed.
            for (keeps, differs) in
                [(true, false), (false, false), (true, false), (false, true), (false, false)]
            {
                let mut losses = Vec::new();
                for turn in 0..200 {
                    let loss = run.step(if differs { 1 + turn % 37 } else { 0 });
                    if keeps { losses.push(loss) } else { run.del(loss) }
                }
                steps += 200;
                made += losses.len() as u64;
                losses.into_iter().for_each(|loss| run.del(loss));
            }
            let changed = run.changed();
            let most = 60 * steps + 4 * made;
            assert!(changed <= most, "{policy}, {held} held: {changed} in {steps} steps");
            let planned = run.driver.stats().planned_steps;
            assert!(planned > 50, "{policy}, {held} held: {planned} planned");
            kept.into_iter().for_each(|tensor| run.del(tensor));
            run.step(0);
            run.step(0);
            let slots = &run.driver.planning.as_ref().unwrap().numbers.slots;
            assert!(slots.all.capacity() <= 2 * LARGE && slots.of.capacity() <= 2 * LARGE);
        }
    }
}
