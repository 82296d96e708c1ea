//! Finding the last step of a program, and what a step leaves to the next.

use super::{Instruction, Made, Program, RepeatError, TensorId};
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::Range;

/// Instructions that may be done again, and how.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::lab) struct Turn {
    pub(super) instructions: Range<usize>,
    /// Each `end` is there at the end of the turn, and there only once.
    pub(super) carried: Vec<Carried>,
    /// What is left from before the turn, is deleted in it, and is used for nothing. Later turns find no
    /// such thing.
    pub(super) leftovers: Vec<TensorId>,
}

/// A tensor that a turn takes over from the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::lab) struct Carried {
    /// What it is when a turn begins: made before, or a constant of the turn, which later turns do not
    /// make again.
    pub start: TensorId,
    /// What it is when the turn is over.
    pub end: TensorId,
    /// Whether it becomes a leaf then.
    pub commit: bool,
}

impl Turn {
    pub const fn new(instructions: Range<usize>, carried: Vec<Carried>) -> Self {
        Self { instructions, carried, leftovers: vec![] }
    }
}

impl Program {
    /// The turn up to the last end of a step, from the one before it.
    pub(in crate::lab) fn last_turn(&self) -> Result<Turn, RepeatError> {
        let is_end = |&end: &usize| matches!(self.instructions[end - 1], Instruction::Step);
        let mut ends = (1..=self.instructions.len()).rev().filter(is_end);
        let end = ends.next().ok_or(RepeatError::NoStep)?;
        let begin = ends.next().unwrap_or(0);
        Bequest::new(self, begin..end).turn()
    }

    /// Of each tensor: whether it is there after so many instructions.
    pub(super) fn alive_after(&self, count: usize) -> Vec<bool> {
        let mut alive = vec![false; self.tensors()];
        for &instruction in &self.instructions[..count] {
            match instruction {
                Instruction::Put { tensor, .. } | Instruction::Constant { tensor, .. } => {
                    alive[tensor as usize] = true;
                }
                Instruction::Del(tensor) => alive[tensor as usize] = false,
                Instruction::Apply(index) => {
                    let op = self.op(index);
                    for output in op.made {
                        if let Made::InPlace { input, consumed: true } = *output {
                            alive[op.inputs[input as usize] as usize] = false;
                        }
                    }
                    alive[op.outputs().start as usize..op.outputs().end as usize].fill(true);
                }
                _ => {}
            }
        }
        alive
    }
}

/// What a turn leaves to the next: worked out from what it took over from the one before.
struct Bequest<'a> {
    program: &'a Program,
    instructions: Range<usize>,
    alive_before: Vec<bool>,
    alive_after: Vec<bool>,
    /// Tensor -> the instruction that makes it.
    makers: Vec<u32>,
    /// Number of tensors made before the turn, and up to its end.
    made_before: TensorId,
    made_after: TensorId,
    /// Tensor -> its last value updated in place.
    updated: FxHashMap<TensorId, TensorId>,
    /// What the turn does more with than delete it.
    used: FxHashSet<TensorId>,
    /// Tensor from before -> the one that was made in the turn as it was made.
    counterparts: FxHashMap<TensorId, TensorId>,
}

/// How a tensor is made, as far as two may stand for one another.
#[derive(PartialEq, Eq, Hash)]
enum Kind<'a> {
    Put { bytes: u64 },
    Constant { bytes: u64 },
    Output { op: &'a str, made: &'a [Made], output: u32 },
}

