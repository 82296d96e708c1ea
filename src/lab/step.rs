//! Finding the last step of a program, and what it leaves to the next.

mod repeat;

pub use repeat::RepeatError;
pub(super) use repeat::{Repeated, repeat};

use crate::command::{Apply, Command, RecordedOp, RecordedProgram, TensorId};
use crate::layout::Layout;
use crate::op::Outputs;
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::Range;

/// Commands that may be done again, and how.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Step {
    commands: Range<usize>,
    /// Each `end` is there at the end of the step, and there only once.
    carried: Vec<Carried>,
    /// What is left from before the step, is deleted in it, and is used for nothing. Later steps find no
    /// such thing.
    leftovers: Vec<TensorId>,
}

/// A tensor that a step takes over from the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Carried {
    /// What it is when a step begins: made before, or a constant of the step, which later steps do not
    /// make again.
    pub start: TensorId,
    /// What it is when the step is over.
    pub end: TensorId,
    /// Whether it becomes a leaf then.
    pub commit: bool,
}

impl Step {
    pub const fn new(commands: Range<usize>, carried: Vec<Carried>) -> Self {
        Self { commands, carried, leftovers: vec![] }
    }
}

/// The step up to the last end of a step, from the one before it.
pub(super) fn last_step(program: &RecordedProgram) -> Result<Step, RepeatError> {
    let is_end = |&end: &usize| matches!(program.commands()[end - 1], Command::Step);
    let mut ends = (1..=program.commands().len()).rev().filter(is_end);
    let end = ends.next().ok_or(RepeatError::NoStep)?;
    let begin = ends.next().unwrap_or(0);
    Bequest::new(program, begin..end).step()
}

/// Of each tensor: whether it is there after so many commands.
pub(super) fn alive_after(program: &RecordedProgram, count: usize) -> Vec<bool> {
    let mut alive = vec![false; program.tensors()];
    for command in &program.commands()[..count] {
        command.makes(|tensor| alive[tensor.index()] = true);
        command.ends(|tensor| alive[tensor.index()] = false);
    }
    alive
}

/// What a step leaves to the next: worked out from what it took over from the one before.
struct Bequest<'a> {
    program: &'a RecordedProgram,
    commands: Range<usize>,
    alive_before: Vec<bool>,
    alive_after: Vec<bool>,
    /// Tensor -> the position of the command that makes it.
    makers: Vec<u32>,
    /// Number of tensors made before the step, and up to its end.
    made_before: usize,
    made_after: usize,
    /// Tensor -> its value after an update in place or a replacement.
    updated: FxHashMap<TensorId, TensorId>,
    /// What the step does more with than delete it.
    used: FxHashSet<TensorId>,
    /// Tensor from before -> the one that was made in the step as it was made.
    counterparts: FxHashMap<TensorId, TensorId>,
}

/// How a tensor is made, as far as two may stand for one another.
#[derive(PartialEq, Eq, Hash)]
enum Maker<'a> {
    Put { bytes: u64, is_constant: bool },
    Output { op: &'a str, outputs: Shape, output: u64 },
    Replacement,
}

/// Outputs, as far as they count here.
#[derive(PartialEq, Eq, Hash)]
enum Shape {
    Fresh(Vec<u64>),
    Views(Vec<(usize, u64)>),
    Updates(usize, Vec<u64>),
}

impl Shape {
    fn of(outputs: &Outputs) -> Self {
        let bytes = |layouts: &[Layout]| layouts.iter().map(Layout::bytes).collect();
        match outputs {
            Outputs::Fresh(layouts) => Self::Fresh(bytes(layouts)),
            Outputs::Views(looks) => {
                Self::Views(looks.iter().map(|look| (look.input, look.layout.bytes())).collect())
            }
            Outputs::Updates { targets, fresh } => Self::Updates(*targets, bytes(fresh)),
        }
    }
}

