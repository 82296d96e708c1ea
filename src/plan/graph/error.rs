//! Why a file is no graph.

use std::fmt;
use std::io;

use super::{FORMAT, VERSION};
use crate::plan::CaptureError;

/// Start of a text, as much as an error can show.
pub(super) fn excerpt(text: &str) -> String {
    let mut chars = text.chars();
    let start: String = chars.by_ref().take(40).collect();
    if chars.next().is_some() { start + "..." } else { start }
}

/// Role in which an op names a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A tensor that it reads.
    Input,
    /// A tensor that it makes.
    Output,
    /// A tensor that it reads and writes over.
    Update,
    /// One of a pair, which may be written over or be written there.
    InPlace,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Input => "inputs",
            Self::Output => "outputs",
            Self::Update => "updates",
            Self::InPlace => "in_place",
        })
    }
}

/// Why a file is no graph, or a graph no step. Ops and tensors count from 0.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// An error of the system.
    #[error("the graph cannot be read or written: {0}")]
    Io(#[from] io::Error),
    /// More than a graph has.
    #[error("the graph has more than {limit} bytes, which is as many as are read")]
    TooLong {
        /// Bytes that are read at most.
        limit: u64,
    },
    /// Not JSON, or not that of a graph.
    #[error("the graph is not as expected: {0}")]
    Json(#[from] serde_json::Error),
    /// A file of another kind.
    #[error("format is {found:?}: {FORMAT:?} was expected")]
    Format {
        /// The value that is there.
        found: String,
    },
    /// A file of a later program.
    #[error("version is {found}: this program reads version {VERSION}")]
    Version {
        /// The value that is there.
        found: u32,
    },
    /// A name that no tensor can have.
    #[error(
        "tensor {number} is called {tensor:?}: a name without commas, line ends and spaces around it was expected"
    )]
    Name {
        /// Which tensor.
        number: usize,
        /// Its name.
        tensor: String,
    },
    /// Two of one name.
    #[error("tensor {tensor:?} is there twice: names must differ")]
    SameName {
        /// The name.
        tensor: String,
    },
    /// No power of two.
    #[error("tensor {tensor:?}: alignment is {alignment}: a power of two was expected")]
    Alignment {
        /// Which tensor.
        tensor: String,
        /// The alignment that was asked for.
        alignment: u64,
    },
    /// A tensor that an op cannot name so.
    #[error("op {op} ({name:?}): {role}: {tensor:?}: {why}")]
    Operand {
        /// Which op.
        op: usize,
        /// Its name.
        name: String,
        /// Its role in the op.
        role: Role,
        /// Which tensor.
        tensor: String,
        /// The fault in it.
        why: &'static str,
    },
    /// Neither there before nor made.
    #[error("tensor {tensor:?} is never there: no op makes it, and it is not there before")]
    NeverMade {
        /// Which tensor.
        tensor: String,
    },
    /// Nothing that costs add up from.
    #[error("op {op} ({name:?}): cost is {cost}: a finite number from 0 up was expected")]
    Cost {
        /// Which op.
        op: usize,
        /// Its name.
        name: String,
        /// Its cost.
        cost: f64,
    },
    /// All are good, but not together.
    #[error(transparent)]
    Capture(CaptureError),
}
