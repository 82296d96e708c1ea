//! The command language: instructions to an engine, in which tensors are named by numbers.
//!
//! A [`Program`] is a valid list of commands. A recording is a program whose ops have only sizes
//! and costs ([`RecordedProgram`]). The command language does not depend on the code that executes
//! commands.

mod program;
mod recorded;
// Only the lab reads and replays recordings.
#[cfg_attr(not(feature = "lab"), allow(dead_code))]
mod reruns;
mod tensor_id;
mod window;

pub use program::{Program, ProgramError};
pub use recorded::{RecordedCommand, RecordedCosts, RecordedOp, RecordedProgram, RecordedValue};
#[cfg(feature = "lab")]
pub(crate) use reruns::Regenerations;
pub use reruns::Reruns;
pub use tensor_id::{Ids, TensorId};
pub use window::{Ahead, Waiting, Window};

use crate::op::{Operation, Outputs};
use std::sync::Arc;

/// A command, with ops of type `O` and host values of type `H`.
///
/// A tensor number is in use until a [`Command::Del`] of the tensor, or until an update or
/// replacement consumes the tensor.
#[derive(Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case", deny_unknown_fields))]
#[allow(clippy::large_enum_variant)] // Boxing the large, most frequent variant costs more.
pub enum Command<O, H> {
    /// Uploads a host value.
    Put {
        /// Number of the new tensor.
        tensor: TensorId,
        /// The value.
        host: Arc<H>,
        /// Whether the tensor must never be evicted.
        #[cfg_attr(feature = "serde", serde(default))]
        leaf: bool,
    },
    /// Runs an op.
    Apply(Apply<O>),
    /// Runs several updates in place. No update is made if memory does not suffice for all updates
    /// together, or if a command failed earlier in the step.
    UpdateAll(Vec<Apply<O>>),
    /// Gives a value a new number that replaces another tensor, as
    /// [`Engine::replace`](crate::Engine::replace) says.
    Replace {
        /// The tensor that is replaced.
        target: TensorId,
        /// Whether the command consumes `target`: the caller gave up the last handle of `target`.
        consumed: bool,
        /// The new value.
        value: TensorId,
        /// Number of the replacement.
        made: TensorId,
    },
    /// Confirms all replacements so far, so that later failures do not undo them.
    Confirm,
    /// Reads a tensor to the host.
    Get(TensorId),
    /// Deletes a tensor, whose last handle was dropped.
    Del(TensorId),
    /// Evicts a tensor now, at the user's request.
    Drop(TensorId),
    /// Makes a tensor a leaf.
    Commit(TensorId),
    /// Names a tensor in messages.
    Label {
        /// The tensor.
        tensor: TensorId,
        /// Name of the tensor.
        label: String,
    },
    /// Marks the end of a step of the training loop.
    Step,
    /// Waits until all earlier commands are done.
    Sync,
}

/// An op with its input and output tensors.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Apply<O> {
    /// The op.
    pub op: O,
    /// Input tensors, repeats included.
    pub inputs: Ids,
    /// Updated inputs that the op consumes: the caller gave up their last handles.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Consumed::is_empty"))]
    pub consumed: Consumed,
    /// Layouts and kind of the outputs.
    pub outputs: Outputs,
    /// Number of the first output. The other outputs have the next numbers.
    pub made: TensorId,
}

/// Inputs that an op consumes. The caller gave up their last handles, so the op may update these
/// inputs in place. All other inputs keep their values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(into = "Vec<usize>", try_from = "Vec<usize>"))]
pub struct Consumed {
    /// A bit for each of the first 64 inputs; nearly no op has more inputs.
    first: u64,
    /// Bits for the inputs after the first 64, in words of 64.
    #[allow(clippy::box_collection)] // Nearly always empty; moves with each command.
    others: Option<Box<Vec<u64>>>,
}

impl Consumed {
    /// Limit on the index of a consumed input. Every op has far fewer inputs.
    const MOST: usize = 1 << 20;

    /// Index of the word that has an input's bit, and the bit in the word.
    const fn place(input: usize) -> (usize, u64) {
        (input / u64::BITS as usize, 1 << (input % u64::BITS as usize))
    }

    /// Adds input number `input`.
    pub fn insert(&mut self, input: usize) {
        let (word, bit) = Self::place(input);
        let Some(other) = word.checked_sub(1) else {
            self.first |= bit;
            return;
        };
        let others = self.others.get_or_insert_default();
        if other >= others.len() {
            others.resize(other + 1, 0);
        }
        others[other] |= bit;
    }

    /// Whether input number `input` is consumed.
    #[must_use]
    pub fn contains(&self, input: usize) -> bool {
        let (word, bit) = Self::place(input);
        let word = match word.checked_sub(1) {
            None => self.first,
            Some(other) => self.others().get(other).copied().unwrap_or(0),
        };
        word & bit != 0
    }

