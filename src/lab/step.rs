//! Search for the last step of a program, and for the tensors that the next step takes over from
//! it.

mod repeat;

pub use repeat::RepeatError;
pub(super) use repeat::{Repeated, repeat};

use crate::command::{Apply, Command, RecordedOp, RecordedProgram, TensorId};
use crate::layout::Layout;
use crate::op::Outputs;
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::Range;

/// Range of commands that can be repeated, and the tensors that each repetition takes over from the
/// repetition before.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Step {
    commands: Range<usize>,
    /// Tensors that the next step takes over. Every `end` is alive at the end of the step, and all
    /// `end`s are different.
    carried: Vec<Carried>,
    /// Tensors that were made before the step, and that the step deletes without using. Later steps
    /// have no leftovers.
    leftovers: Vec<TensorId>,
}

/// A tensor that a step takes over from the step before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Carried {
    /// The tensor at the beginning of the step: a tensor made before the step, or a constant of the
    /// step that later steps do not make again.
    pub start: TensorId,
    /// The tensor that stands for `start` at the end of the step.
    pub end: TensorId,
    /// Whether the tensor becomes a leaf at the end of the step.
    pub commit: bool,
}

impl Step {
    pub const fn new(commands: Range<usize>, carried: Vec<Carried>) -> Self {
        Self { commands, carried, leftovers: vec![] }
    }
}

/// The commands up to the last step mark, from the step mark before it or from the start of the
/// program.
pub(super) fn last_step(program: &RecordedProgram) -> Result<Step, RepeatError> {
    let is_end = |&end: &usize| matches!(program.commands()[end - 1], Command::Step);
    let mut ends = (1..=program.commands().len()).rev().filter(is_end);
    let end = ends.next().ok_or(RepeatError::NoStep)?;
    let begin = ends.next().unwrap_or(0);
    Bequest::new(program, begin..end).step()
}

/// Whether each tensor is alive after `count` commands, by tensor.
pub(super) fn alive_after(program: &RecordedProgram, count: usize) -> Vec<bool> {
    let mut alive = vec![false; program.tensors()];
    for command in &program.commands()[..count] {
        command.makes(|tensor| alive[tensor.index()] = true);
        command.ends(|tensor| alive[tensor.index()] = false);
    }
    alive
}

/// Search for the tensors that the next step takes over: for each tensor that the step took over,
/// its replacement at the end of the step.
struct Bequest<'a> {
    program: &'a RecordedProgram,
    commands: Range<usize>,
    alive_before: Vec<bool>,
    alive_after: Vec<bool>,
    /// Tensor -> position of the command that makes it.
    makers: Vec<u32>,
    /// Number of tensors made before the step.
    made_before: usize,
    /// Number of tensors made up to the end of the step.
    made_after: usize,
    /// Tensor -> the tensor with its new value after an update in place or a replacement.
    updated: FxHashMap<TensorId, TensorId>,
    /// Tensors that the step uses, other than by deleting them.
    used: FxHashSet<TensorId>,
    /// Tensor made before the step -> the tensor that the step makes in the same way.
    counterparts: FxHashMap<TensorId, TensorId>,
}

/// Properties of the command that makes a tensor. A tensor may replace another tensor with equal
/// properties.
#[derive(PartialEq, Eq, Hash)]
enum Maker<'a> {
    Put { bytes: u64, is_constant: bool },
    Output { op: &'a str, outputs: Shape, output: u64 },
    Replacement,
}

/// Kind and size of an output. A view or an update also has the position of its input.
#[derive(PartialEq, Eq, Hash)]
enum Shape {
    Fresh(Vec<u64>),
    Views(Vec<(usize, u64)>),
    Updates(usize, Vec<u64>),
    Over,
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
            Outputs::Over => Self::Over,
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
                // The tensor does not change.
                Some(end) if end == start => {}
                Some(end) => step.carried.push(Carried { start, end, commit: false }),
                None if self.used.contains(&start) => return Err(self.used_up(start)),
                None => step.leftovers.push(start),
            }
        }
        Ok(step)
    }

    /// Tensor at the end of the step that stands for `start`: `start` itself, its updated value, or
    /// its counterpart. A counterpart is a tensor that this step makes in the same way in which the
    /// step before made `start`. Examples are the new statistics of a batch norm, and a loss that
    /// the program deletes one step later.
    fn end_of(&self, start: TensorId) -> Option<TensorId> {
        let is_there = |tensor: &TensorId| self.alive_after[tensor.index()];
        let mut tensor = Some(start);
        while let Some(now) = tensor {
            if is_there(&now) {
                return Some(now);
            }
            // The loop ends, because an output has a higher number than any input.
            tensor = self.updated.get(&now).copied();
        }
        self.counterparts.get(&start).copied().filter(is_there)
    }

    /// Pairs tensors made before the step with tensors made in the step. Among tensors with equal
    /// properties, the last tensor before the step is paired with the last tensor in the step, then
    /// the second last tensors, and so on. Pairing from the last tensors on is right even if the
    /// first step makes more tensors than the second step.
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

/// Tensors with the numbers in `range`.
fn numbers(range: Range<usize>) -> impl DoubleEndedIterator<Item = TensorId> {
    range.map(|number| TensorId(number as u64))
}
