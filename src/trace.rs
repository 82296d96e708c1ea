//! Recording a run: every command with its sizes and costs, so that the lab can replay it; and what was evicted and
//! brought back meanwhile, so that its memory can be drawn.
//!
//! The format is [`Entry`] (`driver/recording_format.rs`), one for each line.
//!
//! With the feature `serde`, `JsonLines` writes one JSON object a line, to a file or to anything else; and a recording that
//! was read can be executed: `ops::Library::program`.

pub use crate::command::{RecordedCommand, RecordedOp, RecordedProgram, RecordedValue};
pub use crate::driver::{Entry, Recorder, VERSION};

#[cfg(feature = "serde")]
mod json_lines;
#[cfg(feature = "serde")]
mod load;
#[cfg(feature = "serde")]
mod read_whole;
#[cfg(feature = "serde")]
mod unpacked;
#[cfg(feature = "serde")]
mod whole_file;
#[cfg(feature = "serde")]
pub use {
    json_lines::JsonLines,
    load::{LoadProblem, LoadProgramError},
    read_whole::read_whole,
    unpacked::unpacked,
    whole_file::WholeFile,
};