impl<'a> Bequest<'a> {
    fn new(program: &'a Program, instructions: Range<usize>) -> Self {
        let mut makers = vec![];
        let (mut made_before, mut made_after) = (0, 0);
        for (position, &instruction) in program.instructions.iter().enumerate() {
            let made = match instruction {
                Instruction::Put { .. } | Instruction::Constant { .. } => 1,
                Instruction::Apply(index) => program.op(index).made.len(),
                _ => 0,
            };
            makers.resize(makers.len() + made, position as u32);
            if position + 1 == instructions.start {
                made_before = makers.len() as TensorId;
            }
            if position + 1 == instructions.end {
                made_after = makers.len() as TensorId;
            }
        }
        let mut bequest = Self {
            alive_before: program.alive_after(instructions.start),
            alive_after: program.alive_after(instructions.end),
            program,
            makers,
            made_before,
            made_after,
            updated: FxHashMap::default(),
            used: FxHashSet::default(),
            counterparts: FxHashMap::default(),
            instructions,
        };
        bequest.look_through();
        bequest.counterparts = bequest.counterparts();
        bequest
    }

    fn look_through(&mut self) {
        let program = self.program;
        for &instruction in &program.instructions[self.instructions.clone()] {
            match instruction {
                Instruction::Get(tensor)
                | Instruction::Drop(tensor)
                | Instruction::Commit(tensor) => {
                    self.used.insert(tensor);
                }
                Instruction::Apply(index) => {
                    let op = program.op(index);
                    self.used.extend(op.inputs);
                    for (output, made) in op.outputs().zip(op.made) {
                        if let Made::InPlace { input, .. } = *made {
                            self.updated.insert(op.inputs[input as usize], output);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn turn(&self) -> Result<Turn, RepeatError> {
        let mut turn = Turn::new(self.instructions.clone(), vec![]);
        let mut taken = FxHashSet::default();
        let before = (0..self.made_before).filter(|&t| self.alive_before[t as usize]);
        for start in before {
            let end = self.end_of(start).filter(|&end| taken.insert(end));
            match end {
                // It stays by itself.
                Some(end) if end == start => {}
                Some(end) => turn.carried.push(Carried { start, end, commit: false }),
                None if self.used.contains(&start) => return Err(self.used_up(start)),
                None => turn.leftovers.push(start),
            }
        }
        Ok(turn)
    }

    /// What a tensor from before is at the end: itself, its updated value, or what was made in this turn
    /// as it was in the last (new statistics of a batch norm, a loss that is deleted one turn later).
    fn end_of(&self, start: TensorId) -> Option<TensorId> {
        let is_there = |tensor: &TensorId| self.alive_after[*tensor as usize];
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

    /// Pairs what was made last before the turn with what was made last in it: among tensors of one
    /// kind, the last with the last, and so on back. So a first step, which makes more, fits the second.
    fn counterparts(&self) -> FxHashMap<TensorId, TensorId> {
        let mut of_turn: FxHashMap<Kind<'_>, Vec<TensorId>> = FxHashMap::default();
        for tensor in self.made_before..self.made_after {
            of_turn.entry(self.kind(tensor)).or_default().push(tensor);
        }
        let mut pairs = FxHashMap::default();
        for before in (0..self.made_before).rev() {
            if let Some(counterpart) = of_turn.get_mut(&self.kind(before)).and_then(Vec::pop) {
                pairs.insert(before, counterpart);
            }
        }
        pairs
    }

    fn kind(&self, tensor: TensorId) -> Kind<'a> {
        match self.program.instructions[self.makers[tensor as usize] as usize] {
            Instruction::Apply(index) => {
                let op = self.program.op(index);
                Kind::Output { op: op.name, made: op.made, output: tensor - op.first }
            }
            Instruction::Put { bytes, .. } => Kind::Put { bytes },
            Instruction::Constant { bytes, .. } => Kind::Constant { bytes },
            other => unreachable!("{other:?} makes nothing"),
        }
    }

    fn used_up(&self, tensor: TensorId) -> RepeatError {
        let op = match self.kind(tensor) {
            Kind::Output { op, .. } => op.to_string(),
            Kind::Put { .. } => "put".to_owned(),
            Kind::Constant { .. } => "constant".to_owned(),
        };
        RepeatError::UsedUp { tensor: tensor.into(), op }
    }
}
