//! Recordings of runs. A recording has every command with its sizes and costs, so that the module
//! `lab` can replay it. A recording also has the evictions and regenerations between commands, so
//! that plots can show the use of memory over time.
//!
//! A recording is a sequence of [`Entry`] values, one on each line. `driver/recording_format.rs`
//! defines [`Entry`].
//!
//! With the feature `serde`, `JsonLines` writes one JSON object a line, to a file or to any writer.
//! `ops::Library::program` turns a recording from a file into an executable program.

#[doc(hidden)]
pub use crate::command::{RecordedCommand, RecordedOp, RecordedProgram, RecordedValue};
pub use crate::driver::{Entry, Recorder, VERSION};

#[cfg(feature = "serde")]
mod json_lines;
#[cfg(feature = "serde")]
mod load;
#[cfg(feature = "serde")]
pub use {
    json_lines::JsonLines,
    load::{LoadProblem, LoadProgramError},
};
