//! Why a file of buffers is not read or written.

use std::io;

use super::{BLANK, LONGEST, MOST};
use crate::plan::PlanError;

/// Start of a text, as much as an error can show.
pub(super) fn excerpt(text: &str) -> String {
    let mut chars = text.chars();
    let start: String = chars.by_ref().take(40).collect();
    if chars.next().is_some() { start + "..." } else { start }
}

/// Why a file is not read or written. Lines and columns count from 1.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CsvError {
    /// An error of the system.
    #[error("the file cannot be read or written: {0}")]
    Io(#[from] io::Error),
    /// Nothing is in it.
    #[error("the file is empty: write id,lower,upper,size and a line for each buffer")]
    Empty,
    /// Too long for a buffer.
    #[error("line {line} has {LONGEST} bytes or more: no line of a buffer has")]
    LongLine {
        /// Which line.
        line: usize,
    },
    /// Nothing for too long.
    #[error("line {line}: there are more than {BLANK} bytes without a buffer")]
    Blank {
        /// Which line.
        line: usize,
    },
    /// More than can be planned.
    #[error("line {line}: there are more than {MOST} {what}, which is as many as are read")]
    TooMany {
        /// Which line.
        line: usize,
        /// Buffers or gaps.
        what: &'static str,
    },
    /// No UTF-8.
    #[error("line {line} is no UTF-8 text")]
    NoText {
        /// Which line.
        line: usize,
    },
    /// A column that is not known, or is there twice.
    #[error("line {line}, column {column}: {found:?}: {why}")]
    Column {
        /// Which line.
        line: usize,
        /// Which column.
        column: usize,
        /// The text that is there.
        found: String,
        /// The fault in it.
        why: String,
    },
    /// A column that is needed.
    #[error(
        "line {line} is {found:?}, which has no column {name}: id, lower, upper and size are needed"
    )]
    Missing {
        /// Which line.
        line: usize,
        /// Which column.
        name: &'static str,
        /// The text that is there.
        found: String,
    },
    /// More or fewer fields.
    #[error("line {line} has {found} fields: it should have {expected}, {columns}")]
    Fields {
        /// Which line.
        line: usize,
        /// How many are there.
        found: usize,
        /// How many should be.
        expected: usize,
        /// Names of the columns.
        columns: String,
    },
    /// No value that the column can have.
    #[error("line {line}, column {column} ({name}) is {found:?}: {why}")]
    Value {
        /// Which line.
        line: usize,
        /// Which column.
        column: usize,
        /// Its name.
        name: &'static str,
        /// The text that is there.
        found: String,
        /// The fault in it.
        why: String,
    },
    /// An id that another buffer has.
    #[error(
        "line {line}, column {column} (id) is {id:?}: the buffer of line {first} has that id already"
    )]
    Twice {
        /// Which line.
        line: usize,
        /// Which column.
        column: usize,
        /// Where the id was seen first.
        first: usize,
        /// The id.
        id: String,
    },
    /// All are good, but not together.
    #[error(transparent)]
    Lifetimes(#[from] PlanError),
    /// More than the format can say.
    #[error("buffer {id} has {what}: the format has no place for that")]
    NoPlace {
        /// Which buffer.
        id: String,
        /// The property that has no place.
        what: &'static str,
    },
    /// A placement of other lifetimes.
    #[error("the placement has {offsets} offsets, and there are {buffers} buffers")]
    Count {
        /// How many offsets there are.
        offsets: usize,
        /// How many buffers there are.
        buffers: usize,
    },
    /// Ids of other lifetimes.
    #[error("there are {ids} ids, and {buffers} buffers")]
    Ids {
        /// How many ids there are.
        ids: usize,
        /// How many buffers there are.
        buffers: usize,
    },
    /// One that a file cannot have.
    #[error("{id:?} is no id: a comma or a line's end is in it, or there are spaces around it")]
    Id {
        /// Which.
        id: String,
    },
    /// Two buffers of one id.
    #[error("two buffers have the id {id:?}")]
    Same {
        /// The id.
        id: String,
    },
}
