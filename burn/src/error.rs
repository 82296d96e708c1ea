//! Errors of devices under a budget.

use burn::remote::ConnectError;

/// Error of a device under a budget.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Error of remat about the budget, a setting or an operation. The text says what to do.
    #[error(transparent)]
    Remat(#[from] remat::Error),
    /// Budget that does not pass its rehearsal.
    #[cfg(feature = "lab")]
    #[error("{}", too_small(*.budget, *.passing, *.percent, *.full, .error))]
    TooSmall {
        /// Bytes of the budget.
        budget: u64,
        /// Bytes of the smallest budget found that passes.
        passing: u64,
        /// `passing` in percent of `full`.
        percent: u32,
        /// Bytes that the program takes without evictions.
        full: u64,
        /// Error that ended the rehearsal.
        error: remat::Error,
    },
    /// Failure to start the server on this machine.
    #[error("the server on 127.0.0.1 could not be started: {0}")]
    Server(String),
    /// Failure of Burn to connect to the server.
    #[error("Burn could not connect to the server on 127.0.0.1: {0}")]
    Connect(String),
    /// Burn's server has closed the connection to this device.
    #[error(
        "the connection to this device is lost, and its tensors with it: Burn's server ends it where an operation panics \
         before it gets here, such as a custom operation that has no handler (`Builder::custom_op`), or a cast from one \
         integer type to another: {0}"
    )]
    Lost(String),
    /// All slots of the server are in use or have lost their connection.
    #[error(
        "{0} budgets of this backend are in use at once, or lost their connection, and there are no more: drop one"
    )]
    Full(usize),
    /// Tensor of a device that was dropped.
    #[error(
        "this tensor was on a device of remat-burn that was dropped, and is gone with it: keep the device while its \
         tensors are in use, or read them before"
    )]
    Dropped,
    /// Tensor that could not be moved from another device, because reading it there failed.
    #[error("this tensor could not be moved from another device: {0}")]
    Moved(String),
    /// Bug of this crate.
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
