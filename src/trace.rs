//! Recordings of runs: every command with its sizes and costs, which the module `lab` replays. A
//! recording also holds the evictions and regenerations between commands, so that the use of memory
//! over time can be drawn.
//!
//! A recording is a sequence of [`Entry`] values (`driver/recording_format.rs`), one on each line.
//!
//! With the feature `serde`, `JsonLines` writes one JSON object a line, to a file or to any writer.
//! `ops::Library::program` turns a recording that was read from a file into a program that can be
//! executed.

#[doc(hidden)]
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
};

// Documented in `unstable`.
#[cfg(feature = "serde")]
#[doc(hidden)]
pub use {read_whole::read_whole, unpacked::unpacked, whole_file::WholeFile};
