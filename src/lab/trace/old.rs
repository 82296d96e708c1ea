//! Recordings of versions 1 to 3. The ops of these versions have sizes in place of layouts, and one
//! command may take several lines.

use super::TraceProblem;
use super::recorded::Reader;
use crate::command::{
    Apply, Command, ProgramError, RecordedCommand, RecordedOp, RecordedValue, TensorId,
};
use crate::driver::Entry;
use crate::event::Cause;
use crate::lab::writer::{check_number, raw};
use crate::layout::{Dims, Layout};
use crate::op::{Look, Outputs};
use smallvec::SmallVec;
use std::sync::Arc;

/// Line of a recording. `used` is the number of bytes in use after the line, present from version 3
/// on.
#[derive(serde::Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum OldEntry {
    Begin {},
    Put {
        tensor: u64,
        bytes: u64,
        cost: f64,
        used: Option<u64>,
    },
    Apply {
        op: String,
        inputs: Vec<u64>,
        outputs: Vec<OldOutput>,
        workspace: u64,
        cost: f64,
        flops: Option<f64>,
        rematerializable: bool,
        used: Option<u64>,
    },
    Get {
        tensor: u64,
        used: Option<u64>,
    },
    Del {
        tensor: u64,
        used: Option<u64>,
    },
    Drop {
        tensor: u64,
        used: Option<u64>,
    },
    Commit {
        tensor: u64,
        used: Option<u64>,
    },
    Step {
        used: Option<u64>,
        peak: Option<u64>,
    },
    Evict {
        tensor: u64,
        bytes: u64,
        cause: Cause,
        used: u64,
    },
    Regenerate {
        tensor: u64,
        bytes: u64,
        cost: f64,
        used: u64,
    },
    End,
}

#[derive(serde::Deserialize)]
pub(super) struct OldOutput {
    tensor: u64,
    bytes: u64,
    #[serde(flatten)]
    source: Source,
}

/// Origin of an output. Inputs are given by position.
#[derive(Clone, Copy, serde::Deserialize)]
#[serde(tag = "source", rename_all = "snake_case")]
enum Source {
    Fresh,
    View { input: usize },
    InPlace { input: usize, consumed: bool },
}

impl Reader {
    pub(super) fn old(&mut self, entry: OldEntry) -> Result<(), TraceProblem> {
        if self.ended {
            return Err(TraceProblem::AfterEnd);
        }
        let about = |tensor, command: fn(TensorId) -> RecordedCommand, used| {
            self.tensor(tensor).map(|tensor| (command(tensor), used, None))
        };
        let (command, used, peak) = match entry {
            OldEntry::Begin {} => return Err(TraceProblem::SecondBegin),
            OldEntry::Put { tensor, bytes, cost, used } => {
                let host = RecordedValue { layout: raw(bytes)?, cost: Some(cost), reruns: None };
                let made = self.writer.program().next();
                let command = Command::Put { tensor: made, host: Arc::new(host), leaf: false };
                self.did(command, &[tensor], used, None)?;
                self.spans.push(bytes);
                return Ok(());
            }
            OldEntry::Apply {
                op,
                inputs,
                outputs,
                workspace,
                cost,
                flops,
                rematerializable,
                used,
            } => {
                let op =
                    RecordedOp { flops, workspace, rematerializable, ..RecordedOp::new(op, cost) };
                return self.old_call(op, &inputs, outputs, used);
            }
            OldEntry::Get { tensor, used } => about(tensor, Command::Get, used)?,
            OldEntry::Del { tensor, used } => about(tensor, Command::Del, used)?,
            OldEntry::Drop { tensor, used } => about(tensor, Command::Drop, used)?,
            OldEntry::Commit { tensor, used } => about(tensor, Command::Commit, used)?,
            OldEntry::Step { used, peak } => (Command::Step, used, peak),
            // An eviction is noted only for the history, because a replay chooses its own
            // evictions.
            OldEntry::Evict { tensor, bytes, cause, used } => {
                let tensor = self.known(tensor)?;
                self.note(&Entry::Evict { tensor, bytes, cause, used });
                return Ok(());
            }
            OldEntry::Regenerate { tensor, bytes, cost, used } => {
                let tensor = self.known(tensor)?;
                check_number("the cost", cost)?;
                self.note(&Entry::Regenerate { tensor, bytes, cost, used });
                return Ok(());
            }
            OldEntry::End => {
                self.ended = true;
                return Ok(());
            }
        };
        self.did(command, &[], used, peak)
    }

