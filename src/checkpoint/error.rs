use crate::error::Error;
use std::fmt;
use std::path::PathBuf;

/// Why a checkpoint was not written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// A file that cannot be opened, read or written.
    #[error("{path}: {error}")]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// A file that is no checkpoint, or not a whole one.
    #[error("{path}: {message}")]
    Format {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// A checkpoint of a version that this one does not know.
    #[error(
        "{path} is a checkpoint of version {found}, and this is remat {}, which reads version {known}; \
         use the remat that wrote it",
        env!("CARGO_PKG_VERSION")
    )]
    Version {
        /// Which.
        path: PathBuf,
        /// Its version.
        found: String,
        /// The one that is known.
        known: &'static str,
    },
    /// Tensors that do not fit: all of them.
    #[error("{path} is of another network: {}", misfits(.missing, .extra, .differing))]
    Tensors {
        /// Which.
        path: PathBuf,
        /// Names in the network alone.
        missing: Vec<String>,
        /// Names in the file alone.
        extra: Vec<String>,
        /// Tensors in both, of other types or shapes.
        differing: Vec<Difference>,
    },
    /// A tensor, or a setting, that is not what it has to be.
    #[error("{path}: {what} is {found}, expected {expected}")]
    Differs {
        /// Which.
        path: PathBuf,
        /// Of what.
        what: String,
        /// What the file has.
        found: String,
        /// What it has to be.
        expected: String,
    },
    /// The runtime failed.
    #[error(transparent)]
    Runtime(#[from] Error),
}

/// A tensor of a file that is not what a network has under its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Which.
    pub name: String,
    /// Type and shape in the file.
    pub found: String,
    /// Type and shape in the network.
    pub expected: String,
    /// Whether [`Checkpoint::convert`](super::Checkpoint::convert) would help.
    pub is_convertible: bool,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is {}, expected {}", self.name, self.found, self.expected)
    }
}

/// The first of each kind, and how many more there are.
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
    let more = (more > 0).then(|| format!("{more} more are of other types or shapes"));
    let names = [list(missing, "not in the file"), list(extra, "not in the network")];
    let all = differing.chain([more]).chain(names);
    all.flatten().collect::<Vec<_>>().join("; ")
}
