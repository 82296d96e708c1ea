//! Repetition of the last step of a program.

use super::{Carried, Step, alive_after, numbers};
use crate::command::{Command, ProgramError, RecordedCommand, RecordedProgram, TensorId};
use crate::lab::writer::Writer;
use rustc_hash::FxHashSet;
use std::ops::Range;

/// Reason why a step cannot be repeated.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RepeatError {
    /// The requested number of repetitions is 0.
    #[error("a step cannot be repeated 0 times; give 1 or more")]
    Never,
    /// The program has no step mark.
    #[error("no step ends in the trace, so there is no step to repeat")]
    NoStep,
    /// The step uses and deletes a tensor that the next step would need.
    #[error(
        "the last step cannot be repeated: it uses and deletes tensor {tensor} (made by `{op}` before \
         the step), and makes no tensor that could replace it"
    )]
    UsedUp {
        /// Number of the tensor in the trace.
        tensor: u64,
        /// Name of the tensor's op.
        op: String,
    },
    /// The result would have too many commands to be held in memory.
    #[error("the result would have more than {MAX_COMMANDS} commands; repeat the step fewer times")]
    TooLong,
    /// The sum of the costs overflows, or there are too many tensors.
    #[error(transparent)]
    Program(#[from] ProgramError),
}

/// Limit on the commands of the result. A mistyped number of repetitions should give an error, not
/// fill the memory.
const MAX_COMMANDS: usize = 100_000_000;

/// A program with a repeated step.
#[derive(Debug)]
pub(in crate::lab) struct Repeated {
    pub program: RecordedProgram,
    /// Last repetition of the step.
    pub step: Step,
    /// Ranges of commands of the old program, each with the new position of its first command. The
    /// ranges are in the order of the new program, and a repeated range occurs several times.
    pub moves: Vec<(Range<usize>, usize)>,
}

/// The program with `times` repetitions of the step.
///
/// Between two repetitions, carried tensors with [`Carried::commit`] become leaves, and all other
/// tensors made by the step are deleted.
pub(in crate::lab) fn repeat(
    program: RecordedProgram,
    step: &Step,
    times: usize,
) -> Result<Repeated, RepeatError> {
    let Range { start, end } = step.commands.clone();
    let more = match times {
        0 => return Err(RepeatError::Never),
        1 => {
            let moves = vec![(0..program.commands().len(), 0)];
            return Ok(Repeated { program, step: step.clone(), moves });
        }
        _ => times - 1,
    };
    let added = (end - start).saturating_mul(more);
    if added.saturating_add(program.commands().len()) > MAX_COMMANDS {
        return Err(RepeatError::TooLong);
    }
    let mut copy = Copier {
        old: &program,
        new: Writer::default(),
        now: vec![GONE; program.tensors()],
        inherited: FxHashSet::default(),
    };
    let unneeded = unneeded(&program, step);
    copy.commands(0..end)?;
    let mut last = Step::new(start..end, vec![]);
    let mut moves = vec![(0..end, 0)];
    for _ in 0..more {
        let starts = copy.hand_over(step, &unneeded)?;
        last.commands.start = copy.new.program().commands().len();
        moves.push((start..end, last.commands.start));
        copy.commands(start..end)?;
        last.commands.end = copy.new.program().commands().len();
        last.carried = copy.carried(step, &starts);
    }
    moves.push((end..program.commands().len(), copy.new.program().commands().len()));
    copy.commands(end..program.commands().len())?;
    Ok(Repeated { program: copy.new.finish(), step: last, moves })
}

/// Tensors that are alive at the end of a step and that the next step does not use.
fn unneeded(program: &RecordedProgram, step: &Step) -> Vec<TensorId> {
    let before = alive_after(program, step.commands.start);
    let after = alive_after(program, step.commands.end);
    let starts: FxHashSet<TensorId> = step.carried.iter().map(|c| c.start).collect();
    let ends: FxHashSet<TensorId> = step.carried.iter().map(|c| c.end).collect();
    // A tensor that was made before the step and is not [`Carried::start`] of any carried tensor
    // stays for all steps.
    let stays = |tensor: TensorId| before[tensor.index()] && !starts.contains(&tensor);
    numbers(0..program.tensors())
        .filter(|&t| after[t.index()] && !ends.contains(&t) && !stays(t))
        .collect()
}

/// Mark for a tensor of the old program that the new program does not have.
const GONE: TensorId = TensorId(u64::MAX);

/// A copy of a program, under construction.
struct Copier<'a> {
    old: &'a RecordedProgram,
    new: Writer,
    /// Tensor of the old program -> the current tensor of the new program that stands for it.
    now: Vec<TensorId>,
    /// Tensors that a step takes over from the step before. The step must not make these tensors
    /// again.
    inherited: FxHashSet<TensorId>,
}

impl Copier<'_> {
    fn commands(&mut self, range: Range<usize>) -> Result<(), ProgramError> {
        let old = self.old;
        old.commands()[range].iter().try_for_each(|command| self.command(command))
    }

    fn command(&mut self, command: &RecordedCommand) -> Result<(), ProgramError> {
        match command {
            Command::Put { tensor, .. } if self.inherited.contains(tensor) => return Ok(()),
            // The tensor is a leftover that only the first step has.
            Command::Del(tensor) | Command::Label { tensor, .. }
                if self.now[tensor.index()] == GONE =>
            {
                return Ok(());
            }
            _ => {}
        }
        let mut next = self.new.program().next();
        let now = |tensor: TensorId| self.now.get(tensor.index()).copied();
        self.new.push(self.new.renumbered(command.clone(), now))?;
        command.makes(|old| {
            self.now[old.index()] = next;
            next = next.plus(1);
        });
        Ok(())
    }

    /// Adds the commands between the end of a step and the start of the next step. Returns the
    /// tensors that the next step takes over.
    fn hand_over(
        &mut self,
        step: &Step,
        unneeded: &[TensorId],
    ) -> Result<Vec<TensorId>, ProgramError> {
        let mut starts = Vec::with_capacity(step.carried.len());
        for carried in &step.carried {
            let tensor = self.now[carried.end.index()];
            if carried.commit {
                self.new.push(Command::Commit(tensor))?;
            }
            starts.push(tensor);
        }
        for &tensor in unneeded {
            self.new.push(Command::Del(self.now[tensor.index()]))?;
        }
        for &tensor in &step.leftovers {
            self.now[tensor.index()] = GONE;
        }
        // All starts are assigned in a second loop, because the end of one carried tensor may be
        // the start of another.
        for (carried, &tensor) in step.carried.iter().zip(&starts) {
            self.now[carried.start.index()] = tensor;
            self.inherited.insert(carried.start);
        }
        Ok(starts)
    }

    /// Tensors carried over by the current step, with the numbers of the new program.
    fn carried(&self, step: &Step, starts: &[TensorId]) -> Vec<Carried> {
        let carried = |(&start, carried): (&TensorId, &Carried)| Carried {
            start,
            end: self.now[carried.end.index()],
            commit: carried.commit,
        };
        starts.iter().zip(&step.carried).map(carried).collect()
    }
}
