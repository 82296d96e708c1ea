//! A recorded step as a list of instructions, whatever format it was recorded in.

mod repeat;
mod turn;

pub use repeat::RepeatError;
pub(super) use turn::{Carried, Turn};

use super::CostUnit;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;

/// A tensor of a program. Dense: a program of `n` tensors uses `0..n`, each made by one instruction.
pub type TensorId = u32;

/// One command of a recorded step. What a tensor's number means ends with its `Del`, or with the in-place
/// update that consumes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Instruction {
    /// A value from the host, which another upload regenerates.
    Put {
        /// What it makes.
        tensor: TensorId,
        /// Its size.
        bytes: u64,
        /// What the upload costs.
        cost: f64,
    },
    /// A value from before the step, which cannot be regenerated.
    Constant {
        /// What it makes.
        tensor: TensorId,
        /// Its size.
        bytes: u64,
    },
    /// An op: its position in [`Program::op`].
    Apply(u32),
    /// Work that made nothing, or nothing new.
    Elapse(f64),
    /// The host read it.
    Get(TensorId),
    /// The last handle went.
    Del(TensorId),
    /// The user evicted it.
    Drop(TensorId),
    /// It became a leaf.
    Commit(TensorId),
    /// The end of a turn of the training loop.
    Step,
}

/// What one output of an op is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Made {
    /// A storage of its own.
    Fresh {
        /// Its size.
        bytes: u64,
    },
    /// A look at the storage of an input.
    View {
        /// Position among the inputs.
        input: u32,
        /// Bytes it shows, which may be more than the storage has where a view repeats elements.
        bytes: u64,
    },
    /// The updated value of an input.
    InPlace {
        /// Position among the inputs.
        input: u32,
        /// Whether that input's number ends with this.
        consumed: bool,
    },
}

/// An op of a program.
#[derive(Clone, Copy, Debug)]
pub struct ProgramOp<'a> {
    /// Its name.
    pub name: &'a Arc<str>,
    /// What it reads, repeats included.
    pub inputs: &'a [TensorId],
    /// What it makes: either all are views or none is.
    pub made: &'a [Made],
    /// The number of the first output; the others follow.
    pub first: TensorId,
    /// What it costs, of views too, in the unit of the trace.
    pub cost: f64,
    /// Floating-point operations, if the trace records them.
    pub flops: Option<f64>,
    /// Scratch bytes.
    pub workspace: u64,
    /// Whether it may run again.
    pub rematerializable: bool,
}

impl ProgramOp<'_> {
    /// The numbers of its outputs.
    #[must_use]
    pub const fn outputs(&self) -> Range<TensorId> {
        self.first..self.first + self.made.len() as TensorId
    }

    /// Whether it only looks at what is there.
    #[must_use]
    pub fn is_view(&self) -> bool {
        matches!(self.made.first(), Some(Made::View { .. }))
    }
}

/// What an op is, apart from its inputs and outputs.
#[derive(Clone, Copy, Debug)]
pub struct OpInfo<'a> {
    /// Its name.
    pub name: &'a str,
    /// See [`ProgramOp::cost`].
    pub cost: f64,
    /// See [`ProgramOp::flops`].
    pub flops: Option<f64>,
    /// See [`ProgramOp::workspace`].
    pub workspace: u64,
    /// See [`ProgramOp::rematerializable`].
    pub rematerializable: bool,
}

/// A recorded step, valid by construction: every tensor that is read exists, and sizes and costs can be added up.
#[derive(Clone, Debug, Default)]
pub struct Program {
    instructions: Vec<Instruction>,
    ops: Vec<OpRecord>,
    /// Inputs of all ops, one op after the other.
    inputs: Vec<TensorId>,
    /// Outputs of all ops, one op after the other.
    made: Vec<Made>,
    /// Each name once.
    names: Vec<Arc<str>>,
    name_index: FxHashMap<Arc<str>, u32>,
    /// Of each tensor so far: whether it may still be used.
    alive: Vec<bool>,
    base_cost: f64,
    unit: CostUnit,
}

#[derive(Clone, Debug)]
struct OpRecord {
    name: u32,
    inputs: Range<u32>,
    made: Range<u32>,
    first: TensorId,
    cost: f64,
    flops: Option<f64>,
    workspace: u64,
    rematerializable: bool,
}

