//! Turns an entry of a recipe into a command on the tensors held now.

use super::super::toy::{Bytes, Toy};
use super::Drawn;
use super::play::Play;
use remat::op::Operation as _;
use remat::unstable::program::{Apply, Command, Consumed, TensorId};
use remat::{Error, Layout};

impl Play<'_> {
    /// Command of an entry. `None` if the entry is no command, or does not fit the tensors held.
    pub(super) fn resolve(&mut self, drawn: &Drawn) -> Option<Command<Toy, Bytes>> {
        let salt = self.salt;
        Some(match drawn {
            Drawn::Put { bytes, seed } => {
                let host = Bytes::of(*bytes, seed ^ salt << 32);
                Command::Put { tensor: self.new_numbers(1), host, leaf: false }
            }
            Drawn::Draw { bytes, seed } => {
                self.op(Toy::Draw { bytes: *bytes, key: *seed, counter: salt }, vec![])?
            }
            Drawn::Mix { inputs, bytes, scratch } => {
                self.op(Toy::Mix { bytes: *bytes, salt, scratch: *scratch }, self.pick(inputs))?
            }
            Drawn::Split { inputs, bytes } => {
                self.op(Toy::Split { bytes: bytes.clone(), salt }, self.pick(inputs))?
            }
            Drawn::Once { inputs, bytes } => {
                self.op(Toy::Once { bytes: *bytes, salt }, self.pick(inputs))?
            }
            Drawn::Update { inputs, targets, fresh } => {
                let inputs = self.pick(inputs);
                let mut distinct = inputs.clone();
                distinct.truncate(*targets);
                distinct.dedup();
                if inputs.is_empty() || distinct.len() < (*targets).min(inputs.len()) {
                    return None;
                }
                self.op(Toy::Update { targets: distinct.len(), fresh: *fresh, salt }, inputs)?
            }
            Drawn::Over { inputs, run, how } => {
                self.op(Toy::Over { salt, run: *run, how: *how }, self.pick(inputs))?
            }
            Drawn::UpdateAll { inputs } => Command::UpdateAll(self.updates(inputs)),
            Drawn::Replace { target, value } => {
                let (target, value) = (self.pick_one(*target)?, self.pick_one(*value)?);
                if target == value {
                    return None;
                }
                Command::Replace { target, consumed: true, value, made: self.new_numbers(1) }
            }
            Drawn::Break { inputs, bytes, run, how } => {
                let op = Toy::Break { bytes: bytes.clone(), salt, run: *run, how: *how };
                self.op(op, self.pick(inputs))?
            }
            Drawn::Slice { input, start, len } => {
                let x = self.pick_one(*input)?;
                let size = self.layout(x).shape()[0];
                let start = start % (size + 1);
                self.op(Toy::Slice { start, len: (*len).min(size - start) }, vec![x])?
            }
            Drawn::Turn { input, rows } => {
                self.op(Toy::Turn { rows: *rows }, vec![self.pick_one(*input)?])?
            }
            Drawn::Repeat { input, times } => {
                self.op(Toy::Repeat { times: *times }, vec![self.pick_one(*input)?])?
            }
            Drawn::Halves { input, at } => {
                let x = self.pick_one(*input)?;
                let at = at % (self.layout(x).shape()[0] + 1);
                self.op(Toy::Halves { at }, vec![x])?
            }
            Drawn::Alias { .. } => return None,
            Drawn::Label { input } => {
                Command::Label { tensor: self.pick_one(*input)?, label: "labelled".to_owned() }
            }
            Drawn::Del { input } => Command::Del(self.pick_one(*input)?),
            Drawn::DropNow { input } => Command::Drop(self.pick_one(*input)?),
            Drawn::Commit { input } => Command::Commit(self.pick_one(*input)?),
            Drawn::Get { input } => Command::Get(self.pick_one(*input)?),
            Drawn::Step => Command::Step,
        })
    }

    /// Tensors at these positions. Empty if no tensor is held.
    fn pick(&self, positions: &[usize]) -> Vec<TensorId> {
        positions.iter().filter_map(|&position| self.pick_one(position)).collect()
    }

    pub(super) fn pick_one(&self, position: usize) -> Option<TensorId> {
        let n = self.held.len();
        (n > 0).then(|| self.held[n - 1 - position % n].tensor)
    }

    /// Command that applies an op and gives its targets away. `None` if the inputs do not fit; then
    /// the engine must refuse the op and change nothing.
    fn op(&mut self, op: Toy, inputs: Vec<TensorId>) -> Option<Command<Toy, Bytes>> {
        let Ok(outputs) = op.infer(&self.layouts(&inputs)) else {
            let keys: Vec<_> = inputs.iter().map(|&x| self.key(x)).collect();
            let before = self.driver.engine().stats();
            assert!(matches!(self.driver.engine_mut().apply(op, &keys), Err(Error::Op(_))));
            assert_eq!(before, self.driver.engine().stats());
            return None;
        };
        let consumed = (0..outputs.targets()).collect();
        let made = self.new_numbers(outputs.len());
        Some(Command::Apply(Apply { op, inputs: inputs.into(), consumed, outputs, made }))
    }

    /// Updates of the first input of each list by all inputs of that list. A target is given away
    /// unless another update reads it.
    fn updates(&mut self, inputs: &[Vec<usize>]) -> Vec<Apply<Toy>> {
        let mut picked: Vec<Vec<TensorId>> = Vec::new();
        for inputs in inputs {
            let inputs = self.pick(inputs);
            let is_new = |x: &TensorId| picked.iter().all(|other| other[0] != *x);
            if inputs.first().is_some_and(|x| is_new(x) && self.layout(*x).is_contiguous()) {
                picked.push(inputs);
            }
        }
        let mut calls = Vec::new();
        for (update, inputs) in picked.iter().enumerate() {
            let salt = self.salt ^ (update as u64) << 40;
            let op = Toy::Update { targets: 1, fresh: None, salt };
            let outputs = op.infer(&self.layouts(inputs)).expect("the first one is contiguous");
            let mut others = picked.iter().enumerate().filter(|(other, _)| *other != update);
            let consumed = match others.any(|(_, other)| other.contains(&inputs[0])) {
                true => Consumed::default(),
                false => [0].into_iter().collect(),
            };
            let (inputs, made) = (inputs.iter().copied().collect(), self.new_numbers(1));
            calls.push(Apply { op, inputs, consumed, outputs, made });
        }
        calls
    }

    fn layouts(&self, tensors: &[TensorId]) -> Vec<Layout> {
        tensors.iter().map(|&tensor| self.layout(tensor)).collect()
    }
}
