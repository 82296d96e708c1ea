//! The command language: what an engine is told to do, with tensors by number.
//!
//! Commands that make sense one after the other are a [`Program`]; a recording is one whose ops are known by their sizes and
//! costs ([`RecordedProgram`]). Nothing here knows who executes them.

mod program;
mod recorded;
// What is read of recordings, and replayed, is the lab's.
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

/// A command, over ops `O` and values from the host `H`.
///
/// What a number means ends with [`Command::Del`], or with the update or replacement that consumes it.
#[derive(Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case", deny_unknown_fields))]
#[allow(clippy::large_enum_variant)] // The large one is by far the most frequent; boxing it costs more.
pub enum Command<O, H> {
    /// A value from the host.
    Put {
        /// What it makes.
        tensor: TensorId,
        /// The value.
        host: Arc<H>,
        /// Whether it must never be evicted.
        #[cfg_attr(feature = "serde", serde(default))]
        leaf: bool,
    },
    /// An op.
    Apply(Apply<O>),
    /// Updates in place, all or none.
    UpdateAll(Vec<Apply<O>>),
    /// From now on another number stands for a value, as [`Engine::replace`](crate::Engine::replace) says.
    Replace {
        /// Whose value is replaced.
        target: TensorId,
        /// Whether its last handle was given away.
        consumed: bool,
        /// The new value.
        value: TensorId,
        /// What stands for it.
        made: TensorId,
    },
    /// Replacements so far stay, whatever fails from now on.
    Confirm,
    /// The host reads it.
    Get(TensorId),
    /// Its last handle went.
    Del(TensorId),
    /// The user wants it to be evicted.
    Drop(TensorId),
    /// It becomes a leaf.
    Commit(TensorId),
    /// It has a name in messages.
    Label {
        /// Which.
        tensor: TensorId,
        /// Its name.
        label: String,
    },
    /// The end of a step of the training loop.
    Step,
    /// The caller waits until all before it is done.
    Sync,
}

/// An op, and the tensors that it reads and makes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Apply<O> {
    /// The op.
    pub op: O,
    /// What it reads, repeats included.
    pub inputs: Ids,
    /// Which of the inputs that it updates are given away.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Consumed::is_empty"))]
    pub consumed: Consumed,
    /// What it makes.
    pub outputs: Outputs,
    /// The number of its first output; the others follow.
    pub made: TensorId,
}

/// The inputs that may be updated in place, because their last handles were given away. The others keep their values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(into = "Vec<usize>", try_from = "Vec<usize>"))]
pub struct Consumed {
    /// A bit for each of the first inputs: nearly always there are no others.
    first: u64,
    /// Words of bits for the inputs after those.
    #[allow(clippy::box_collection)] // It is empty nearly always, and goes with each command.
    others: Option<Box<Vec<u64>>>,
}

impl Consumed {
    /// More inputs than any op has.
    const MOST: usize = 1 << 20;

    /// The word and the bit of an input.
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

    /// Whether input number `input` is among them.
    #[must_use]
    pub fn contains(&self, input: usize) -> bool {
        let (word, bit) = Self::place(input);
        let word = match word.checked_sub(1) {
            None => self.first,
            Some(other) => self.others().get(other).copied().unwrap_or(0),
        };
        word & bit != 0
    }

    /// Whether there are none.
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
            Some(input) => Err(format!("input {input} is consumed, and no op has so many inputs")),
            None => Ok(inputs.into_iter().collect()),
        }
    }
}

impl<O> Apply<O> {
    /// An op that consumes nothing: all inputs keep their values.
    #[must_use]
    pub fn new(op: O, inputs: impl Into<Ids>, outputs: Outputs, made: TensorId) -> Self {
        Self { op, inputs: inputs.into(), consumed: Consumed::default(), outputs, made }
    }

    /// The numbers of its outputs.
    pub fn outputs(&self) -> impl ExactSizeIterator<Item = TensorId> + Clone {
        self.made.and_next(self.outputs.len())
    }

    /// The inputs whose numbers end with it.
    pub fn ended(&self) -> impl Iterator<Item = TensorId> {
        let targets = self.inputs.iter().take(self.outputs.targets()).enumerate();
        targets.filter(|(input, _)| self.consumed.contains(*input)).map(|(_, &id)| id)
    }

    /// The op, and the rest.
    pub(crate) fn split_op(self) -> (O, Apply<()>) {
        let Self { op, inputs, consumed, outputs, made } = self;
        (op, Apply { op: (), inputs, consumed, outputs, made })
    }

    /// The same with another op.
    pub(crate) fn with_op<P>(self, op: P) -> Apply<P> {
        let Self { inputs, consumed, outputs, made, .. } = self;
        Apply { op, inputs, consumed, outputs, made }
    }
}

impl<O, H> Command<O, H> {
    /// What it applies: an op, or several updates.
    #[must_use]
    pub fn calls(&self) -> &[Apply<O>] {
        match self {
            Self::Apply(call) => std::slice::from_ref(call),
            Self::UpdateAll(calls) => calls,
            _ => &[],
        }
    }

    /// The same, to change them.
    pub(crate) fn calls_mut(&mut self) -> &mut [Apply<O>] {
        match self {
            Self::Apply(call) => std::slice::from_mut(call),
            Self::UpdateAll(calls) => calls,
            _ => &mut [],
        }
    }

    /// Whether it is a step further for who looks ahead: a deletion is not, and goes with the command before it.
    pub(crate) const fn counts(&self) -> bool {
        !matches!(self, Self::Del(_))
    }

    /// Whether it has a position in a known step: a deletion and an eviction have none, for nothing is used by them, and neither
    /// has a wait, which in a run is a question and no command.
    pub(crate) const fn is_position(&self) -> bool {
        !matches!(self, Self::Del(_) | Self::Drop(_) | Self::Sync)
    }

    /// Calls `with` for each tensor that must be resident for it, repeats included.
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

    /// Calls `with` for each tensor that must be there for it, repeats included.
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

    /// Calls `with` for each tensor that it makes.
    pub fn makes(&self, mut with: impl FnMut(TensorId)) {
        match *self {
            Self::Put { tensor, .. } => with(tensor),
            Self::Replace { made, .. } => with(made),
            _ => self.calls().iter().flat_map(Apply::outputs).for_each(with),
        }
    }

    /// Calls `with` for each tensor whose number ends with it.
    pub fn ends(&self, mut with: impl FnMut(TensorId)) {
        match *self {
            Self::Del(tensor) => with(tensor),
            Self::Replace { target, consumed: true, .. } => with(target),
            _ => self.calls().iter().flat_map(Apply::ended).for_each(with),
        }
    }

    /// The same with other numbers.
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

    /// The same with other ops and values from the host.
    ///
    /// # Errors
    /// The first of `op` or `host`.
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

    /// Its name, for spans, and what it is, for messages.
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

    /// Its name, for spans.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.words()[0]
    }

    /// What it is, for messages.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        self.words()[1]
    }
}

impl<O: Operation, H> Command<O, H> {
    /// The name of its op; of several updates, that of the first.
    #[must_use]
    pub fn op(&self) -> Option<&str> {
        self.calls().first().map(|call| call.op.name())
    }
}

impl<O: Clone, H> Clone for Command<O, H> {
    /// The value from the host is shared.
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
