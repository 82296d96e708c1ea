//! Recordings made by this crate, as `remat train --record` writes them: one [`Entry`] a line.
//! `old.rs` reads recordings of versions 1 to 3.

use super::TraceProblem;
use super::lines::Lines;
use crate::command::{
    Apply, ProgramError, RecordedCommand, RecordedOp, RecordedProgram, Regenerations, TensorId,
    Window,
};
use crate::driver::{Entry, Knowledge, VERSION};
use crate::lab::CostUnit;
use crate::lab::changes::{Changed, RunSettings};
use crate::lab::history::{Historian, History, NoHistory, Unknown};
use crate::lab::plot::Timeline;
use crate::lab::writer::{Writer, check_number};
use rustc_hash::{FxHashMap, FxHashSet};
use std::io::BufRead;

/// Content of a recording.
pub(super) struct Recorded {
    pub program: RecordedProgram,
    pub unit: CostUnit,
    pub window: Window,
    pub known: Knowledge,
    pub settings: RunSettings,
    /// Tensor of the program -> number in the file.
    pub numbers: Vec<u64>,
    pub history: Result<History, NoHistory>,
}

/// Reads a recording whose first line is the current line.
pub(super) fn read(lines: &mut Lines<impl BufRead>, name: &str) -> Result<Recorded, TraceProblem> {
    let Begin { mut reader, version, unit, window, known, settings } = begin(lines.text(), name)?;
    while lines.advance()? {
        match version {
            ..=3 => reader.old(serde_json::from_str(lines.text())?)?,
            _ => reader.entry(serde_json::from_str(lines.text())?)?,
        }
        lines.count();
    }
    match reader {
        // Recordings of version 1 do not end with a line `end`.
        Reader { ended: false, .. } if version > 1 => Err(TraceProblem::CutOff),
        Reader { writer, numbers, historian, changes, regenerations, .. } => {
            let history = historian.map(Historian::finish).ok_or(NoHistory::Unknown);
            let mut program = writer.finish();
            regenerations.give_to(&mut program);
            let settings = RunSettings { changes, ..settings };
            Ok(Recorded { program, unit, window, known, settings, numbers, history })
        }
    }
}

struct Begin {
    reader: Reader,
    version: u32,
    unit: CostUnit,
    window: Window,
    known: Knowledge,
    settings: RunSettings,
}

fn begin(line: &str, name: &str) -> Result<Begin, TraceProblem> {
    /// Fields that the first line of any version has.
    #[derive(serde::Deserialize)]
    struct Probe {
        event: String,
        version: Option<u32>,
    }
    if let Ok(Probe { event, version }) = serde_json::from_str(line) {
        if event != "begin" {
            return Err(TraceProblem::NotATrace);
        }
        if let Some(version) = version.filter(|version| !(1..=VERSION).contains(version)) {
            return Err(TraceProblem::Version(version));
        }
    }
    let Entry::Begin { version, cost_model, budget, eviction_threshold, policy, window, known } =
        serde_json::from_str(line)?
    else {
        return Err(TraceProblem::NotATrace);
    };
    let settings = RunSettings { budget, eviction_threshold, policy, changes: Vec::new() };
    let unit = CostUnit::of_model(&cost_model);
    let historian = budget.filter(|_| version > 2).map(|budget| {
        Historian::new(Timeline {
            title: name.to_owned(),
            unit: unit.clone(),
            budget,
            threshold: eviction_threshold,
            ..Timeline::default()
        })
    });
    let reader = Reader {
        writer: Writer::default(),
        ended: false,
        tensors: FxHashMap::default(),
        numbers: vec![],
        known: FxHashMap::default(),
        spans: vec![],
        historian,
        changes: vec![],
        regenerations: Regenerations::default(),
    };
    Ok(Begin { reader, version, unit, window, known, settings })
}

/// Checks that an op has at least as many inputs as it updates, and that tensor numbers do not
/// overflow at its outputs.
fn check_outputs(call: &Apply<RecordedOp>) -> Result<(), TraceProblem> {
    let (count, targets) = (call.inputs.len(), call.outputs.targets());
    if targets > count {
        return Err(ProgramError::Input { input: count, count }.into());
    }
    match call.made.0.checked_add(call.outputs.len() as u64) {
        Some(_) => Ok(()),
        None => Err(TraceProblem::NoNumber(call.made.0)),
    }
}

