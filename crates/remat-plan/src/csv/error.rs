//! Errors of files with lifetimes.

use std::io;

use super::{BLANK, LONGEST, MOST};
use crate::PlanError;

/// Start of a text, at most 40 characters, for an error message.
pub(super) fn excerpt(text: &str) -> String {
    let mut chars = text.chars();
    let start: String = chars.by_ref().take(40).collect();
    if chars.next().is_some() { start + "..." } else { start }
}

/// Reasons why a file cannot be read or written. Lines and columns are counted from 1.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CsvError {
    /// Reading or writing failed with an error of the operating system.
    #[error("the file cannot be read or written: {0}")]
    Io(#[from] io::Error),
    /// The file is empty.
    #[error("the file is empty: write id,lower,upper,size and a line for each buffer")]
    Empty,
    /// A line is longer than the limit for a line.
    #[error(
        "line {line} has {LONGEST} bytes or more, which is too long: write one line for each buffer"
    )]
    LongLine {
        /// Number of the line.
        line: usize,
    },
    /// Too many empty lines follow each other.
    #[error("line {line}: more than {BLANK} bytes of empty lines end here; remove empty lines")]
    Blank {
        /// Number of the line.
        line: usize,
    },
    /// The file has more buffers or gaps than the limit.
    #[error("line {line}: there are more than {MOST} {what}, the most that can be read")]
    TooMany {
        /// Number of the line.
        line: usize,
        /// "buffers" or "gaps".
        what: &'static str,
    },
    /// A line is no UTF-8 text.
    #[error("line {line} is not UTF-8 text")]
    NoText {
        /// Number of the line.
        line: usize,
    },
    /// A column is unknown, or occurs twice.
    #[error("line {line}, column {column}: {found:?}: {why}")]
    Column {
        /// Number of the line.
        line: usize,
        /// Number of the column.
        column: usize,
        /// Text of the name.
        found: String,
        /// Description of the fault.
        why: String,
    },
    /// A needed column is missing.
    #[error(
        "line {line} is {found:?}, which has no column {name}: id, lower, upper and size are needed"
    )]
    Missing {
        /// Number of the line.
        line: usize,
        /// Name of the missing column.
        name: &'static str,
        /// Text of the line.
        found: String,
    },
    /// The number of fields in a line is not the number of columns.
    #[error("line {line} has {found} fields, expected {expected}: {columns}")]
    Fields {
        /// Number of the line.
        line: usize,
        /// Number of fields in the line.
        found: usize,
        /// Number of columns.
        expected: usize,
        /// Names of the columns.
        columns: String,
    },
    /// A value is not valid in its column.
    #[error("line {line}, column {column} ({name}) is {found:?}: {why}")]
    Value {
        /// Number of the line.
        line: usize,
        /// Number of the column.
        column: usize,
        /// Name of the column.
        name: &'static str,
        /// Text of the value.
        found: String,
        /// Description of the fault.
        why: String,
    },
    /// The buffer of an earlier line has the same id.
    #[error(
        "line {line}, column {column} (id) is {id:?}: the buffer of line {first} has the same id"
    )]
    Twice {
        /// Number of the line.
        line: usize,
        /// Number of the column.
        column: usize,
        /// Line of the earlier buffer.
        first: usize,
        /// The id.
        id: String,
    },
    /// Each buffer is valid, but the buffers together are not.
    #[error(transparent)]
    Lifetimes(#[from] PlanError),
    /// A buffer has a property that the format cannot hold.
    #[error("buffer {id} has {what}, which the format cannot store")]
    NoPlace {
        /// Id of the buffer.
        id: String,
        /// Name of the property.
        what: &'static str,
    },
    /// The number of offsets in the placement is not the number of buffers.
    #[error("the placement has {offsets} offsets, but there are {buffers} buffers")]
    Count {
        /// Number of offsets.
        offsets: usize,
        /// Number of buffers.
        buffers: usize,
    },
    /// The number of ids is not the number of buffers.
    #[error("there are {ids} ids, but {buffers} buffers")]
    Ids {
        /// Number of ids.
        ids: usize,
        /// Number of buffers.
        buffers: usize,
    },
    /// An id cannot be written in the format.
    #[error("{id:?} is not a valid id: remove commas, line ends, and spaces at both ends")]
    Id {
        /// Text of the id.
        id: String,
    },
    /// Two buffers have the same id.
    #[error("two buffers have the id {id:?}")]
    Same {
        /// The id.
        id: String,
    },
}
