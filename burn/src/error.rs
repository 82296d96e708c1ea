//! Errors of devices under a budget.

use burn::remote::ConnectError;

/// Error of a device under a budget.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Error of remat about the budget, a setting or an operation. The message states a remedy.
    #[error(transparent)]
    Remat(#[from] remat::Error),
    /// Budget that is too small for the rehearsed program.
    #[cfg(feature = "lab")]
    #[error("{}", too_small(*.budget, *.passing, *.percent, *.full, .error))]
    TooSmall {
        /// Bytes of the budget.
        budget: u64,
        /// Bytes of the smallest sufficient budget found.
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
        "the connection to this device is lost, and the device's tensors with it; Burn's server ends the connection \
         if it panics in an operation before remat-burn sees the operation, such as a custom operation without a \
         handler (`Builder::custom_op`), or a cast from one integer type to another: {0}"
    )]
    Lost(String),
    /// All slots of the server are in use or have lost their connection.
    #[error(
        "{0} budgets of this backend are in use or lost their connection, and more are not supported: drop one"
    )]
    Full(usize),
    /// Tensor of a device that was dropped.
    #[error(
        "this tensor was lost when its device of remat-burn was dropped: keep the device while its tensors are in \
         use, or read the tensors before"
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
        "a budget of {budget} is too small; {percent} % ({passing}) passes\n  without evictions the program takes \
         {full}\n  {error}"
    )
}
