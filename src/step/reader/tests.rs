//! Tests on random programs that the reader finds the same effects as an engine with enough memory.

use super::*;
use crate::command::{Consumed, Program, RecordedOp};
use crate::cost::CostModelKind;
use crate::device::sim::{Sim, Speed};
use crate::driver::Driver;
use crate::engine::{Engine, Settings};
use crate::evict::PolicyKind;
use crate::graph::StorageKey;
use crate::op::{Look, Outputs};
use remat_rng::SplitMix64;
use std::sync::Arc;

struct Both {
    driver: Driver<Sim<RecordedOp, Layout>>,
    reader: Reader,
    /// Checks that commands are valid.
    program: Program<RecordedOp, Layout>,
    draw: SplitMix64,
    /// Number of updates in place, and of other updates.
    updates: [usize; 2],
}

impl Both {
    fn new(seed: u64) -> Self {
        let device = Sim::new(1 << 40, Speed::GPU);
        let (policy, costs) = (PolicyKind::DtrEq.build(0), CostModelKind::Flops.build());
        let engine = Engine::new(device, Settings::default(), policy, costs).unwrap();
        Self {
            driver: Driver::new(engine),
            reader: Reader::default(),
            program: Program::default(),
            draw: SplitMix64::new(seed),
            updates: [0; 2],
        }
    }

    fn storage(&self, tensor: TensorId) -> StorageKey {
        let key = self.driver.key(tensor).unwrap();
        self.driver.engine().graph().tensor(key).unwrap().storage
    }

    fn tensor(&mut self) -> TensorId {
        let alive: Vec<TensorId> = self.program.alive().collect();
        // Three times out of four, choose one of the six newest tensors.
        let among = if self.draw.below(4) == 0 { alive.len() } else { alive.len().min(6) };
        alive[alive.len() - 1 - self.draw.below(among)]
    }

    fn tensors(&mut self, most: usize) -> Vec<TensorId> {
        (0..=self.draw.below(most)).map(|_| self.tensor()).collect()
    }

    fn layout(&mut self) -> Layout {
        Layout::raw(self.draw.below(4) * 20)
    }

    /// An update of the first inputs, some of which are consumed.
    fn update(&mut self, made: TensorId, makes_more: bool) -> Apply<RecordedOp> {
        let inputs = self.tensors(3);
        let targets = 1 + self.draw.below(inputs.len());
        let fresh =
            if makes_more { [self.layout()].into_iter().collect() } else { SmallVec::new() };
        let consumed: Consumed = (0..targets).filter(|_| self.draw.below(4) > 0).collect();
        let outputs = Outputs::Updates { targets, fresh };
        let op = RecordedOp { rematerializable: false, ..RecordedOp::new("update", 1.0) };
        Apply { consumed, ..Apply::new(op, &inputs[..], outputs, made) }
    }

    /// An op that writes over its first input, which it may consume.
    fn over(&mut self, made: TensorId) -> Apply<RecordedOp> {
        let inputs = self.tensors(2);
        let consumed: Consumed = (0..1).filter(|_| self.draw.below(4) > 0).collect();
        Apply {
            consumed,
            ..Apply::new(RecordedOp::new("over", 1.0), &inputs[..], Outputs::Over, made)
        }
    }

    fn command(&mut self) -> Command<RecordedOp, Layout> {
        let made = self.program.next();
        let kind = if self.program.alive().count() < 3 { 0 } else { self.draw.below(17) };
        match kind {
            0 | 1 => Command::Put { tensor: made, host: Arc::new(self.layout()), leaf: false },
            2..=4 => {
                let (inputs, layouts) = (self.tensors(3), [self.layout(), self.layout()]);
                let outputs = Outputs::fresh(layouts.into_iter().take(1 + self.draw.below(2)));
                Command::Apply(Apply::new(RecordedOp::new("f", 1.0), &inputs[..], outputs, made))
            }
            5 | 6 => {
                let of = self.tensor();
                let layout = self.reader.layout(of);
                let len = layout.bytes() as usize;
                let part = layout.slice(0, self.draw.below(2).min(len), len - len.min(1));
                let layout = if self.draw.below(2) == 0 { part.unwrap_or(layout) } else { layout };
                let looks = Outputs::Views([Look { input: 0, layout }].into_iter().collect());
                Command::Apply(Apply::new(RecordedOp::new("view", 0.0), &[of][..], looks, made))
            }
            15 => Command::Apply(self.over(made)),
            7..=9 => {
                let makes_more = self.draw.below(3) == 0;
                Command::Apply(self.update(made, makes_more))
            }
            10 | 11 => {
                let (mut calls, mut next) = (vec![], made);
                for _ in 0..=self.draw.below(3) {
                    let call = self.update(next, false);
                    next = next.plus(call.outputs.len());
                    calls.push(call);
                }
                Command::UpdateAll(calls)
            }
            12 => {
                let (target, value) = (self.tensor(), self.tensor());
                Command::Replace { target, consumed: self.draw.below(2) == 0, value, made }
            }
            13 => Command::Commit(self.tensor()),
            14 => Command::Step,
            _ => Command::Del(self.tensor()),
        }
    }