/// Reader of entries. A program numbers its tensors from 0, independently of their numbers in the
/// file.
pub(super) struct Reader {
    pub(super) writer: Writer,
    /// Whether the line `end` was read.
    pub(super) ended: bool,
    /// Number in the file -> tensor, for each tensor that may still be used.
    tensors: FxHashMap<u64, TensorId>,
    /// Tensor -> number in the file.
    numbers: Vec<u64>,
    /// Number in the file -> tensor, including deleted tensors.
    known: FxHashMap<u64, TensorId>,
    /// Tensor -> bytes of its storage that views of the tensor may use. Only `old.rs` uses this
    /// table.
    pub(super) spans: Vec<u64>,
    /// Tracks the memory contents; `None` once a line lacks the number of bytes in use.
    historian: Option<Historian>,
    changes: Vec<Changed>,
    regenerations: Regenerations,
}

impl Reader {
    fn entry(&mut self, entry: Entry) -> Result<(), TraceProblem> {
        if self.ended {
            return Err(TraceProblem::AfterEnd);
        }
        match entry {
            Entry::Begin { .. } => return Err(TraceProblem::SecondBegin),
            Entry::Did { command, used, peak } => {
                let mut unknown = None;
                command.mentions(|tensor| {
                    if !self.tensors.contains_key(&tensor.0) {
                        unknown = unknown.or(Some(tensor.0));
                    }
                });
                if let Some(number) = unknown {
                    return Err(TraceProblem::UnknownTensor(number));
                }
                // The outputs are checked before they are numbered: a damaged file may claim more
                // outputs than 64-bit numbers allow.
                command.calls().iter().try_for_each(check_outputs)?;
                let mut made = Vec::new();
                command.makes(|tensor| made.push(tensor.0));
                let mut seen = FxHashSet::default();
                let is_taken =
                    |number: &&u64| self.tensors.contains_key(*number) || !seen.insert(**number);
                if let Some(&number) = made.iter().find(is_taken) {
                    return Err(TraceProblem::TakenTensor(number));
                }
                let now = |tensor: TensorId| self.tensors.get(&tensor.0).copied();
                let renumbered = self.writer.renumbered(command, now);
                self.did(renumbered, &made, used, peak)?;
            }
            Entry::Set { setting, failed, used } => {
                self.note(&Entry::Set { setting: setting.clone(), failed, used });
                let after = self.writer.program().commands().len();
                self.changes.push(Changed { after, setting, failed });
            }
            Entry::Evict { tensor, bytes, cause, used } => {
                let tensor = self.known(tensor.0)?;
                self.note(&Entry::Evict { tensor, bytes, cause, used });
            }
            Entry::Regenerate { tensor, bytes, cost, used } => {
                let tensor = self.known(tensor.0)?;
                check_number("the cost", cost)?;
                self.note(&Entry::Regenerate { tensor, bytes, cost, used });
            }
            Entry::End => self.ended = true,
        }
        Ok(())
    }

    /// Adds a command. `made` lists the numbers in the file of the tensors that the command makes.
    pub(super) fn did(
        &mut self,
        command: RecordedCommand,
        made: &[u64],
        used: Option<u64>,
        peak: Option<u64>,
    ) -> Result<(), TraceProblem> {
        let next = self.writer.program().next();
        self.writer.push(command.clone())?;
        command.ends(|tensor| _ = self.tensors.remove(&self.numbers[tensor.index()]));
        for (&number, tensor) in made.iter().zip(next.and_next(made.len())) {
            self.numbers.push(number);
            self.known.insert(number, tensor);
            if self.tensors.insert(number, tensor).is_some() {
                return Err(TraceProblem::TakenTensor(number));
            }
        }
        self.note(&Entry::Did { command, used, peak });
        Ok(())
    }

    /// Passes an entry on to the list of regenerations and to the historian.
    pub(super) fn note(&mut self, entry: &Entry) {
        match *entry {
            Entry::Regenerate { tensor, cost, .. } => self.regenerations.push(tensor, cost),
            _ => self.regenerations.interrupt(),
        }
        if self.historian.as_mut().is_some_and(|historian| historian.on(entry) == Err(Unknown)) {
            self.historian = None;
        }
    }

    pub(super) fn tensor(&self, number: u64) -> Result<TensorId, TraceProblem> {
        self.tensors.get(&number).copied().ok_or(TraceProblem::UnknownTensor(number))
    }

    pub(super) fn known(&self, number: u64) -> Result<TensorId, TraceProblem> {
        self.known.get(&number).copied().ok_or(TraceProblem::UnknownTensor(number))
    }
}
