//! What is the same in each turn: commands, with tensors by the order in which they are made.

use super::Planned;
use crate::device::Device;
use crate::op::Operation;
use crate::program::{Apply, Command, TensorId};
use rustc_hash::FxHasher;
use std::convert::Infallible;
use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;

/// What is expected of an op. Its attributes are its own business: they may change from turn to turn, as a learning rate
/// does. What it reads, makes and needs beside may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Expected {
    /// Of its name.
    hash: u64,
    rematerializable: bool,
}

impl Expected {
    #[inline]
    fn of(op: &impl Operation) -> Self {
        let mut hasher = FxHasher::default();
        op.name().hash(&mut hasher);
        Self { hash: hasher.finish(), rematerializable: op.rematerializable() }
    }
}

/// The tensors of a turn by the order in which it makes them, which is the same in each turn. (Their numbers are not: other
/// runtimes of the program count on meanwhile.)
///
/// ```text
/// tensor made in this turn         how many it made before
/// tensor made in the turn before   the same, marked
/// older tensor                     its number, marked otherwise
/// ```
#[derive(Clone, Debug)]
pub(super) struct Numbering {
    this: Vec<TensorId>,
    before: Vec<TensorId>,
    /// Whether both are in rising order, as they are unless several threads send commands.
    rises: bool,
}

impl Default for Numbering {
    fn default() -> Self {
        Self { this: Vec::new(), before: Vec::new(), rises: true }
    }
}

const BEFORE: u64 = 1 << 62;
const OLDER: u64 = 1 << 63;

impl Numbering {
    /// A tensor by the order in which it was made.
    pub fn relative(&self, tensor: TensorId) -> TensorId {
        let find = |made: &[TensorId]| match self.rises {
            true => made.binary_search(&tensor).ok(),
            false => made.iter().position(|other| *other == tensor),
        };
        TensorId(match (find(&self.this), find(&self.before)) {
            (Some(at), _) => at as u64,
            (None, Some(at)) => BEFORE | at as u64,
            (None, None) => OLDER | tensor.0,
        })
    }

    /// Whether that is this tensor.
    #[inline(always)]
    fn is_for(&self, relative: TensorId, tensor: TensorId) -> bool {
        let at = (relative.0 & !(BEFORE | OLDER)) as usize;
        match relative.0 & (BEFORE | OLDER) {
            0 => self.this.get(at) == Some(&tensor),
            BEFORE => self.before.get(at) == Some(&tensor),
            _ => relative.0 == OLDER | tensor.0,
        }
    }

    /// The command at hand makes what it does.
    #[inline]
    pub fn make<O, H>(&mut self, command: &Command<O, H>) {
        command.makes(|tensor| {
            self.rises &= self.this.last().is_none_or(|last| *last < tensor);
            self.this.push(tensor);
        });
    }

    /// The turn is over.
    pub fn turn(&mut self) {
        std::mem::swap(&mut self.this, &mut self.before);
        self.this.clear();
    }

    /// For a tensor that is there when a turn begins and that the turn before made: its number then, and that of what
    /// takes its place at the end of this turn.
    pub fn successor(&self, relative: TensorId) -> Option<(TensorId, TensorId)> {
        let at = (relative.0 ^ BEFORE) as usize;
        let is_of_before = relative.0 & (BEFORE | OLDER) == BEFORE;
        is_of_before.then(|| Some((*self.before.get(at)?, *self.this.get(at)?))).flatten()
    }

    /// A command, for the turns to come. It makes what it does.
    pub fn planned<D: Device>(&mut self, command: &Command<D::Op, D::Host>) -> Planned {
        self.make(command);
        if let Command::Put { tensor, host, leaf } = command {
            let tensor = self.relative(*tensor);
            return Command::Put { tensor, host: Arc::new(D::layout_of(host)), leaf: *leaf };
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
