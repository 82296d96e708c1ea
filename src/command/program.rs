//! Valid lists of commands.

use super::{Apply, Command, TensorId};
use crate::op::Outputs;
use crate::sync::OnceLock;
use smallvec::SmallVec;
use std::sync::Arc;

/// A list of commands: a step of a training loop, several steps, or a part of a step.
///
/// A program is valid by construction: every tensor that a command names is live. Tensors are
/// numbered from 0 without gaps, in the order in which they are made. A program is serialized as
/// its list of commands, and deserializing checks the commands.
#[derive(Clone, Debug)]
pub struct Program<O, H> {
    commands: Vec<Command<O, H>>,
    /// Whether each tensor's number is still in use.
    alive: Vec<bool>,
    /// Total cost of a recording's commands. The cost is computed on first use and then kept,
    /// because each replay needs it.
    pub(super) cost: OnceLock<f64>,
}

/// Reasons why a command is invalid at its position in a program.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// The command names a tensor that was deleted, consumed, or never made.
    #[error("the tensor does not exist any more: it was deleted or consumed")]
    Gone,
    /// A tensor that the command makes has a wrong number.
    #[error("a command makes tensor {found}, but the next number is {next}")]
    Numbering {
        /// The number found.
        found: TensorId,
        /// The expected number.
        next: TensorId,
    },
    /// A cost or flops that is negative, NaN or infinite.
    #[error("{what} is {value}, expected a finite number from 0 up")]
    Number {
        /// Name of the quantity.
        what: &'static str,
        /// Value of the quantity.
        value: f64,
    },
    /// A size above the limit, which keeps sums of sizes below 64 bits.
    #[error("a size of {0} bytes is more than any device has")]
    Size(u64),
    /// An output that refers to a missing input.
    #[error("an output refers to input {input}, but the op has {count} inputs, counted from 0")]
    Input {
        /// Index of the input.
        input: usize,
        /// Number of inputs.
        count: usize,
    },
    /// An op with both views and other outputs.
    #[error("some outputs are views and some are not; make all or none views")]
    Mixed,
    /// The command consumes a tensor twice.
    #[error("one input is updated by two outputs")]
    UpdatedTwice,
    /// More than `u32::MAX` tensors.
    #[error("there are more than {} tensors", u32::MAX)]
    TooLong,
}

impl ProgramError {
    /// Limit on the bytes of a tensor, so that sums of a few sizes never overflow.
    const MAX_BYTES: u64 = 1 << 56;

    pub(crate) const fn check_size(bytes: u64) -> Result<(), Self> {
        if bytes <= Self::MAX_BYTES { Ok(()) } else { Err(Self::Size(bytes)) }
    }
}

impl<O, H> Default for Program<O, H> {
    fn default() -> Self {
        Self { commands: Vec::new(), alive: Vec::new(), cost: OnceLock::new() }
    }
}

#[cfg(feature = "serde")]
impl<O: serde::Serialize, H: serde::Serialize> serde::Serialize for Program<O, H> {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.commands.serialize(to)
    }
}

#[cfg(feature = "serde")]
impl<'de, O, H> serde::Deserialize<'de> for Program<O, H>
where
    O: serde::Deserialize<'de>,
    H: serde::Deserialize<'de>,
{
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut program = Self::default();
        for (at, command) in Vec::deserialize(from)?.into_iter().enumerate() {
            let wrong = |why| serde::de::Error::custom(format_args!("command {at}: {why}"));
            program.push(command).map_err(wrong)?;
        }
        Ok(program)
    }
}

impl<O, H> Program<O, H> {
    /// All commands, in order.
    #[must_use]
    pub fn commands(&self) -> &[Command<O, H>] {
        &self.commands
    }

    /// Mutable access to the commands, to change costs. The caller must not change the tensors that
    /// commands name.
    pub(super) fn commands_mut(&mut self) -> &mut [Command<O, H>] {
        self.cost.take();
        &mut self.commands
    }

    /// Number of tensors made.
    #[must_use]
    pub fn tensors(&self) -> usize {
        self.alive.len()
    }

    /// Number of the next tensor.
    #[must_use]
    pub fn next(&self) -> TensorId {
        TensorId(self.alive.len() as u64)
    }