    /// Whether no input is consumed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.first == 0 && self.others().iter().all(|word| *word == 0)
    }

    fn others(&self) -> &[u64] {
        self.others.as_deref().map_or(&[], Vec::as_slice)
    }
}

impl FromIterator<usize> for Consumed {
    fn from_iter<I: IntoIterator<Item = usize>>(inputs: I) -> Self {
        let mut consumed = Self::default();
        inputs.into_iter().for_each(|input| consumed.insert(input));
        consumed
    }
}

impl From<Consumed> for Vec<usize> {
    fn from(consumed: Consumed) -> Self {
        let bits = (1 + consumed.others().len()) * u64::BITS as usize;
        (0..bits).filter(|&input| consumed.contains(input)).collect()
    }
}

impl TryFrom<Vec<usize>> for Consumed {
    type Error = String;

    fn try_from(inputs: Vec<usize>) -> Result<Self, String> {
        match inputs.iter().find(|input| **input >= Self::MOST) {
            Some(input) => Err(format!("input {input} is consumed, but no op has as many inputs")),
            None => Ok(inputs.into_iter().collect()),
        }
    }
}

impl<O> Apply<O> {
    /// Makes an op without consumed inputs: all inputs keep their values.
    #[must_use]
    pub fn new(op: O, inputs: impl Into<Ids>, outputs: Outputs, made: TensorId) -> Self {
        Self { op, inputs: inputs.into(), consumed: Consumed::default(), outputs, made }
    }

    /// Numbers of the outputs.
    pub fn outputs(&self) -> impl ExactSizeIterator<Item = TensorId> + Clone {
        self.made.and_next(self.outputs.len())
    }

    /// Inputs that the op consumes, so that their numbers are no longer in use.
    pub fn ended(&self) -> impl Iterator<Item = TensorId> {
        let targets = self.inputs.iter().take(self.outputs.targets()).enumerate();
        targets.filter(|(input, _)| self.consumed.contains(*input)).map(|(_, &id)| id)
    }

    /// Splits the call into its op and the other fields.
    pub(crate) fn split_op(self) -> (O, Apply<()>) {
        let Self { op, inputs, consumed, outputs, made } = self;
        (op, Apply { op: (), inputs, consumed, outputs, made })
    }

    /// Replaces the op.
    pub(crate) fn with_op<P>(self, op: P) -> Apply<P> {
        let Self { inputs, consumed, outputs, made, .. } = self;
        Apply { op, inputs, consumed, outputs, made }
    }
}

impl<O, H> Command<O, H> {
    /// Ops that the command runs: one op, several updates, or none.
    #[must_use]
    pub fn calls(&self) -> &[Apply<O>] {
        match self {
            Self::Apply(call) => std::slice::from_ref(call),
            Self::UpdateAll(calls) => calls,
            _ => &[],
        }
    }

    /// Mutable access to the ops that the command runs.
    pub(crate) fn calls_mut(&mut self) -> &mut [Apply<O>] {
        match self {
            Self::Apply(call) => std::slice::from_mut(call),
            Self::UpdateAll(calls) => calls,
            _ => &mut [],
        }
    }

    /// Whether the command counts towards the length of a [`Window`]. A deletion does not count,
    /// because it belongs to the command before it.
    pub(crate) const fn counts(&self) -> bool {
        !matches!(self, Self::Del(_))
    }

    /// Whether the command has a position in a known step.
    ///
    /// A deletion or an eviction has no position, because it uses no values. A wait
    /// ([`Command::Sync`]) has no position, because a runtime sends waits as questions, not as
    /// commands.
    pub(crate) const fn is_position(&self) -> bool {
        !matches!(self, Self::Del(_) | Self::Drop(_) | Self::Sync)
    }

    /// Calls `with` for each tensor that must be resident for the command, repeats included.
    pub fn reads(&self, mut with: impl FnMut(TensorId)) {
        match *self {
            Self::Apply(_) | Self::UpdateAll(_) => {
                self.calls().iter().flat_map(|call| &call.inputs).for_each(|&input| with(input));
            }
            Self::Get(tensor) | Self::Commit(tensor) => with(tensor),
            Self::Replace { value, .. } => with(value),
            _ => {}
        }
    }

    /// Calls `with` for each tensor that must be live for the command, repeats included.
    pub fn mentions(&self, mut with: impl FnMut(TensorId)) {
        self.reads(&mut with);
        match *self {
            Self::Replace { target: tensor, .. }
            | Self::Del(tensor)
            | Self::Drop(tensor)
            | Self::Label { tensor, .. } => with(tensor),
            _ => {}
        }
    }

    /// Calls `with` for each tensor that the command makes.
    pub fn makes(&self, mut with: impl FnMut(TensorId)) {
        match *self {
            Self::Put { tensor, .. } => with(tensor),
            Self::Replace { made, .. } => with(made),
            _ => self.calls().iter().flat_map(Apply::outputs).for_each(with),
        }
    }

