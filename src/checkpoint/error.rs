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
    /// Names that are in the network and not in the file, or the other way round.
    #[error("{path} is of another network: {}", names(.missing, .extra))]
    Names {
        /// Which.
        path: PathBuf,
        /// In the network alone.
        missing: Vec<String>,
        /// In the file alone.
        extra: Vec<String>,
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

/// The first few, and how many more there are.
fn names(missing: &[String], extra: &[String]) -> impl fmt::Display {
    const SHOWN: usize = 4;
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
    let both = [list(missing, "not in the file"), list(extra, "not in the network")];
    both.into_iter().flatten().collect::<Vec<_>>().join("; ")
}
