//! What can go wrong.

use burn::remote::ConnectError;

/// An error of a device under a budget.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The budget, a setting, or an operation: remat's own error, which says what to do.
    #[error(transparent)]
    Remat(#[from] remat::Error),
    /// A budget that a rehearsal did not pass.
    #[cfg(feature = "lab")]
    #[error("{}", too_small(*.budget, *.passing, *.percent, *.full, .error))]
    TooSmall {
        /// The budget, in bytes.
        budget: u64,
        /// Bytes of the smallest budget found that passes.
        passing: u64,
        /// That budget in percent of `full`.
        percent: u32,
        /// Bytes that the program takes without evictions.
        full: u64,
        /// How the rehearsal ended.
        error: remat::Error,
    },
    /// The server on this machine could not be started.
    #[error("the server on 127.0.0.1 could not be started: {0}")]
    Server(String),
    /// Burn could not connect to it.
    #[error("Burn could not connect to the server on 127.0.0.1: {0}")]
    Connect(String),
    /// Burn's server ended the connection to the device.
    #[error(
        "the connection to this device is lost, and its tensors with it: Burn's server ends it where an operation panics \
         before it gets here, such as a custom operation that has no handler (`Builder::custom_op`), or a cast from one \
         integer type to another: {0}"
    )]
    Lost(String),
    /// Every device that the server has is in use.
    #[error(
        "{0} budgets of this backend are in use at once, or lost their connection, and there are no more: drop one"
    )]
    Full(usize),
    /// A tensor of a device that is gone.
    #[error(
        "this tensor was on a device of remat-burn that was dropped, and is gone with it: keep the device while its \
         tensors are in use, or read them before"
    )]
    Dropped,
    /// A tensor that was moved from another device, where it could not be read.
    #[error("this tensor could not be moved from another device: {0}")]
    Moved(String),
    /// A bug of this crate.
    #[error("remat-burn panicked, and the tensors of this device are lost; please report it: {0}")]
    Panicked(String),
}

impl From<ConnectError> for Error {
    fn from(error: ConnectError) -> Self {
        Self::Connect(error.to_string())
    }
}

#[cfg(feature = "lab")]
fn too_small(budget: u64, passing: u64, percent: u32, full: u64, error: &remat::Error) -> String {
    let [budget, passing] = remat::ByteSize::apart(budget, passing);
    let full = remat::ByteSize(full);
    format!(
        "a budget of {budget} is too small; {percent} % ({passing}) passes\n  without evictions it takes {full}\n  {error}"
    )
}