/// An instruction that is invalid at its place.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ProgramError {
    /// A tensor that was deleted, consumed, or never made.
    #[error("the tensor is not there any more: it was deleted or consumed before")]
    Gone,
    /// A cost or flops that is negative, NaN or infinite.
    #[error("{what} is {value}; a finite number from 0 up was expected")]
    Number {
        /// What it is of.
        what: &'static str,
        /// What it is.
        value: f64,
    },
    /// A size of which two together would not fit into 64 bits.
    #[error("{0} bytes are more than any device has")]
    Size(u64),
    /// An output that refers to an input that is not there.
    #[error("an output refers to input {input}, of {count}")]
    Input {
        /// Position.
        input: u32,
        /// Number of inputs.
        count: usize,
    },
    /// An op with views and others.
    #[error("either all outputs are views or none is")]
    Mixed,
    /// One input updated by two outputs.
    #[error("one input is updated by two outputs")]
    UpdatedTwice,
    /// More tensors, inputs or ops than 32 bits count.
    #[error("the trace has more than {} tensors", u32::MAX)]
    TooLong,
}

/// No tensor is larger: so sums of a few never overflow.
const MAX_BYTES: u64 = 1 << 56;

impl Program {
    /// An empty program, whose costs are in `unit`.
    #[must_use]
    pub fn new(unit: CostUnit) -> Self {
        Self { unit, ..Self::default() }
    }

    /// What to do, in order.
    #[must_use]
    pub fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }

    /// The op of [`Instruction::Apply`].
    ///
    /// # Panics
    /// If there is no such op.
    #[must_use]
    pub fn op(&self, index: u32) -> ProgramOp<'_> {
        let op = &self.ops[index as usize];
        ProgramOp {
            name: &self.names[op.name as usize],
            inputs: &self.inputs[op.inputs.start as usize..op.inputs.end as usize],
            made: &self.made[op.made.start as usize..op.made.end as usize],
            first: op.first,
            cost: op.cost,
            flops: op.flops,
            workspace: op.workspace,
            rematerializable: op.rematerializable,
        }
    }

    /// Number of ops.
    #[must_use]
    pub fn ops(&self) -> usize {
        self.ops.len()
    }

    /// Number of tensors.
    #[must_use]
    pub fn tensors(&self) -> usize {
        self.alive.len()
    }

    /// The tensors that are still there at the end, in the order they were made.
    pub fn alive(&self) -> impl Iterator<Item = TensorId> {
        (0..).zip(&self.alive).filter(|(_, alive)| **alive).map(|(tensor, _)| tensor)
    }

    /// Cost of everything once: the run that nothing is evicted in.
    #[must_use]
    pub const fn base_cost(&self) -> f64 {
        self.base_cost
    }

    /// What the costs count.
    #[must_use]
    pub const fn unit(&self) -> &CostUnit {
        &self.unit
    }

    /// Whether there is a value that was there before the step began.
    pub(super) fn has_constants(&self) -> bool {
        self.instructions.iter().any(|i| matches!(i, Instruction::Constant { .. }))
    }

    /// Whether the flops of all ops are recorded.
    #[must_use]
    pub fn has_flops(&self) -> bool {
        self.ops.iter().all(|op| op.flops.is_some())
    }

    /// Adds an upload.
    ///
    /// # Errors
    /// If size or cost cannot be counted with.
    pub fn put(&mut self, bytes: u64, cost: f64) -> Result<TensorId, ProgramError> {
        self.add_cost(cost)?;
        let tensor = self.add_tensor(bytes)?;
        self.instructions.push(Instruction::Put { tensor, bytes, cost });
        Ok(tensor)
    }

    /// Adds a value that was there before.
    ///
    /// # Errors
    /// If the size cannot be counted with.
    pub fn constant(&mut self, bytes: u64) -> Result<TensorId, ProgramError> {
        let tensor = self.add_tensor(bytes)?;
        self.instructions.push(Instruction::Constant { tensor, bytes });
        Ok(tensor)
    }

    /// Adds an op. Returns the numbers of its outputs.
    ///
    /// # Errors
    /// If it cannot be run where it stands. The program is as before.
    pub fn apply(
        &mut self,
        info: OpInfo<'_>,
        inputs: &[TensorId],
        made: &[Made],
    ) -> Result<Range<TensorId>, ProgramError> {
        inputs.iter().try_for_each(|&tensor| self.check_alive(tensor))?;
        check_made(inputs.len(), made)?;
        let flops = info.flops.unwrap_or(0.0);
        check_number("the number of flops", flops)?;
        check_size(info.workspace)?;
        let first = self.next(made.len())?;
        let (inputs_at, made_at) = (self.inputs.len(), self.made.len());
        let too_long = |_| ProgramError::TooLong;
        let inputs_end = u32::try_from(inputs_at + inputs.len()).map_err(too_long)?;
        let made_end = u32::try_from(made_at + made.len()).map_err(too_long)?;
        self.add_cost(info.cost)?;
        for output in made {
            if let Made::InPlace { input, consumed: true } = *output {
                self.alive[inputs[input as usize] as usize] = false;
            }
        }
        self.alive.extend(made.iter().map(|_| true));
        self.inputs.extend(inputs);
        self.made.extend(made);
        let op = OpRecord {
            name: self.name(info.name),
            inputs: inputs_at as u32..inputs_end,
            made: made_at as u32..made_end,
            first,
            cost: info.cost,
            flops: info.flops,
            workspace: info.workspace,
            rematerializable: info.rematerializable,
        };
        self.instructions.push(Instruction::Apply(self.ops.len() as u32));
        self.ops.push(op);
        Ok(first..first + made.len() as TensorId)
    }

    /// Adds work that makes nothing.
    ///
    /// # Errors
    /// If the cost cannot be counted with.
    pub fn elapse(&mut self, cost: f64) -> Result<(), ProgramError> {
        self.add_cost(cost)?;
        self.instructions.push(Instruction::Elapse(cost));
        Ok(())
    }

    /// Adds a read by the host.
    ///
    /// # Errors
    /// If the tensor is gone.
    pub fn get(&mut self, tensor: TensorId) -> Result<(), ProgramError> {
        self.about(tensor, Instruction::Get)
    }

    /// Adds an eviction by the user.
    ///
    /// # Errors
    /// If the tensor is gone.
    pub fn drop(&mut self, tensor: TensorId) -> Result<(), ProgramError> {
        self.about(tensor, Instruction::Drop)
    }

    /// Adds that it becomes a leaf.
    ///
    /// # Errors
    /// If the tensor is gone.
    pub fn commit(&mut self, tensor: TensorId) -> Result<(), ProgramError> {
        self.about(tensor, Instruction::Commit)
    }

    /// Adds that its last handle goes.
    ///
    /// # Errors
    /// If the tensor is gone.
    pub fn del(&mut self, tensor: TensorId) -> Result<(), ProgramError> {
        self.about(tensor, Instruction::Del)?;
        self.alive[tensor as usize] = false;
        Ok(())
    }

    /// Adds the end of a turn of the training loop.
    pub fn step(&mut self) {
        self.instructions.push(Instruction::Step);
    }

    fn about(
        &mut self,
        tensor: TensorId,
        instruction: impl FnOnce(TensorId) -> Instruction,
    ) -> Result<(), ProgramError> {
        self.check_alive(tensor)?;
        self.instructions.push(instruction(tensor));
        Ok(())
    }

    fn check_alive(&self, tensor: TensorId) -> Result<(), ProgramError> {
        match self.alive.get(tensor as usize) {
            Some(true) => Ok(()),
            _ => Err(ProgramError::Gone),
        }
    }

    fn add_tensor(&mut self, bytes: u64) -> Result<TensorId, ProgramError> {
        check_size(bytes)?;
        let tensor = self.next(1)?;
        self.alive.push(true);
        Ok(tensor)
    }

    /// The number of the next tensor, if there is room for so many.
    fn next(&self, count: usize) -> Result<TensorId, ProgramError> {
        match u32::try_from(self.alive.len() + count) {
            Ok(end) => Ok(end - count as u32),
            Err(_) => Err(ProgramError::TooLong),
        }
    }

    fn add_cost(&mut self, cost: f64) -> Result<(), ProgramError> {
        check_number("the cost", cost)?;
        check_number("the sum of all costs", self.base_cost + cost)?;
        self.base_cost += cost;
        Ok(())
    }

    /// The position of a name in `names`.
    fn name(&mut self, name: &str) -> u32 {
        if let Some(&index) = self.name_index.get(name) {
            return index;
        }
        let index = self.names.len() as u32;
        let name: Arc<str> = name.into();
        self.names.push(Arc::clone(&name));
        self.name_index.insert(name, index);
        index
    }
}

