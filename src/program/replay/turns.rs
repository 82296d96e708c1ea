//! What is the same in each turn: commands, with tensors by the order in which they are made.

use super::Planned;
use crate::device::Device;
use crate::op::Operation;
use crate::program::{Apply, Command, TensorId};
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};
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
    /// What is in each slot.
    slots: Vec<Option<TensorId>>,
    slot_of: FxHashMap<TensorId, u32>,
}

const NONE: u32 = u32::MAX;

/// Marks a slot.
const SLOT: u64 = 1 << 62;

/// What means nothing: a handle that was given away before, and is dropped now.
const NOTHING: TensorId = TensorId(1 << 63);

impl Numbering {
    /// What a tensor is called.
    pub fn relative(&self, tensor: TensorId) -> TensorId {
        match (self.made_as(tensor), self.slot_of.get(&tensor)) {
            (Some(at), _) => TensorId(at as u64),
            (None, Some(&slot)) => TensorId(SLOT | u64::from(slot)),
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
            self.slots.get((relative.0 ^ SLOT) as usize) == Some(&Some(tensor))
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
            None => self.slot_of.get(&tensor).copied().unwrap_or(NONE),
        }
    }

    /// The turn is over, and these tensors are there. Returns which of those it made are in which slots now.
    pub fn turn(&mut self, there: impl Iterator<Item = TensorId>) -> Vec<(u32, u32)> {
        let mut there: FxHashSet<TensorId> = there.collect();
        for slot in &mut self.slots {
            slot.take_if(|tensor| !there.remove(tensor));
        }
        self.heirs.resize(self.this.len(), NONE);
        let mut placed = Vec::new();
        // Heirs first, for their slots are theirs. Of several, as a value and its copy, the first.
        let mut rest = Vec::new();
        for (made, (&tensor, &heir)) in (0..).zip(self.this.iter().zip(&self.heirs)) {
            if there.remove(&tensor) {
                match self.slots.get_mut(heir as usize) {
                    Some(slot @ None) => {
                        *slot = Some(tensor);
                        placed.push((made, heir));
                    }
                    _ => rest.push((tensor, Some(made))),
                }
            }
        }
        // What came while nobody looked.
        let mut older: Vec<_> = there.into_iter().map(|tensor| (tensor, None)).collect();
        older.sort_unstable();
        let mut free = 0;
        for (tensor, made) in older.into_iter().chain(rest) {
            while self.slots.get(free).is_some_and(Option::is_some) {
                free += 1;
            }
            if free == self.slots.len() {
                self.slots.push(None);
            }
            self.slots[free] = Some(tensor);
            placed.extend(made.map(|made| (made, free as u32)));
        }
        self.slot_of.clear();
        self.slot_of.extend((0..).zip(&self.slots).filter_map(|(at, slot)| Some(((*slot)?, at))));
        self.restart();
        placed
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
            if let Some(before) = self.slots[slot as usize].replace(tensor) {
                self.slot_of.remove(&before);
                with(before, tensor);
            }
            self.slot_of.insert(tensor, slot);
        }
        self.restart();
    }

    /// The slot of a tensor that is there between two turns.
    pub fn slot(&self, tensor: TensorId) -> Option<u32> {
        self.slot_of.get(&tensor).copied()
    }

    /// A command that has been [made](Self::make_heirs), for the turns to come.
    pub fn planned<D: Device>(&self, command: &Command<D::Op, D::Host>) -> Planned {
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
    pub fn is<D: Device>(&self, expected: &Planned, command: &Command<D::Op, D::Host>) -> bool {
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
