//! What is the same in each turn: commands, with tensors by the order in which they are made.

use super::TurnCommand;
use super::boundary::Slots;
use crate::command::{Apply, Command, TensorId};
use crate::device::Device;
use crate::driver::numbers::Numbers;
use crate::graph::{Graph, StorageKey};
use crate::op::Operation;
use rustc_hash::FxHasher;
use std::convert::Infallible;
use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;

/// What is expected of an op. Its attributes are its own business: they may change from turn to turn, as a learning rate
/// does. What it reads, makes and needs beside may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Expected {
    /// Of its name.
    hash: u64,
    rematerializable: bool,
}

impl Expected {
    #[inline]
    pub fn of(op: &impl Operation) -> Self {
        let mut hasher = FxHasher::default();
        op.name().hash(&mut hasher);
        Self { hash: hasher.finish(), rematerializable: op.rematerializable() }
    }
}

/// What tensors are called in a turn, which is the same in each turn of a kind. (Their numbers are not.)
///
/// ```text
/// tensor made in this turn     how many it made before
/// older tensor                 its slot, marked
/// ```
///
/// Between two turns, each tensor that is there has a slot. What updates or replaces a tensor takes over its slot; what else a
/// turn leaves gets the lowest that are free, in the order in which it was made. So what a loop carries from turn to turn is
/// in the same slot at each boundary, whatever turns come in between.
#[derive(Debug, Default)]
pub(super) struct Numbering {
    this: Vec<TensorId>,
    /// Of each tensor of this turn: the slot that it takes over; `NONE` if it is new.
    heirs: Vec<u32>,
    /// Whether `this` is not in rising order, since several threads send commands.
    is_mixed: bool,
    pub slots: Slots,
}

/// What a turn changed of what is there.
#[derive(Debug, Default)]
pub(super) struct Turned {
    /// Which of the tensors that it made are in which slots now.
    pub heirs: Vec<(u32, u32)>,
    /// Slots that were left, or are looked at anew, each with the storage that was looked at there.
    pub left: Vec<(u32, StorageKey)>,
}

const NONE: u32 = u32::MAX;

/// Marks a slot.
const SLOT: u64 = 1 << 62;

/// What means nothing: a handle that was given away before, and is dropped now.
const NOTHING: TensorId = TensorId(1 << 63);

impl Numbering {
    /// What a tensor is called.
    pub fn relative(&self, tensor: TensorId) -> TensorId {
        match (self.made_as(tensor), self.slots.of(tensor)) {
            (Some(at), _) => TensorId(at as u64),
            (None, Some(slot)) => TensorId(SLOT | u64::from(slot)),
            (None, None) => NOTHING,
        }
    }

    /// As which tensor of this turn it was made.
    fn made_as(&self, tensor: TensorId) -> Option<usize> {
        match self.is_mixed {
            false => self.this.binary_search(&tensor).ok(),
            true => self.this.iter().position(|other| *other == tensor),
        }
    }

    /// Whether that is what this tensor is called.
    #[inline(always)]
    fn is_for(&self, relative: TensorId, tensor: TensorId) -> bool {
        if relative.0 < SLOT {
            self.this.get(relative.0 as usize) == Some(&tensor)
        } else if relative == NOTHING {
            self.relative(tensor) == NOTHING
        } else {
            self.slots.tensor((relative.0 ^ SLOT) as u32) == Some(tensor)
        }
    }

    /// The command at hand makes what it does.
    #[inline]
    pub fn make<O, H>(&mut self, command: &Command<O, H>) {
        command.makes(|tensor| {
            self.is_mixed |= self.this.last().is_some_and(|last| *last >= tensor);
            self.this.push(tensor);
        });
    }

    /// The same, and what updates or replaces something takes over its slot.
    pub fn make_heirs<O, H>(&mut self, command: &Command<O, H>) {
        let first = self.this.len();
        self.make(command);
        self.heirs.resize(self.this.len(), NONE);
        let mut at = first;
        for call in command.calls() {
            for (made, target) in call.inputs.iter().take(call.outputs.targets()).enumerate() {
                self.heirs[at + made] = self.slot_to_inherit(*target);
            }
            at += call.outputs.len();
        }
        if let Command::Replace { target, .. } = command {
            self.heirs[first] = self.slot_to_inherit(*target);
        }
    }

    fn slot_to_inherit(&self, tensor: TensorId) -> u32 {
        match self.made_as(tensor) {
            Some(at) => self.heirs.get(at).copied().unwrap_or(NONE),
            None => self.slots.of(tensor).unwrap_or(NONE),
        }
    }