    /// Reads an op. Updated inputs, and the outputs that update them, may be recorded at any
    /// position. The function moves these inputs and outputs to the front.
    fn old_call(
        &mut self,
        op: RecordedOp,
        inputs: &[u64],
        outputs: Vec<OldOutput>,
        used: Option<u64>,
    ) -> Result<(), TraceProblem> {
        let tensors = inputs.iter().map(|&input| self.tensor(input));
        let tensors: Vec<TensorId> = tensors.collect::<Result<_, _>>()?;
        let mut updates: Vec<(usize, bool, u64)> = Vec::new();
        let (mut fresh, mut fresh_numbers) = (SmallVec::new(), Vec::new());
        let (mut looks, mut look_numbers) = (SmallVec::new(), Vec::new());
        let mut spans = Vec::new();
        for OldOutput { tensor, bytes, source } in outputs {
            let position = |input: usize| match tensors.get(input) {
                Some(tensor) => Ok(self.spans[tensor.index()]),
                None => Err(ProgramError::Input { input, count: tensors.len() }),
            };
            match source {
                Source::Fresh => {
                    fresh.push(raw(bytes)?);
                    fresh_numbers.push(tensor);
                    spans.push(bytes);
                }
                Source::View { input } => {
                    let span = position(input)?;
                    raw(bytes)?;
                    looks.push(Look { input, layout: look(span, bytes) });
                    look_numbers.push(tensor);
                    spans.push(bytes.min(span));
                }
                Source::InPlace { input, consumed } => {
                    position(input)?;
                    if updates.iter().any(|(other, ..)| *other == input) {
                        return Err(ProgramError::UpdatedTwice.into());
                    }
                    updates.push((input, consumed, tensor));
                }
            }
        }
        if !(looks.is_empty() || fresh.is_empty() && updates.is_empty()) {
            return Err(ProgramError::Mixed.into());
        }
        let targets = updates.len();
        let mut ordered: Vec<TensorId> =
            updates.iter().map(|(input, ..)| tensors[*input]).collect();
        spans.splice(0..0, ordered.iter().map(|tensor| self.spans[tensor.index()]));
        let others = (0..tensors.len()).filter(|i| updates.iter().all(|(input, ..)| input != i));
        ordered.extend(others.map(|i| tensors[i]));
        let given_away = |(i, update): (usize, &(usize, bool, u64))| update.1.then_some(i);
        let call = Apply {
            op,
            inputs: ordered.into(),
            consumed: updates.iter().enumerate().filter_map(given_away).collect(),
            outputs: match (targets, looks.is_empty()) {
                (0, true) => Outputs::Fresh(fresh),
                (0, false) => Outputs::Views(looks),
                _ => Outputs::Updates { targets, fresh },
            },
            made: self.writer.program().next(),
        };
        let made: Vec<u64> = updates
            .iter()
            .map(|update| update.2)
            .chain(fresh_numbers)
            .chain(look_numbers)
            .collect();
        self.did(Command::Apply(call), &made, used, None)?;
        self.spans.extend(spans);
        Ok(())
    }
}

/// Layout of a view of `bytes` bytes of a storage that has `span` bytes. If the view has more bytes
/// than the storage, the view repeats the whole storage.
fn look(span: u64, bytes: u64) -> Layout {
    let (span, bytes) = (span as usize, bytes as usize);
    if bytes <= span || span == 0 {
        return Layout::raw(bytes.min(span));
    }
    let all = Layout::raw(span);
    all.broadcast_to(&Dims::new(&[bytes.div_ceil(span), span])).unwrap_or(all)
}