    /// Tensors that are live at the end of the program, in the order of their creation.
    pub fn alive(&self) -> impl Iterator<Item = TensorId> {
        (0..).map(TensorId).zip(&self.alive).filter(|(_, alive)| **alive).map(|(tensor, _)| tensor)
    }

    /// Adds a command.
    ///
    /// # Errors
    /// A [`ProgramError`] if the command names a tensor that is not live, or if its outputs do not
    /// have the next numbers. After an error, the program is unchanged.
    pub fn push(&mut self, command: Command<O, H>) -> Result<(), ProgramError> {
        self.check(&command)?;
        let mut made = 0;
        command.makes(|_| made += 1);
        self.alive.resize(self.alive.len() + made, true);
        command.ends(|tensor| self.alive[tensor.index()] = false);
        self.commands.push(command);
        self.cost.take();
        Ok(())
    }

    /// Adds a put of a host value. Returns the number of the new tensor.
    ///
    /// # Errors
    /// [`ProgramError::TooLong`] if there are too many tensors.
    pub fn put(&mut self, host: impl Into<Arc<H>>) -> Result<TensorId, ProgramError> {
        let tensor = self.next();
        self.push(Command::Put { tensor, host: host.into(), leaf: false })?;
        Ok(tensor)
    }

    /// Adds an op with the given inputs and outputs. All inputs keep their values. Returns the
    /// number of the first output; further outputs have the next numbers.
    ///
    /// # Errors
    /// Errors of [`Program::push`].
    pub fn apply(
        &mut self,
        op: impl Into<O>,
        inputs: &[TensorId],
        outputs: Outputs,
    ) -> Result<TensorId, ProgramError> {
        let made = self.next();
        self.push(Command::Apply(Apply::new(op.into(), inputs, outputs, made)))?;
        Ok(made)
    }

    /// Adds an op that updates and consumes its first inputs. Returns the number of the first
    /// output, which is the new value of the first input. Further outputs have the next numbers.
    ///
    /// # Errors
    /// Errors of [`Program::push`].
    pub fn update(
        &mut self,
        op: impl Into<O>,
        inputs: &[TensorId],
        outputs: Outputs,
    ) -> Result<TensorId, ProgramError> {
        let (made, consumed) = (self.next(), (0..outputs.targets()).collect());
        let call = Apply::new(op.into(), inputs, outputs, made);
        self.push(Command::Apply(Apply { consumed, ..call }))?;
        Ok(made)
    }

    fn check(&self, command: &Command<O, H>) -> Result<(), ProgramError> {
        let mut gone = false;
        command.mentions(|tensor| gone |= self.alive.get(tensor.index()) != Some(&true));
        if gone {
            return Err(ProgramError::Gone);
        }
        let mut ended: SmallVec<[TensorId; 4]> = SmallVec::new();
        command.ends(|tensor| ended.push(tensor));
        ended.sort_unstable();
        if ended.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(ProgramError::UpdatedTwice);
        }
        let mut given_away: SmallVec<[TensorId; 4]> = SmallVec::new();
        for call in command.calls() {
            check_outputs_of(call)?;
            if call.inputs.iter().any(|input| given_away.contains(input)) {
                return Err(ProgramError::Gone);
            }
            given_away.extend(call.ended());
        }
        let mut next = self.next();
        let mut wrong = None;
        command.makes(|tensor| {
            if tensor != next && wrong.is_none() {
                wrong = Some((tensor, next));
            }
            next = next.plus(1);
        });
        match wrong {
            Some((found, next)) => Err(ProgramError::Numbering { found, next }),
            None if next.index() > u32::MAX as usize => Err(ProgramError::TooLong),
            None => Ok(()),
        }
    }
}

fn check_outputs_of<O>(call: &Apply<O>) -> Result<(), ProgramError> {
    let count = call.inputs.len();
    let targets = call.outputs.targets();
    if targets > count {
        return Err(ProgramError::Input { input: count, count });
    }
    if let Some(look) = call.outputs.views().iter().find(|look| look.input >= count) {
        return Err(ProgramError::Input { input: look.input, count });
    }
    let fresh = call.outputs.written().map_or(&[][..], |(_, fresh)| fresh);
    let views = call.outputs.views().iter().map(|look| &look.layout);
    fresh.iter().chain(views).try_for_each(|layout| ProgramError::check_size(layout.bytes()))
}