    /// Calls `with` for each tensor that the command deletes or consumes.
    pub fn ends(&self, mut with: impl FnMut(TensorId)) {
        match *self {
            Self::Del(tensor) => with(tensor),
            Self::Replace { target, consumed: true, .. } => with(target),
            _ => self.calls().iter().flat_map(Apply::ended).for_each(with),
        }
    }

    /// Replaces each tensor number by the number that `of` returns for it.
    #[must_use]
    pub fn renumbered(mut self, mut of: impl FnMut(TensorId) -> TensorId) -> Self {
        let call = |call: &mut Apply<O>, of: &mut dyn FnMut(TensorId) -> TensorId| {
            call.inputs.iter_mut().for_each(|input| *input = of(*input));
            call.made = of(call.made);
        };
        self.calls_mut().iter_mut().for_each(|one| call(one, &mut of));
        match &mut self {
            Self::Replace { target, value, made, .. } => {
                [target, value, made].into_iter().for_each(|id| *id = of(*id));
            }
            Self::Put { tensor, .. }
            | Self::Get(tensor)
            | Self::Del(tensor)
            | Self::Drop(tensor)
            | Self::Commit(tensor)
            | Self::Label { tensor, .. } => *tensor = of(*tensor),
            _ => {}
        }
        self
    }

    /// Converts the command's ops with `op`, and its host value with `host`.
    ///
    /// # Errors
    /// The first error of `op` or `host`.
    pub fn try_map<P, I, E>(
        &self,
        mut op: impl FnMut(&O, &Apply<O>) -> Result<P, E>,
        mut host: impl FnMut(TensorId, &H) -> Result<Arc<I>, E>,
    ) -> Result<Command<P, I>, E> {
        let mut call = |call: &Apply<O>| {
            Ok(Apply {
                op: op(&call.op, call)?,
                inputs: call.inputs.clone(),
                consumed: call.consumed.clone(),
                outputs: call.outputs.clone(),
                made: call.made,
            })
        };
        Ok(match self {
            Self::Put { tensor, host: value, leaf } => {
                Command::Put { tensor: *tensor, host: host(*tensor, value)?, leaf: *leaf }
            }
            Self::Apply(one) => Command::Apply(call(one)?),
            Self::UpdateAll(calls) => {
                Command::UpdateAll(calls.iter().map(call).collect::<Result<_, E>>()?)
            }
            &Self::Replace { target, consumed, value, made } => {
                Command::Replace { target, consumed, value, made }
            }
            Self::Confirm => Command::Confirm,
            Self::Get(tensor) => Command::Get(*tensor),
            Self::Del(tensor) => Command::Del(*tensor),
            Self::Drop(tensor) => Command::Drop(*tensor),
            Self::Commit(tensor) => Command::Commit(*tensor),
            Self::Label { tensor, label } => {
                Command::Label { tensor: *tensor, label: label.clone() }
            }
            Self::Step => Command::Step,
            Self::Sync => Command::Sync,
        })
    }

    /// Name for tracing spans, and description for messages.
    const fn words(&self) -> [&'static str; 2] {
        match self {
            Self::Put { .. } => ["put", "a put"],
            Self::Apply(_) => ["apply", "an op"],
            Self::UpdateAll(_) => ["update_all", "an update of several tensors"],
            Self::Replace { .. } => ["replace", "a replacement"],
            Self::Confirm => ["confirm", "a replacement"],
            Self::Get(_) => ["get", "a get"],
            Self::Del(_) => ["del", "a delete"],
            Self::Drop(_) => ["drop", "a drop"],
            Self::Commit(_) => ["commit", "a commit"],
            Self::Label { .. } => ["label", "a label"],
            Self::Step => ["step", "the end of a step"],
            Self::Sync => ["sync", "a sync"],
        }
    }

    /// Name for spans.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.words()[0]
    }

    /// Description for messages.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        self.words()[1]
    }
}

impl<O: Operation, H> Command<O, H> {
    /// Name of the op, or of the first op of several updates; `None` for commands without an op.
    #[must_use]
    pub fn op(&self) -> Option<&str> {
        self.calls().first().map(|call| call.op.name())
    }
}

impl<O: Clone, H> Clone for Command<O, H> {
    /// Clones the command. The clone shares a host value with the original.
    fn clone(&self) -> Self {
        if let Self::Put { tensor, host, leaf } = self {
            return Self::Put { tensor: *tensor, host: Arc::clone(host), leaf: *leaf };
        }
        let same: Result<_, std::convert::Infallible> =
            self.try_map(|op, _| Ok(op.clone()), |_, _| unreachable!("a put was cloned above"));
        same.unwrap_or_else(|never| match never {})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_inputs_may_be_consumed() {
        let given = [0, 3, 63, 64, 65, 127, 128, 1000];
        let consumed: Consumed = given.into_iter().collect();
        let found: Vec<usize> = (0..2000).filter(|&input| consumed.contains(input)).collect();
        assert_eq!(found, given);
        assert_eq!(Vec::from(consumed), given);
        assert!(Consumed::try_from(vec![usize::MAX]).is_err());
    }
}
