//! Errors of captures.

use std::sync::Arc;

/// Reasons why ops and buffers are not a valid [`Capture`](super::Capture).
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// An op uses a buffer that no earlier op makes, or a number that no buffer has.
    #[error(
        "op {op} (`{name}`) uses buffer {buffer}, which does not exist yet: make it by an earlier op, or set `before`"
    )]
    NotThere {
        /// Position of the op.
        op: usize,
        /// Name of the op.
        name: Arc<str>,
        /// Number of the buffer.
        buffer: usize,
    },
    /// An op makes a buffer that exists, or a number that no buffer has.
    #[error(
        "op {op} (`{name}`) makes buffer {buffer}, but this number is unknown, or the buffer exists already: make a \
         buffer that does not exist yet"
    )]
    MadeTwice {
        /// Position of the op.
        op: usize,
        /// Name of the op.
        name: Arc<str>,
        /// Number of the buffer.
        buffer: usize,
    },
    /// An op names a buffer more than once among its reads, makes and updates.
    #[error(
        "op {op} (`{name}`) names buffer {buffer} twice: name each buffer once (an updated buffer counts as read)"
    )]
    NamedTwice {
        /// Position of the op.
        op: usize,
        /// Name of the op.
        name: Arc<str>,
        /// Number of the buffer.
        buffer: usize,
    },
    /// A buffer neither exists before the step nor is made by an op.
    #[error("buffer {buffer} never exists: no op makes it, and it does not exist before the step")]
    NeverMade {
        /// Number of the buffer.
        buffer: usize,
    },
    /// An alignment is not a power of two.
    #[error("buffer {buffer} has an alignment of {align}: give a power of two")]
    Alignment {
        /// Number of the buffer.
        buffer: usize,
        /// Requested alignment.
        align: u64,
    },
    /// A cost is negative or not finite.
    #[error("op {op} costs {cost}: expected a finite number from 0 up")]
    Cost {
        /// Position of the op.
        op: usize,
        /// Cost of the op.
        cost: f64,
    },
    /// All buffers and workspaces together have 2^64 bytes or more.
    #[error("all buffers and workspaces together have 2^64 bytes or more")]
    TooLarge,
}
