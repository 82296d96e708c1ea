//! Errors in traces.

use super::lines::{MAX_BLANK_BYTES, MAX_IDLE_BYTES, MAX_LINE_BYTES, MAX_LINES};
use crate::command::ProgramError;
use crate::trace::VERSION;
use std::fmt;
use std::io;

/// Error of a trace that cannot be read: the file, the line, and the problem.
#[derive(Debug, thiserror::Error)]
#[error("{file}{at}: {problem}", at = At(*.line))]
pub struct TraceError {
    /// File name, as the caller gave it.
    pub file: String,
    /// Number of the wrong line, counted from 1; `None` if the error concerns no line.
    pub line: Option<u64>,
    /// Problem found.
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

/// Problem of a trace. The message says what was expected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceProblem {
    /// The file does not exist, or is damaged.
    #[error("the trace cannot be read: {0}{hint}", hint = hint(.0))]
    Read(io::Error),
    /// The file has no line.
    #[error("the file is empty; {EXPECTED}")]
    Empty,
    /// The file has too many successive blank bytes. A file of blank bytes is refused, because a
    /// few kilobytes of gzip may unpack to gigabytes.
    #[error("there are {MAX_BLANK_BYTES} blank bytes in a row; {EXPECTED}")]
    Blank,
    /// The file has too many successive bytes without an instruction.
    #[error("there are {MAX_IDLE_BYTES} bytes in a row without an instruction; {EXPECTED}")]
    Idle,
    /// A line is longer than any line of a trace.
    #[error("the line is longer than {MAX_LINE_BYTES} bytes, the limit for a trace")]
    LineTooLong,
    /// The file has more lines than the reader accepts.
    #[error("there are more than {MAX_LINES} lines, the most that can be read; record fewer steps")]
    TooManyLines,
    /// Bytes that are not UTF-8.
    #[error("byte {column} is not text; expected lines of JSON in UTF-8")]
    NotText {
        /// Position in the line of the first byte that is not UTF-8, from 1.
        column: usize,
    },
    /// The line is not JSON, or not the JSON of a trace.
    #[error("{}{message}", column.map(|c| format!("column {c}: ")).unwrap_or_default())]
    Json {
        /// Position in the line, from 1; `None` if unknown.
        column: Option<usize>,
        /// Description of what was found and what was expected.
        message: String,
    },
    /// The file is JSON, but not a trace.
    #[error("not a trace; {EXPECTED}")]
    NotATrace,
    /// The trace has no instruction that a replay could execute.
    #[error("the trace has no instruction")]
    NoInstructions,
    /// The trace was written by a later version of the program.
    #[error("the trace is of version {0}; this program reads versions 1 to {VERSION}")]
    Version(u32),
    /// The trace is incomplete: its writer was stopped, or only a part of the file was copied.
    #[error("the recording was cut off: the last line is not {{\"event\":\"end\"}}")]
    CutOff,
    /// The file continues after the last line of the trace.
    #[error("the recording continues after its end; expected one trace per file")]
    AfterEnd,
    /// The file has the first line of a second trace.
    #[error("a second `begin`; expected one trace per file")]
    SecondBegin,
    /// No tensor has this number.
    #[error(
        "tensor {0} does not exist: no earlier line made the tensor, or a line deleted or consumed it"
    )]
    UnknownTensor(u64),
    /// The tensor numbers from this number up to the largest do not suffice for the outputs of an
    /// op.
    #[error("the outputs are numbered from {0}, but too few numbers are left")]
    NoNumber(u64),
    /// Another tensor has this number.
    #[error("tensor {0} exists already; expected a new number")]
    TakenTensor(u64),
    /// The instruction is not an instruction of a log.
    #[error(
        "`{}` is not an instruction of a log; expected CONSTANT, CALL, MUTATE, COPY, COPY_FROM, RELEASE, MEMORY, \
         ALIAS or ANNOTATE",
        short(.0)
    )]
    UnknownInstruction(String),
    /// An instruction lacks a field.
    #[error("{instruction} without {field}")]
    Missing {
        /// The instruction.
        instruction: &'static str,
        /// Missing field.
        field: &'static str,
    },
    /// A line does not have the kind that the lines before it require.
    #[error("expected {expected}, found {found}")]
    Unexpected {
        /// Required line.
        expected: String,
        /// Line found.
        found: String,
    },
    /// No tensor has this name.
    #[error("no line before this one made a tensor `{}`", short(.0))]
    UnknownName(String),
    /// The tensor of this name was freed.
    #[error("`{}` was released before", short(.0))]
    ReleasedName(String),
    /// Another tensor had this name before.
    #[error("`{}` is taken already; expected a new name", short(.0))]
    TakenName(String),
    /// A position is not the position of an argument.
    #[error("{field} refers to argument {index}, counted from 0, but the op has {count}")]
    Argument {
        /// ALIAS or MUTATE.
        field: &'static str,
        /// Position, from 0.
        index: u64,
        /// Number of arguments.
        count: usize,
    },
    /// An op changes one argument twice.
    #[error("the op changes one argument twice")]
    MutatedTwice,
    /// A command is not valid at its position.
    #[error(transparent)]
    Program(#[from] ProgramError),
}

const EXPECTED: &str = "expected a trace of `remat train --record`, which starts with {\"event\":\"begin\",...}, or \
    a log of the DTR paper, whose lines are {\"INSTRUCTION\":...}";

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
        // Each line is parsed separately, so the parser's `line 1` is removed from the message.
        let position = format!(" at line {} column {}", error.line(), error.column());
        let message = message.strip_suffix(&position).unwrap_or(&message);
        Self::Json { column, message: short(message).into_owned() }
    }
}

/// Text from a file, cut to 300 characters for a message.
pub(super) fn short(text: &str) -> std::borrow::Cow<'_, str> {
    const MOST: usize = 300;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}...", &text[..end]).into(),
        None => text.into(),
    }
}
