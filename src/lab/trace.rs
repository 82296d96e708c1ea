//! Trace files: our own recordings and the logs of the DTR paper, packed by gzip or not.

mod error;
mod lines;
mod old;
mod paper;
mod recorded;

pub use error::{TraceError, TraceProblem};

use super::CostUnit;
use super::changes::RunSettings;
use super::history::{History, NoHistory};
use super::step::{RepeatError, Repeated, Step, last_step, repeat};
use crate::command::{RecordedProgram, Window};
use crate::driver::Knowledge;
use crate::files::unpacked;
use lines::Lines;
use serde::de::IgnoredAny;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// A trace file in memory.
///
/// ```
/// use remat::unstable::lab::Trace;
///
/// let log = r#"
/// {"INSTRUCTION":"CONSTANT","NAME":"weight"}
/// {"INSTRUCTION":"MEMORY","NAME":"weight","MEMORY":"64"}
/// {"INSTRUCTION":"CALL","NAME":"relu","ARGS":["weight"],"RESULT":["y"],"TIME":"250"}
/// {"INSTRUCTION":"MEMORY","NAME":"y","MEMORY":"64"}
/// {"INSTRUCTION":"ALIAS","NAME":"y","ALIAS":"-1"}
/// "#;
/// let trace = Trace::read(log.as_bytes(), "tiny.log")?;
/// assert_eq!((trace.name(), trace.program().ops()), ("tiny", 2));
/// let longer = trace.repeat_step(10)?;
/// assert_eq!(longer.program().base_cost(), 2500.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Trace {
    name: String,
    is_recording: bool,
    program: RecordedProgram,
    unit: CostUnit,
    window: Window,
    known: Knowledge,
    settings: RunSettings,
    /// The step of a log; `None` in a recording, whose program contains step marks.
    step: Option<Step>,
    /// Tensor of the program -> its number in the recording. The vector is empty for logs and
    /// repeated steps.
    numbers: Vec<u64>,
    history: Result<History, NoHistory>,
}

