//! Errors of graph files.

use std::fmt;
use std::io;

use super::{FORMAT, VERSION};
use crate::CaptureError;

/// Start of a text, at most 40 characters, for an error message.
pub(super) fn excerpt(text: &str) -> String {
    let mut chars = text.chars();
    let start: String = chars.by_ref().take(40).collect();
    if chars.next().is_some() { start + "..." } else { start }
}

/// Role in which an op names a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The op reads the tensor.
    Input,
    /// The op makes the tensor.
    Output,
    /// The op reads and overwrites the tensor.
    Update,
    /// The tensor is in an in-place pair, as the input or the output.
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

/// Reasons why a file is not a valid graph, or a graph is not a valid step. Ops and tensors are
/// counted from 0.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// Reading or writing failed with an error of the operating system.
    #[error("the graph cannot be read or written: {0}")]
    Io(#[from] io::Error),
    /// The file has more bytes than a graph may have.
    #[error("the graph has more than {limit} bytes, the most that can be read")]
    TooLong {
        /// Limit on the bytes.
        limit: u64,
    },
    /// The text is not JSON, or the JSON does not have the form of a graph.
    #[error("the graph is invalid: {0}")]
    Json(#[from] serde_json::Error),
    /// The file is of another format.
    #[error("format is {found:?}: expected {FORMAT:?}")]
    Format {
        /// Value of `format` in the file.
        found: String,
    },
    /// The file is of another version of the format.
    #[error("version is {found}: this program reads version {VERSION}")]
    Version {
        /// Value of `version` in the file.
        found: u32,
    },
    /// A tensor has an invalid name.
    #[error(
        "tensor {number} is called {tensor:?}: expected a name without commas, line ends, and spaces at both ends"
    )]
    Name {
        /// Number of the tensor.
        number: usize,
        /// Name of the tensor.
        tensor: String,
    },
    /// Two tensors have the same name.
    #[error("two tensors are called {tensor:?}: names must differ")]
    SameName {
        /// Name of the tensors.
        tensor: String,
    },
    /// An alignment is not a power of two.
    #[error("tensor {tensor:?}: alignment is {alignment}: expected a power of two")]
    Alignment {
        /// Name of the tensor.
        tensor: String,
        /// Requested alignment.
        alignment: u64,
    },
    /// An op names a tensor in a role that the tensor cannot have.
    #[error("op {op} ({name:?}): {role}: {tensor:?}: {why}")]
    Operand {
        /// Position of the op.
        op: usize,
        /// Name of the op.
        name: String,
        /// Role of the tensor.
        role: Role,
        /// Name of the tensor.
        tensor: String,
        /// Description of the fault.
        why: &'static str,
    },
    /// A tensor neither exists before the step nor is made by an op.
    #[error(
        "tensor {tensor:?} never exists: no op makes it, and it does not exist before the step"
    )]
    NeverMade {
        /// Name of the tensor.
        tensor: String,
    },
    /// A cost is negative or not finite.
    #[error("op {op} ({name:?}): cost is {cost}: expected a finite number from 0 up")]
    Cost {
        /// Position of the op.
        op: usize,
        /// Name of the op.
        name: String,
        /// Cost of the op.
        cost: f64,
    },
    /// Each tensor and op is valid, but the step as a whole is not.
    #[error(transparent)]
    Capture(CaptureError),
}