impl<'a> Bequest<'a> {
    fn new(program: &'a RecordedProgram, commands: Range<usize>) -> Self {
        let mut makers = vec![];
        let (mut made_before, mut made_after) = (0, 0);
        for (position, command) in program.commands().iter().enumerate() {
            command.makes(|_| makers.push(position as u32));
            if position + 1 == commands.start {
                made_before = makers.len();
            }
            if position + 1 == commands.end {
                made_after = makers.len();
            }
        }
        let mut bequest = Self {
            alive_before: alive_after(program, commands.start),
            alive_after: alive_after(program, commands.end),
            program,
            makers,
            made_before,
            made_after,
            updated: FxHashMap::default(),
            used: FxHashSet::default(),
            counterparts: FxHashMap::default(),
            commands,
        };
        bequest.look_through();
        bequest.counterparts = bequest.counterparts();
        bequest
    }

    fn look_through(&mut self) {
        let program = self.program;
        for command in &program.commands()[self.commands.clone()] {
            command.reads(|tensor| _ = self.used.insert(tensor));
            match *command {
                Command::Drop(tensor) => _ = self.used.insert(tensor),
                Command::Replace { target, made, .. } => {
                    self.used.insert(target);
                    self.updated.insert(target, made);
                }
                _ => {}
            }
            for call in command.calls() {
                let targets = call.inputs.iter().copied().take(call.outputs.targets());
                self.updated.extend(targets.zip(call.outputs()));
            }
        }
    }

    fn step(&self) -> Result<Step, RepeatError> {
        let mut step = Step::new(self.commands.clone(), vec![]);
        let mut taken = FxHashSet::default();
        let before = numbers(0..self.made_before).filter(|t| self.alive_before[t.index()]);
        for start in before {
            let end = self.end_of(start).filter(|&end| taken.insert(end));
            match end {
                // It stays by itself.
                Some(end) if end == start => {}
                Some(end) => step.carried.push(Carried { start, end, commit: false }),
                None if self.used.contains(&start) => return Err(self.used_up(start)),
                None => step.leftovers.push(start),
            }
        }
        Ok(step)
    }

    /// What a tensor from before is at the end: itself, its updated value, or what was made in this step
    /// as it was in the last (new statistics of a batch norm, a loss that is deleted one step later).
    fn end_of(&self, start: TensorId) -> Option<TensorId> {
        let is_there = |tensor: &TensorId| self.alive_after[tensor.index()];
        let mut tensor = Some(start);
        while let Some(now) = tensor {
            if is_there(&now) {
                return Some(now);
            }
            // Ends, for an output has a higher number than any input.
            tensor = self.updated.get(&now).copied();
        }
        self.counterparts.get(&start).copied().filter(is_there)
    }

    /// Pairs what was made last before the step with what was made last in it: among tensors of one
    /// kind, the last with the last, and so on back. So a first step, which makes more, fits the second.
    fn counterparts(&self) -> FxHashMap<TensorId, TensorId> {
        let mut of_step: FxHashMap<Maker<'_>, Vec<TensorId>> = FxHashMap::default();
        for tensor in numbers(self.made_before..self.made_after) {
            of_step.entry(self.kind(tensor)).or_default().push(tensor);
        }
        let mut pairs = FxHashMap::default();
        for before in numbers(0..self.made_before).rev() {
            if let Some(counterpart) = of_step.get_mut(&self.kind(before)).and_then(Vec::pop) {
                pairs.insert(before, counterpart);
            }
        }
        pairs
    }

    fn kind(&self, tensor: TensorId) -> Maker<'a> {
        let command = &self.program.commands()[self.makers[tensor.index()] as usize];
        if let Command::Put { host, .. } = command {
            return Maker::Put { bytes: host.layout.bytes(), is_constant: host.cost.is_none() };
        }
        let made = |call: &&Apply<RecordedOp>| call.outputs().any(|output| output == tensor);
        match command.calls().iter().find(made) {
            Some(call) => Maker::Output {
                op: &call.op.name,
                outputs: Shape::of(&call.outputs),
                output: tensor.0 - call.made.0,
            },
            None => Maker::Replacement,
        }
    }

    fn used_up(&self, tensor: TensorId) -> RepeatError {
        let op = match self.kind(tensor) {
            Maker::Output { op, .. } => op,
            Maker::Put { is_constant: false, .. } => "put",
            Maker::Put { .. } => "constant",
            Maker::Replacement => "replace",
        };
        RepeatError::UsedUp { tensor: tensor.0, op: op.to_owned() }
    }
}

/// Numbers of tensors.
fn numbers(range: Range<usize>) -> impl DoubleEndedIterator<Item = TensorId> {
    range.map(|number| TensorId(number as u64))
}