    /// The turn is over: what changed in it has other slots now.
    pub fn turn(&mut self, tensors: &mut Numbers, graph: &Graph) -> Turned {
        let mut turned = Turned::default();
        let info = |tensors: &Numbers, tensor| graph.tensor(tensors.get(tensor)?);
        let mut new = tensors.take_changes();
        #[cfg(test)]
        {
            self.slots.changed += new.len() as u64;
        }
        new.retain(|&tensor| {
            let Some(slot) = self.slots.of(tensor) else { return tensors.get(tensor).is_some() };
            turned.left.extend(self.slots.leave(slot).map(|storage| (slot, storage)));
            // The number means something else now.
            if let Some(info) = info(tensors, tensor) {
                self.slots.fill(slot, tensor, info, graph);
            }
            false
        });
        self.heirs.resize(self.this.len(), NONE);
        // Heirs first, for their slots are theirs. Of several, as a value and its copy, the first.
        let mut rest = Vec::new();
        for (made, (&tensor, &heir)) in (0..).zip(self.this.iter().zip(&self.heirs)) {
            if self.slots.of(tensor).is_none()
                && let Some(info) = info(tensors, tensor)
            {
                if heir != NONE && self.slots.tensor(heir).is_none() {
                    self.slots.fill(heir, tensor, info, graph);
                    turned.heirs.push((made, heir));
                } else {
                    rest.push((tensor, Some(made)));
                }
            }
        }
        // What came while nobody looked.
        let mut of_turn: Vec<TensorId> = rest.iter().map(|(tensor, _)| *tensor).collect();
        of_turn.sort_unstable();
        new.retain(|tensor| of_turn.binary_search(tensor).is_err());
        let older = new.into_iter().map(|tensor| (tensor, None));
        for (tensor, made) in older.chain(rest) {
            if self.slots.of(tensor).is_none()
                && let Some(info) = info(tensors, tensor)
            {
                let free = self.slots.lowest_free();
                self.slots.fill(free, tensor, info, graph);
                turned.heirs.extend(made.map(|made| (made, free)));
            }
        }
        self.restart();
        turned
    }

    /// Nothing was made in this turn.
    pub fn restart(&mut self) {
        self.this.clear();
        self.heirs.clear();
        self.is_mixed = false;
    }

    /// The turn is over, and was as planned: the tensor made as number so and so is in this slot now. Calls `with` for the
    /// tensor that was there and the one that is.
    pub fn turn_as_planned(
        &mut self,
        heirs: &[(u32, u32)],
        mut with: impl FnMut(TensorId, TensorId),
    ) {
        for &(made, slot) in heirs {
            let tensor = self.this[made as usize];
            if let Some(before) = self.slots.rename(slot, tensor) {
                with(before, tensor);
            }
        }
        self.restart();
    }

    /// A command that has been [made](Self::make_heirs), for the turns to come.
    pub fn planned<D: Device>(&self, command: &Command<D::Op, D::Host>) -> TurnCommand {
        match command {
            Command::Put { tensor, host, leaf } => {
                let tensor = self.relative(*tensor);
                return Command::Put { tensor, host: Arc::new(D::layout_of(host)), leaf: *leaf };
            }
            // What it is called may change from turn to turn.
            Command::Label { tensor, .. } => {
                return Command::Label { tensor: self.relative(*tensor), label: String::new() };
            }
            _ => {}
        }
        let named = command.try_map::<_, _, Infallible>(
            |op, _| Ok(Expected::of(op)),
            |_, _| unreachable!("a put was made above"),
        );
        let named = named.unwrap_or_else(|never| match never {});
        named.renumbered(|tensor| self.relative(tensor))
    }

    /// Whether a command is the one that is expected. What it makes need not be compared: it is what comes next.
    #[inline]
    pub fn is<D: Device>(&self, expected: &TurnCommand, command: &Command<D::Op, D::Host>) -> bool {
        match (expected, command) {
            (Command::Apply(expected), Command::Apply(call)) => self.is_call(expected, call),
            (Command::Del(expected), Command::Del(tensor))
            | (Command::Get(expected), Command::Get(tensor))
            | (Command::Drop(expected), Command::Drop(tensor))
            | (Command::Commit(expected), Command::Commit(tensor))
            | (Command::Label { tensor: expected, .. }, Command::Label { tensor, .. }) => {
                self.is_for(*expected, *tensor)
            }
            (
                Command::Put { host: layout, leaf: expected_leaf, .. },
                Command::Put { host, leaf, .. },
            ) => leaf == expected_leaf && D::layout_of(host) == **layout,
            (Command::UpdateAll(expected), Command::UpdateAll(calls)) => {
                expected.len() == calls.len()
                    && expected.iter().zip(calls).all(|(one, other)| self.is_call(one, other))
            }
            (
                &Command::Replace { target: expected_target, consumed: given, value: by, .. },
                &Command::Replace { target, consumed, value, .. },
            ) => {
                self.is_for(expected_target, target) && self.is_for(by, value) && given == consumed
            }
            (Command::Confirm, Command::Confirm)
            | (Command::Step, Command::Step)
            | (Command::Sync, Command::Sync) => true,
            _ => false,
        }
    }

    #[inline]
    fn is_call<O: Operation>(&self, expected: &Apply<Expected>, call: &Apply<O>) -> bool {
        expected.inputs.len() == call.inputs.len()
            && expected
                .inputs
                .iter()
                .zip(&call.inputs)
                .all(|(one, input)| self.is_for(*one, *input))
            && expected.op == Expected::of(&call.op)
            && expected.outputs == call.outputs
            && expected.consumed == call.consumed
    }
}