    fn run(&mut self, command: Command<RecordedOp, Layout>) {
        // An engine refuses a replacement of another shape.
        if let Command::Replace { target, value, .. } = command
            && self.reader.layout(target).shape() != self.reader.layout(value).shape()
        {
            return;
        }
        if self.program.push(command.clone()).is_err() {
            return;
        }
        let targets: Vec<StorageKey> = command
            .calls()
            .iter()
            .flat_map(|call| call.inputs.iter().take(call.outputs.targets()))
            .map(|&target| self.storage(target))
            .collect();
        self.driver.execute(command.clone());
        if let Command::Replace { .. } = command {
            // Confirm replacements, because the engine keeps the old values of replacements that
            // may still be undone.
            self.driver.execute(Command::Confirm);
        }
        assert!(self.driver.engine_mut().take_failure().is_none(), "{command:?}");
        let deed = self.reader.read(&command, |host| *host);
        // Each output tensor, with the position of the target that the output updates.
        let mut made = vec![];
        let mut position = 0;
        for call in command.calls() {
            for (output, tensor) in call.outputs().enumerate() {
                let is_target = output < call.outputs.targets();
                made.push((tensor, is_target.then_some(position)));
                position += usize::from(is_target);
            }
        }
        for (&(tensor, target), of) in made.iter().zip(&deed.makes) {
            let in_place = target.is_some_and(|target| self.storage(tensor) == targets[target]);
            assert_eq!(of.in_place || of.over && in_place, in_place, "{tensor} of {command:?}");
            if of.over {
                // The engine updates a leaf.
                let old =
                    target.map(|target| targets[target]).filter(|old| *old != self.storage(tensor));
                let graph = self.driver.engine().graph();
                let is_resident =
                    old.is_some_and(|old| graph.contains(old) && graph.is_resident(old));
                assert!(!is_resident, "{tensor} of {command:?}");
            }
            if target.is_some() {
                self.updates[usize::from(!in_place)] += 1;
            }
        }
        let mut tensors = vec![];
        command.makes(|tensor| tensors.push(tensor));
        let now = tensors.iter().map(|&tensor| self.reader.value(tensor));
        assert!(now.eq(deed.outputs.iter().map(|&value| Some(value))) || !deed.gone.is_empty());
        self.check();
    }

    fn check(&self) {
        let graph = self.driver.engine().graph();
        let mut held: FxHashMap<u32, (StorageKey, usize)> = FxHashMap::default();
        for tensor in self.program.alive() {
            let (value, storage) = (self.reader.value(tensor).unwrap(), self.storage(tensor));
            let key = self.driver.key(tensor).unwrap();
            assert_eq!(self.reader.layout(tensor), graph.tensor(key).unwrap().layout, "{tensor}");
            assert_eq!(self.reader.bytes(value), graph.storage(storage).bytes, "{tensor}");
            let (of, count) = held.entry(value).or_insert((storage, 0));
            assert_eq!(*of, storage, "{tensor}");
            *count += 1;
        }
        let storages: FxHashMap<StorageKey, usize> = held.values().copied().collect();
        assert_eq!(storages.len(), held.len(), "two values are in one storage");
        for (storage, count) in storages {
            assert_eq!(graph.storage(storage).handles as usize, count);
        }
        let of_none = (0..self.reader.values() as u32).filter(|value| !held.contains_key(value));
        assert!(of_none.into_iter().all(|value| !self.reader.is_held(value)));
    }
}

#[test]
fn values_are_where_an_engine_has_them() {
    let mut updates = [0; 2];
    for seed in 0..60 {
        let mut both = Both::new(seed);
        for _ in 0..200 {
            let command = both.command();
            both.run(command);
        }
        updates[0] += both.updates[0];
        updates[1] += both.updates[1];
    }
    assert!(updates.iter().all(|&count| count > 1000), "{updates:?}");
}
