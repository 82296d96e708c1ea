//! Errors in traces.

use super::lines::{MAX_BLANK_BYTES, MAX_IDLE_BYTES, MAX_LINE_BYTES, MAX_LINES};
use crate::command::ProgramError;
use crate::trace::VERSION;
use std::fmt;
use std::io;

/// A trace that cannot be read: which file, where, and why.
#[derive(Debug, thiserror::Error)]
#[error("{file}{at}: {problem}", at = At(*.line))]
pub struct TraceError {
    /// The file as it was named.
    pub file: String,
    /// The line that is wrong, from 1; `None` if it is not about a line.
    pub line: Option<u64>,
    /// What is wrong.
    pub problem: TraceProblem,
}

struct At(Option<u64>);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(line) => write!(f, ", line {line}"),
            None => Ok(()),
        }
    }
}

/// What is wrong with a trace, and what was expected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceProblem {
    /// The file is not there, or is damaged.
    #[error("it cannot be read: {0}{hint}", hint = hint(.0))]
    Read(io::Error),
    /// No line in it.
    #[error("there is nothing in it; {EXPECTED}")]
    Empty,
    /// A file of nothing, or almost: what a few kilobytes of gzip unpack to may be gigabytes.
    #[error("there are {MAX_BLANK_BYTES} bytes without a word; {EXPECTED}")]
    Blank,
    /// The same, of lines that are no instructions.
    #[error("there are {MAX_IDLE_BYTES} bytes without an instruction; {EXPECTED}")]
    Idle,
    /// A line beyond all measure.
    #[error("the line is longer than {MAX_LINE_BYTES} bytes, which no line of a trace is")]
    LineTooLong,
    /// Lines beyond all measure.
    #[error(
        "there are more than {MAX_LINES} lines, which is as many as are read; record fewer steps"
    )]
    TooManyLines,
    /// Bytes that are not UTF-8.
    #[error("byte {column} is not text; lines of JSON in UTF-8 were expected")]
    NotText {
        /// Position of the byte in the line, from 1.
        column: usize,
    },
    /// Not JSON, or not the JSON of a trace.
    #[error("{}{message}", column.map(|c| format!("column {c}: ")).unwrap_or_default())]
    Json {
        /// Position in the line, from 1, where it is known.
        column: Option<usize>,
        /// What was found and what was expected.
        message: String,
    },
    /// JSON of something else.
    #[error("this is no trace; {EXPECTED}")]
    NotATrace,
    /// Nothing that a replay could do.
    #[error("no instruction is in it")]
    NoInstructions,
    /// A trace of a later program.
    #[error("the trace is of version {0}; this program reads versions 1 to {VERSION}")]
    Version(u32),
    /// Half a trace: what wrote it was stopped, or it was copied in part.
    #[error(
        "the recording was cut off: this is the last line, and it is not {{\"event\":\"end\"}}"
    )]
    CutOff,
    /// Something after the last line.
    #[error("the recording goes on after its end; one trace per file was expected")]
    AfterEnd,
    /// A second trace in the same file.
    #[error("a second `begin`; one trace per file was expected")]
    SecondBegin,
    /// A number that no tensor has.
    #[error("tensor {0} is not there: nothing made it, or it was deleted or consumed before")]
    UnknownTensor(u64),
    /// A number after which there are too few for the outputs of an op.
    #[error("the outputs are numbered from {0}, and there are too few numbers after that")]
    NoNumber(u64),
    /// A number that another tensor has.
    #[error("tensor {0} is there already; a new number was expected")]
    TakenTensor(u64),
    /// An instruction of no log.
    #[error(
        "`{}` is no instruction of a log; CONSTANT, CALL, MUTATE, COPY, COPY_FROM, RELEASE, MEMORY, \
         ALIAS or ANNOTATE was expected",
        short(.0)
    )]
    UnknownInstruction(String),
    /// An instruction without something it needs.
    #[error("{instruction} without {field}")]
    Missing {
        /// The instruction.
        instruction: &'static str,
        /// What it has not.
        field: &'static str,
    },
    /// One line where another must be.
    #[error("{expected} was expected, {found} was found")]
    Unexpected {
        /// What the lines before ask for.
        expected: String,
        /// What there is.
        found: String,
    },
    /// A name that no tensor has.
    #[error("no line before this one made `{}`", short(.0))]
    UnknownName(String),
    /// A name whose tensor has gone.
    #[error("`{}` was released before", short(.0))]
    ReleasedName(String),
    /// A name that was used before.
    #[error("`{}` is taken already; a new name was expected", short(.0))]
    TakenName(String),
    /// A position beyond the arguments.
    #[error("{field} refers to argument {index}, counted from 0, of {count}")]
    Argument {
        /// ALIAS or MUTATE.
        field: &'static str,
        /// The position.
        index: u64,
        /// How many there are.
        count: usize,
    },
    /// One argument changed twice by one op.
    #[error("the op changes one argument twice")]
    MutatedTwice,
    /// A command that makes no sense where it stands.
    #[error(transparent)]
    Program(#[from] ProgramError),
}

const EXPECTED: &str = "a trace as `remat train --record` writes it, which starts with \
    {\"event\":\"begin\",...}, or a log of the DTR paper, whose lines are {\"INSTRUCTION\":...}, was \
    expected";

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "; the compressed data was cut off",
        _ => "",
    }
}

impl From<serde_json::Error> for TraceProblem {
    fn from(error: serde_json::Error) -> Self {
        let message = error.to_string();
        let column = (error.line() > 0).then_some(error.column());
        // Each line is parsed by itself, so `line 1` would only confuse.
        let position = format!(" at line {} column {}", error.line(), error.column());
        let message = message.strip_suffix(&position).unwrap_or(&message);
        Self::Json { column, message: short(message).into_owned() }
    }
}

/// A text from a file as far as a message should show it.
pub(super) fn short(text: &str) -> std::borrow::Cow<'_, str> {
    const MOST: usize = 300;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}...", &text[..end]).into(),
        None => text.into(),
    }
}
