use crate::error::Error;
use std::fmt;
use std::path::PathBuf;

/// Reason why a checkpoint was not written or read.
///
/// ```
/// use remat::checkpoint::{Checkpoint, CheckpointError};
///
/// let error = Checkpoint::open("no-such-file.safetensors").unwrap_err();
/// assert!(matches!(error, CheckpointError::Io { .. }));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// A file that cannot be opened, read or written.
    #[error("{path}: {error}")]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// The cause.
        error: std::io::Error,
    },
    /// A file that is not a checkpoint, or is incomplete.
    #[error("{path}: {message}")]
    Format {
        /// Path of the file.
        path: PathBuf,
        /// Description of the fault.
        message: String,
    },
    /// A checkpoint of an unknown version.
    #[error(
        "{path} is a checkpoint of version {found}, but remat {} reads version {known}; use the version of remat \
         that wrote the file",
        env!("CARGO_PKG_VERSION")
    )]
    Version {
        /// Path of the file.
        path: PathBuf,
        /// Version of the file.
        found: String,
        /// The supported version.
        known: &'static str,
    },
    /// All tensors of the file and of the network that differ in name, type or shape.
    #[error("{path} is a checkpoint of another network: {}", misfits(.missing, .extra, .differing))]
    Tensors {
        /// Path of the file.
        path: PathBuf,
        /// Names of tensors that only the network has.
        missing: Vec<String>,
        /// Names of tensors that only the file has.
        extra: Vec<String>,
        /// Tensors that file and network both have, with different types or shapes.
        differing: Vec<Difference>,
    },
    /// A tensor or a setting with a wrong value.
    #[error("{path}: {what} is {found}, expected {expected}")]
    Differs {
        /// Path of the file.
        path: PathBuf,
        /// Name of the tensor or setting.
        what: String,
        /// Value in the file.
        found: String,
        /// Value that is required.
        expected: String,
    },
    /// The runtime failed.
    #[error(transparent)]
    Runtime(#[from] Error),
}

/// A tensor whose type or shape in the file differs from the network's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Name of the tensor.
    pub name: String,
    /// Type and shape in the file.
    pub found: String,
    /// Type and shape in the network.
    pub expected: String,
    /// Whether [`Checkpoint::convert`](super::Checkpoint::convert) would make the tensor loadable.
    /// True if only the type differs, and both types are floats.
    pub is_convertible: bool,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is {}, expected {}", self.name, self.found, self.expected)
    }
}

/// Text that lists the first tensors that differ, are missing or are superfluous, with the number
/// of further such tensors.
fn misfits(missing: &[String], extra: &[String], differing: &[Difference]) -> impl fmt::Display {
    const SHOWN: usize = 16;
    let list = |names: &[String], what: &str| {
        let first = names.iter().take(SHOWN).map(|name| format!("`{name}`"));
        let first = first.collect::<Vec<_>>().join(", ");
        let verb = if names.len() == 1 { "is" } else { "are" };
        match names.len() {
            0 => None,
            n if n > SHOWN => Some(format!("{first} and {} more {verb} {what}", n - SHOWN)),
            _ => Some(format!("{first} {verb} {what}")),
        }
    };
    let more = differing.len().saturating_sub(SHOWN);
    let differing = differing.iter().take(SHOWN).map(|difference| Some(difference.to_string()));
    let more = (more > 0).then(|| format!("{more} more have other types or shapes"));
    let names = [list(missing, "not in the file"), list(extra, "not in the network")];
    let all = differing.chain([more]).chain(names);
    all.flatten().collect::<Vec<_>>().join("; ")
}