fn check_made(inputs: usize, made: &[Made]) -> Result<(), ProgramError> {
    let mut updated = SmallVec::<[u32; 4]>::new();
    let mut views = 0;
    for output in made {
        match *output {
            Made::Fresh { bytes } => check_size(bytes)?,
            Made::View { input, bytes } => {
                check_size(bytes)?;
                check_input(input, inputs)?;
                views += 1;
            }
            Made::InPlace { input, .. } => {
                check_input(input, inputs)?;
                if updated.contains(&input) {
                    return Err(ProgramError::UpdatedTwice);
                }
                updated.push(input);
            }
        }
    }
    if views == 0 || views == made.len() { Ok(()) } else { Err(ProgramError::Mixed) }
}

fn check_input(input: u32, count: usize) -> Result<(), ProgramError> {
    if (input as usize) < count { Ok(()) } else { Err(ProgramError::Input { input, count }) }
}

fn check_size(bytes: u64) -> Result<(), ProgramError> {
    if bytes <= MAX_BYTES { Ok(()) } else { Err(ProgramError::Size(bytes)) }
}

pub(super) fn check_number(what: &'static str, value: f64) -> Result<(), ProgramError> {
    if value.is_finite() && value >= 0.0 {
        Ok(())
    } else {
        Err(ProgramError::Number { what, value })
    }
}