impl Trace {
    /// Reads a file. The file is a recording of `remat train --record` or a log of the DTR paper,
    /// packed by gzip or not. The format is recognized by the content, not by the file name. Only
    /// one line of the file is in memory at a time.
    ///
    /// # Errors
    /// A [`TraceError`] if the file cannot be read or is not a valid trace. The error gives the
    /// line, the problem, and what was expected.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, TraceError> {
        let path = path.as_ref();
        let file = path.display().to_string();
        match File::open(path) {
            Ok(opened) => Self::read(BufReader::with_capacity(1 << 16, opened), &file),
            Err(error) => Err(TraceError { file, line: None, problem: TraceProblem::Read(error) }),
        }
    }

    /// Reads a trace from any reader, like [`Trace::open`]. `file` is the name of the file in
    /// messages. The [name](Trace::name) of the trace is `file` without its folder and endings.
    ///
    /// # Errors
    /// See [`Trace::open`].
    pub fn read(reader: impl BufRead, file: &str) -> Result<Self, TraceError> {
        let error = |line, problem| TraceError { file: file.to_owned(), line, problem };
        let unpacked = unpacked(reader).map_err(|e| error(None, TraceProblem::Read(e)))?;
        let mut lines = Lines::new(unpacked);
        Self::parse(&mut lines, name_of(file)).map_err(|problem| match problem {
            TraceProblem::Empty | TraceProblem::NoInstructions => error(None, problem),
            problem => error(Some(lines.number()), problem),
        })
    }

    fn parse(lines: &mut Lines<impl BufRead>, name: String) -> Result<Self, TraceProblem> {
        if !lines.advance()? {
            return Err(TraceProblem::Empty);
        }
        let trace = match format_of(lines.text())? {
            Format::Recorded => {
                let recorded::Recorded { program, unit, window, known, settings, numbers, history } =
                    recorded::read(lines, &name)?;
                Self {
                    name,
                    is_recording: true,
                    program,
                    unit,
                    window,
                    known,
                    settings,
                    step: None,
                    numbers,
                    history,
                }
            }
            Format::Paper => {
                let (program, step) = paper::read(lines)?;
                Self {
                    name,
                    is_recording: false,
                    program,
                    unit: CostUnit::Nanoseconds,
                    window: Window::default(),
                    known: Knowledge::default(),
                    settings: RunSettings::default(),
                    step: Some(step),
                    numbers: Vec::new(),
                    history: Err(NoHistory::Log),
                }
            }
        };
        match trace.program.commands() {
            [] => Err(TraceProblem::NoInstructions),
            _ => Ok(trace),
        }
    }

    /// Name of the file, without folder and endings.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the trace is a recording of this crate. A log of the DTR paper is not a recording,
    /// and has no uploads, workspaces or addresses.
    #[must_use]
    pub const fn is_recording(&self) -> bool {
        self.is_recording
    }

    /// Program of the trace.
    #[must_use]
    pub const fn program(&self) -> &RecordedProgram {
        &self.program
    }

    /// Unit of the costs.
    #[must_use]
    pub const fn unit(&self) -> &CostUnit {
        &self.unit
    }

    /// Window of the recorded run: the number of later commands that its evictor could see. In a
    /// replay with this window, the evictor sees the same commands, unless an update failed in the
    /// run. A failed update is recorded as several commands.
    #[must_use]
    pub const fn window(&self) -> Window {
        self.window
    }

    /// Knowledge of steps that the recorded run had when it began. A replay whose
    /// [`Replay::as_run`](super::Replay::as_run) is this knowledge knows as much as the run did.
    #[must_use]
    pub const fn known(&self) -> &Knowledge {
        &self.known
    }

    /// Settings of the recorded run and their changes. A replay with these settings and changes has
    /// the same evictions as the run.
    #[must_use]
    pub const fn settings(&self) -> &RunSettings {
        &self.settings
    }

    /// Memory contents during the recorded run, if the trace is a recording of version 3 or later.
    ///
    /// # Errors
    /// The reason why the memory contents are unknown.
    pub fn history(&self) -> Result<&History, NoHistory> {
        self.history.as_ref().map_err(|reason| *reason)
    }

    /// The trace with its last step repeated, so that the step occurs `times` times, as if training
    /// had continued.
    ///
    /// The last step of a recording lies between its last two step marks, or between the start and
    /// the only step mark. A log of the DTR paper is one step.
    ///
    /// Each repetition takes over tensors from the repetition before. A tensor made before the step
    /// stays if it is alive at the end of the step. A tensor that was updated is replaced by its
    /// updated value. A tensor that was deleted is replaced by the tensor that the step makes in
    /// the same way. Constants of a log are carried over if their names still exist. Values that
    /// the next repetition does not use are deleted before it begins.
    ///
    /// # Errors
    /// [`RepeatError::NoStep`] if the recording has no step mark; [`RepeatError::UsedUp`] if the
    /// last step deletes a tensor that the next step needs, without making a replacement.
    pub fn repeat_step(self, times: usize) -> Result<Self, RepeatError> {
        if times == 1 {
            return Ok(self);
        }
        let Self { program, step, numbers, .. } = &self;
        let in_file = |error| match error {
            RepeatError::UsedUp { tensor, op } => {
                let number = numbers.get(tensor as usize);
                RepeatError::UsedUp { tensor: number.copied().unwrap_or(tensor), op }
            }
            other => other,
        };
        let step = step.clone().map_or_else(|| last_step(program), Ok).map_err(in_file)?;
        let Repeated { program, step, moves } = repeat(self.program, &step, times)?;
        let settings = self.settings.repeated(&moves);
        let history = Err(NoHistory::Repeated);
        Ok(Self { program, settings, step: Some(step), numbers: Vec::new(), history, ..self })
    }
}

enum Format {
    Recorded,
    Paper,
}

/// Format of a trace, recognized by its first line.
fn format_of(line: &str) -> Result<Format, TraceProblem> {
    #[derive(serde::Deserialize)]
    struct Probe {
        event: Option<IgnoredAny>,
        #[serde(rename = "INSTRUCTION")]
        instruction: Option<IgnoredAny>,
    }
    let probe: Probe = match serde_json::from_str(line) {
        Ok(probe) => probe,
        // The line is not valid JSON. If the line begins like a line of a trace, the trace may have
        // been cut off within the line.
        Err(error) if line.starts_with('{') => return Err(error.into()),
        Err(_) => return Err(TraceProblem::NotATrace),
    };
    match probe {
        Probe { event: Some(_), .. } => Ok(Format::Recorded),
        Probe { instruction: Some(_), .. } => Ok(Format::Paper),
        _ => Err(TraceProblem::NotATrace),
    }
}

fn name_of(file: &str) -> String {
    let name = Path::new(file).file_name().unwrap_or_default().to_string_lossy();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    let name =
        [".log", ".jsonl"].iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name);
    name.to_owned()
}

#[cfg(test)]
mod tests;
