//! The parts of a turn that are the same in each repetition: its commands, with tensors numbered in
//! the order in which they are made.

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

/// The properties of an op that a plan relies on. Attributes such as a learning rate are left out,
/// because they may change from turn to turn. Inputs, outputs and workspace must stay equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Expected {
    /// Hash of the op's name.
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

/// Names of tensors in a turn. The names are equal in each turn of a kind, unlike tensor numbers.
///
/// ```text
/// tensor made in this turn     its index among the tensors made in the turn
/// older tensor                 its slot, marked by the bit `SLOT`
/// ```
///
/// Between two turns, each live tensor has a slot. An update or a replacement takes over the slot
/// of its target. All other live tensors made in a turn get the lowest free slots, in the order in
/// which the tensors were made. A value that a loop carries from turn to turn thus keeps its slot,
/// even if turns of other kinds come in between.
#[derive(Debug, Default)]
pub(super) struct Numbering {
    this: Vec<TensorId>,
    /// Slot (entry in the table of live tensors) that each tensor made in this turn takes over;
    /// `NONE` if it takes over no slot.
    heirs: Vec<u32>,
    /// Whether `this` is not in ascending order, because several threads send commands.
    is_mixed: bool,
    pub slots: Slots,
}

/// Changes to the live tensors made by one turn.
#[derive(Debug, Default)]
pub(super) struct Turned {
    /// Tensors that took over a slot. Each entry has the tensor's index among the tensors made in
    /// the turn, and the slot.
    pub heirs: Vec<(u32, u32)>,
    /// Slots of live tensors that were emptied or refilled, each with the storage of its previous
    /// tensor.
    pub left: Vec<(u32, StorageKey)>,
}

const NONE: u32 = u32::MAX;

/// Bit that is set in the name of a tensor from before the turn, which is the tensor's slot.
const SLOT: u64 = 1 << 62;

/// The name for any number without a tensor, such as the number of a consumed handle that is
/// dropped later.
const NOTHING: TensorId = TensorId(1 << 63);

impl Numbering {
    /// The name of a tensor in the turn.
    pub fn relative(&self, tensor: TensorId) -> TensorId {
        match (self.made_as(tensor), self.slots.of(tensor)) {
            (Some(at), _) => TensorId(at as u64),
            (None, Some(slot)) => TensorId(SLOT | u64::from(slot)),
            (None, None) => NOTHING,
        }
    }

    /// Index of a tensor among the tensors made in this turn.
    fn made_as(&self, tensor: TensorId) -> Option<usize> {
        match self.is_mixed {
            false => self.this.binary_search(&tensor).ok(),
            true => self.this.iter().position(|other| *other == tensor),
        }
    }

    /// Whether `relative` is the name of this tensor.
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

    /// Appends the outputs of the current command to the tensors made in this turn.
    #[inline]
    pub fn make<O, H>(&mut self, command: &Command<O, H>) {
        command.makes(|tensor| {
            self.is_mixed |= self.this.last().is_some_and(|last| *last >= tensor);
            self.this.push(tensor);
        });
    }

    /// Appends the outputs of the current command to the tensors made in this turn. Outputs of
    /// updates and replacements take over the slots of their targets.
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

    /// Ends the turn: updates the slots of the tensors that changed.
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
            // The number may now name another tensor, so read its tensor again.
            if let Some(info) = info(tensors, tensor) {
                self.slots.fill(slot, tensor, info, graph);
            }
            false
        });
        self.heirs.resize(self.this.len(), NONE);
        // Fill slots that are taken over first. If several tensors would take over a slot, such as
        // a value and its copy, the first one gets the slot.
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
        // The remaining numbers in `new` belong to tensors that were made while turns were not
        // compared.
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

    /// Begins a turn, in which no tensor has been made yet.
    pub fn restart(&mut self) {
        self.this.clear();
        self.heirs.clear();
        self.is_mixed = false;
    }

    /// Ends a turn that ran as planned: `heirs` lists the made tensors and the slots that they take
    /// over. Calls `with` for the old and the new tensor of each slot.
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

    /// The form of a command that is compared with later turns. Call
    /// [`make_heirs`](Self::make_heirs) with the command first.
    pub fn planned<D: Device>(&self, command: &Command<D::Op, D::Host>) -> TurnCommand {
        match command {
            Command::Put { tensor, host, leaf } => {
                let tensor = self.relative(*tensor);
                return Command::Put { tensor, host: Arc::new(D::layout_of(host)), leaf: *leaf };
            }
            // Labels may change from turn to turn.
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

    /// Whether a command is the expected one. Outputs need not be compared: their names follow from
    /// their order.
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
