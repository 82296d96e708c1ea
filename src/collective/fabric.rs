//! Contract of the connection between ranks.

use std::fmt;

/// Connection of one rank to all ranks of a training.
///
/// Only one call is made at a time, on the thread that runs ops. Each call waits until all ranks
/// have made the same call, or until one of them is gone.
pub trait Fabric: fmt::Debug + Send + Sync + 'static {
    /// Number of this rank, below [`Fabric::size`].
    fn rank(&self) -> usize;

    /// Number of ranks.
    fn size(&self) -> usize;

    /// Number of this rank among the ranks on its machine, and the number of ranks on this machine.
    fn local(&self) -> (usize, usize);

    /// Sends piece `i` of `send` to rank `i`, and receives piece `i` of `receive` from rank `i`.
    /// Both slices have the same length on all ranks, and are cut into [`Fabric::size`] equal
    /// pieces.
    ///
    /// # Errors
    /// An error if a rank is gone, or the connection fails.
    fn all_to_all(&self, send: &[u8], receive: &mut [u8]) -> Result<(), FabricError>;

    /// Sends `send` to all ranks, and receives piece `i` of `receive` from rank `i`. `send` has the
    /// same length on all ranks; `receive` is [`Fabric::size`] times as long.
    ///
    /// # Errors
    /// Errors of [`Fabric::all_to_all`].
    fn all_gather(&self, send: &[u8], receive: &mut [u8]) -> Result<(), FabricError>;

    /// Copies the bytes of rank `root` to all ranks. `bytes` has the same length on all ranks.
    ///
    /// # Errors
    /// Errors of [`Fabric::all_to_all`].
    fn broadcast(&self, root: usize, bytes: &mut [u8]) -> Result<(), FabricError>;
}

/// Failure of a connection. All later calls fail, too.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FabricError(pub String);
