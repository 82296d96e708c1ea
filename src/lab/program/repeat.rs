//! Repeating the last step of a program.

use super::{Carried, Instruction, OpInfo, Program, ProgramError, TensorId, Turn};
use rustc_hash::FxHashSet;
use smallvec::SmallVec;
use std::ops::Range;

/// Why a step cannot be repeated.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RepeatError {
    /// Not at all, is not a repetition.
    #[error("a step can be done once or more, not 0 times")]
    Never,
    /// Nothing says what a step is.
    #[error("the trace has no end of a step in it, so there is no step to repeat")]
    NoStep,
    /// A second turn would not find what the first one found.
    #[error(
        "the last step cannot be repeated: it uses and deletes tensor {tensor} (made by `{op}` before \
         the step), and makes nothing that could take its place"
    )]
    UsedUp {
        /// Its number in the trace.
        tensor: u64,
        /// What made it.
        op: String,
    },
    /// A result that would fill the memory.
    #[error("that would be more than {MAX_INSTRUCTIONS} instructions")]
    TooLong,
    /// Costs or numbers that cannot be counted any more.
    #[error(transparent)]
    Program(#[from] ProgramError),
}

/// A slip of the finger ends in an error, not in a full memory.
const MAX_INSTRUCTIONS: usize = 100_000_000;

impl Program {
    /// The program with a turn done `times` times, and the last of these.
    ///
    /// Between two turns, what is carried over becomes a leaf where that is asked for, and what the turn
    /// made besides is deleted.
    pub(in crate::lab) fn repeat(
        &self,
        turn: &Turn,
        times: usize,
    ) -> Result<(Self, Turn), RepeatError> {
        let Range { start, end } = turn.instructions.clone();
        let more = match times {
            0 => return Err(RepeatError::Never),
            1 => return Ok((self.clone(), turn.clone())),
            _ => times - 1,
        };
        let added = (end - start).saturating_mul(more);
        if added.saturating_add(self.instructions.len()) > MAX_INSTRUCTIONS {
            return Err(RepeatError::TooLong);
        }
        let mut copy = Copier {
            old: self,
            new: Self::new(self.unit().clone()),
            now: vec![GONE; self.tensors()],
            inherited: FxHashSet::default(),
        };
        let unneeded = self.unneeded(turn);
        copy.instructions(0..end)?;
        let mut last = Turn::new(start..end, vec![]);
        for _ in 0..more {
            let starts = copy.hand_over(turn, &unneeded)?;
            last.instructions.start = copy.new.instructions.len();
            copy.instructions(start..end)?;
            last.instructions.end = copy.new.instructions.len();
            last.carried = copy.carried(turn, &starts);
        }
        copy.instructions(end..self.instructions.len())?;
        Ok((copy.new, last))
    }

    /// What is there at the end of a turn, and of no use to the next.
    fn unneeded(&self, turn: &Turn) -> Vec<TensorId> {
        let before = self.alive_after(turn.instructions.start);
        let after = self.alive_after(turn.instructions.end);
        let starts: FxHashSet<TensorId> = turn.carried.iter().map(|c| c.start).collect();
        let ends: FxHashSet<TensorId> = turn.carried.iter().map(|c| c.end).collect();
        // What was there before and is no start of anything stays for all turns.
        let stays = |tensor: TensorId| before[tensor as usize] && !starts.contains(&tensor);
        (0..self.tensors() as TensorId)
            .filter(|&t| after[t as usize] && !ends.contains(&t) && !stays(t))
            .collect()
    }
}

/// No tensor.
const GONE: TensorId = TensorId::MAX;

/// A program that is made from another.
struct Copier<'a> {
    old: &'a Program,
    new: Program,
    /// Tensor of the old program -> what stands for it in the new one.
    now: Vec<TensorId>,
    /// What a turn has from the one before, and does not make itself.
    inherited: FxHashSet<TensorId>,
}

impl Copier<'_> {
    fn instructions(&mut self, range: Range<usize>) -> Result<(), ProgramError> {
        let old = self.old;
        old.instructions[range].iter().try_for_each(|&instruction| self.instruction(instruction))
    }

    fn instruction(&mut self, instruction: Instruction) -> Result<(), ProgramError> {
        let now = |tensor: TensorId| self.now[tensor as usize];
        match instruction {
            Instruction::Put { tensor, bytes, cost } => {
                self.now[tensor as usize] = self.new.put(bytes, cost)?;
            }
            Instruction::Constant { tensor, bytes } => {
                if !self.inherited.contains(&tensor) {
                    self.now[tensor as usize] = self.new.constant(bytes)?;
                }
            }
            Instruction::Apply(index) => self.apply(index)?,
            Instruction::Elapse(cost) => self.new.elapse(cost)?,
            Instruction::Get(tensor) => self.new.get(now(tensor))?,
            // A leftover that only the first turn finds.
            Instruction::Del(tensor) if now(tensor) == GONE => {}
            Instruction::Del(tensor) => self.new.del(now(tensor))?,
            Instruction::Drop(tensor) => self.new.drop(now(tensor))?,
            Instruction::Commit(tensor) => self.new.commit(now(tensor))?,
            Instruction::Step => self.new.step(),
        }
        Ok(())
    }

    fn apply(&mut self, index: u32) -> Result<(), ProgramError> {
        let op = self.old.op(index);
        let inputs: SmallVec<[TensorId; 8]> =
            op.inputs.iter().map(|&input| self.now[input as usize]).collect();
        let info = OpInfo {
            name: op.name,
            cost: op.cost,
            flops: op.flops,
            workspace: op.workspace,
            rematerializable: op.rematerializable,
        };
        for (old, new) in op.outputs().zip(self.new.apply(info, &inputs, op.made)?) {
            self.now[old as usize] = new;
        }
        Ok(())
    }

    /// The end of one turn becomes the start of the next. Returns what is carried over.
    fn hand_over(
        &mut self,
        turn: &Turn,
        unneeded: &[TensorId],
    ) -> Result<Vec<TensorId>, ProgramError> {
        let mut starts = Vec::with_capacity(turn.carried.len());
        for carried in &turn.carried {
            let tensor = self.now[carried.end as usize];
            if carried.commit {
                self.new.commit(tensor)?;
            }
            starts.push(tensor);
        }
        for &tensor in unneeded {
            self.new.del(self.now[tensor as usize])?;
        }
        for &tensor in &turn.leftovers {
            self.now[tensor as usize] = GONE;
        }
        // All at once, for one may be carried to where another was.
        for (carried, &tensor) in turn.carried.iter().zip(&starts) {
            self.now[carried.start as usize] = tensor;
            self.inherited.insert(carried.start);
        }
        Ok(starts)
    }

    /// What the turn at hand carries over, in the numbers of the new program.
    fn carried(&self, turn: &Turn, starts: &[TensorId]) -> Vec<Carried> {
        starts
            .iter()
            .zip(&turn.carried)
            .map(|(&start, carried)| Carried {
                start,
                end: self.now[carried.end as usize],
                commit: carried.commit,
            })
            .collect()
    }
}
