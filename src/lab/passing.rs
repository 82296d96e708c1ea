//! Search for a passing budget after an attempt ran out of memory.

use super::replay::{Machine, MemoryKind, Replay, Status};
use super::smallest;
use super::step::alive_after;
use super::writer::Writer;
use crate::command::{Command, ProgramError, RecordedProgram, RecordedValue, TensorId};
use crate::driver::{Allowance, Attempt, Knowledge};
use crate::engine::{RecomputeLimit, Settings};
use crate::error::Error;
use crate::evict::{Learn, PolicyKind};
use crate::step::Reader;
use remat_memory::ByteSize;

/// Number of budgets to try, between the failed budget and a budget without evictions.
const STEPS: u32 = 40;

/// Factor for a second test: a budget is suggested only if the budget times this factor also
/// passes. The margin is needed because a real run leaves other holes in memory than a simulated
/// run.
const MARGIN: f64 = 0.98;

/// Factor from the peak of the bytes in use to a budget in which nothing is evicted. The additional
/// bytes are for holes.
const HOLES: f64 = 1.1;

/// Limit on the total ops of all simulated runs, as a multiple of the ops of a turn without
/// recomputation.
const TURNS: u64 = 64;

/// Limit on the recomputed cost, as a multiple of the cost of the program. A slower run would be
/// useless in practice.
const MOST_RECOMPUTED: f64 = 4.0;

/// Smallest budget found, in bytes, in which the program of the attempt passes with the same
/// policy. [`ByteSize`] prints and parses this number without rounding. `None` if no budget is
/// found, or if the attempt is not a valid program.
///
/// Simulated runs find the budget, and the real run may differ from simulated runs. Therefore, a
/// budget is accepted only if a slightly smaller budget also passes. The step is simulated like a
/// later step, with the state of the optimizer resident from the beginning.
#[must_use]
pub fn passing_budget(attempt: &Attempt) -> Option<u64> {
    // No search has found a forecast for this step yet, so the policy uses the default forecast.
    let policy = match attempt.policy {
        PolicyKind::Learned(_) => PolicyKind::Learned(Learn::Ahead),
        policy => policy,
    };
    let settings = Settings {
        recompute_limit: Some(RecomputeLimit::Multiple(MOST_RECOMPUTED)),
        // The threshold is dropped, because it may lie above some of the tried budgets. A run
        // without the threshold needs no larger budget.
        eviction_threshold: None,
        verify_recomputed: None,
        ..attempt.settings.clone()
    };
    let replay = Replay {
        memory: if attempt.in_arena { MemoryKind::Arena } else { MemoryKind::Counted },
        settings,
        as_run: Some(Knowledge::default()),
        ..Replay::new(policy, attempt.budget)
    };
    // The tried budgets lie between the budget that failed and a budget in which nothing is
    // evicted.
    let program = as_later(attempt).ok()?;
    let peak = replay.most_used(&program).ok()?;
    let low = attempt.needed.max(attempt.budget);
    let high = ((peak as f64 * HOLES) as u64).max(low + low / 8);
    let mut allowance = Allowance::of_turns(TURNS, program.ops_from(0).max(1));
    let mut passes = |budget: u64| -> Result<bool, Error> {
        let replay = Replay { budget, ..replay.clone() };
        let mut machine = Machine::new(&replay, &program)?;
        machine.limit_ops(allowance);
        let outcome = machine.simulate();
        allowance.spend(outcome.stats.ops + outcome.stats.recomputed_ops);
        Ok(matches!(outcome.status, Status::Done))
    };
    let budget = |step: u32| {
        readable(low + ((high - low) as u128 * u128::from(step) / u128::from(STEPS)) as u64)
    };
    let found = smallest(1, STEPS, |step| {
        let less = (budget(step) as f64 * MARGIN) as u64;
        Ok::<_, Error>(passes(budget(step))? && passes(less)?)
    });
    found.ok()?.map(budget)
}

/// The program of the attempt, changed to that of a later step. A value that exists before the step
/// and stays, such as a parameter, is a leaf from the beginning. A value that the step makes and
/// keeps, such as optimizer state, gets a placeholder of the same size. The placeholder is deleted
/// directly before the command that makes the value.
fn as_later(attempt: &Attempt) -> Result<RecordedProgram, ProgramError> {
    let Attempt { program, begin, .. } = attempt;
    let kept = Kept::of(attempt);
    let mut new = Writer::default();
    let room = kept
        .made
        .iter()
        .map(|&(maker, bytes)| Ok((maker, new.put(RecordedValue::constant(bytes))?)));
    let room = room.collect::<Result<Vec<_>, ProgramError>>()?;
    let shift = room.len();
    let mut room = room.into_iter().peekable();
    for (at, command) in program.commands().iter().enumerate() {
        if at == *begin {
            let there = kept.there.iter().map(|tensor| Command::Commit(tensor.plus(shift)));
            there.into_iter().try_for_each(|commit| new.push(commit))?;
        }
        while let Some((_, room)) = room.next_if(|(maker, _)| *maker == at) {
            new.push(Command::Del(room))?;
        }
        new.push(command.clone().renumbered(|tensor| tensor.plus(shift)))?;
    }
    Ok(new.finish())
}

/// Values that a run leaves to the next step.
struct Kept {
    /// Tensors that existed before the run and exist after it, updated or not.
    there: Vec<TensorId>,
    /// Values that the run made and that exist after the run, updated or not. An entry is the
    /// position of the command that made the value, in ascending order, and its bytes. A value that
    /// replaces an old value is left out, such as a parameter that is updated by making a new
    /// tensor.
    made: Vec<(usize, u64)>,
}

impl Kept {
    fn of(Attempt { program, begin, .. }: &Attempt) -> Self {
        let commands = program.commands();
        let before = alive_after(program, *begin);
        let mut stays = alive_after(program, commands.len());
        // An updated tensor stays if its last value stays. One pass from the last command to the
        // first is enough: when the pass reaches a value, all later values of the tensor are
        // decided.
        for command in commands.iter().rev() {
            if let Command::Replace { value, made, .. } = command {
                stays[value.index()] |= stays[made.index()];
            }
            for call in command.calls().iter().rev() {
                let targets = call.inputs.iter().take(call.outputs.targets());
                for (target, made) in targets.zip(call.outputs()) {
                    stays[target.index()] |= stays[made.index()];
                }
            }
        }
        let bytes = bytes_of(program);
        let went = |input: &TensorId| before[input.index()] && !stays[input.index()];
        let mut made = Vec::new();
        for (at, command) in commands.iter().enumerate().skip(*begin) {
            for call in command.calls() {
                let Some((targets, _)) = call.outputs.written() else { continue };
                for output in call.outputs().skip(targets).map(TensorId::index) {
                    let replaces =
                        |input: &TensorId| went(input) && bytes[input.index()] == bytes[output];
                    if stays[output] && !call.inputs.iter().any(replaces) {
                        made.push((at, bytes[output]));
                    }
                }
            }
        }
        let there = (0..program.tensors() as u64).map(TensorId);
        let there = there.filter(|tensor| before[tensor.index()] && stays[tensor.index()]);
        Self { there: there.collect(), made }
    }
}

/// Bytes of each tensor's layout, by tensor.
fn bytes_of(program: &RecordedProgram) -> Vec<u64> {
    let mut reader = Reader::default();
    let mut bytes = Vec::with_capacity(program.tensors());
    for command in program.commands() {
        reader.read(command, |host| host.layout);
        command.makes(|tensor| bytes.push(reader.layout(tensor).bytes()));
    }
    bytes
}

/// A number of bytes, at least `bytes`, that does not change when printed as a [`ByteSize`] and
/// parsed.
fn readable(bytes: u64) -> u64 {
    let read = |bytes| ByteSize(bytes).to_string().parse().map_or(bytes, |ByteSize(bytes)| bytes);
    let nearest = read(bytes);
    let more = (0..6).map(|digit| bytes.saturating_add(bytes / 10u64.pow(6 - digit)));
    if nearest >= bytes {
        nearest
    } else {
        more.map(read).find(|&more| more >= bytes).unwrap_or(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_rounded_up_to_one_that_its_text_means() {
        for unit in [1u64, 1 << 10, 1 << 20, 1 << 30, 1 << 40] {
            for part in [1.0, 1.001, 1.234_567, 9.999, 12.345, 99.99, 543.21, 1023.9] {
                let bytes = (part * unit as f64) as u64;
                let found = readable(bytes);
                assert!(found >= bytes && found as f64 <= bytes as f64 * 1.011, "{bytes}: {found}");
                assert_eq!(ByteSize(found).to_string().parse(), Ok(ByteSize(found)));
            }
        }
    }
}
