//! Why ops and buffers are no step.

use std::sync::Arc;

/// What does not hold of ops and buffers that were to be a [`Capture`](super::Capture).
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// Used before it is made, or there is none of this number.
    #[error(
        "op {op} (`{name}`) uses buffer {buffer}, which is not there: make it by an earlier op, or say that it is there before"
    )]
    NotThere {
        /// Which op.
        op: usize,
        /// Its name.
        name: Arc<str>,
        /// Which buffer.
        buffer: usize,
    },
    /// Made again, or there is none of this number.
    #[error(
        "op {op} (`{name}`) makes buffer {buffer}, which is there already or is no buffer: make a new one"
    )]
    MadeTwice {
        /// Which op.
        op: usize,
        /// Its name.
        name: Arc<str>,
        /// Which buffer.
        buffer: usize,
    },
    /// More than once among what one op reads, makes and updates.
    #[error(
        "op {op} (`{name}`) names buffer {buffer} twice: what it updates it also reads, without saying so"
    )]
    NamedTwice {
        /// Which op.
        op: usize,
        /// Its name.
        name: Arc<str>,
        /// Which buffer.
        buffer: usize,
    },
    /// Neither there before nor made.
    #[error("buffer {buffer} is never there: no op makes it, and it is not there before")]
    NeverMade {
        /// Which buffer.
        buffer: usize,
    },
    /// No power of two.
    #[error("buffer {buffer} is to be aligned to {align}: that must be a power of two")]
    Alignment {
        /// Which buffer.
        buffer: usize,
        /// What was asked for.
        align: u64,
    },
    /// Nothing that costs add up from.
    #[error("op {op} costs {cost}: a finite number from 0 up was expected")]
    Cost {
        /// Which op.
        op: usize,
        /// What it costs.
        cost: f64,
    },
    /// More bytes than there are addresses.
    #[error("all buffers and workspaces together have 2^64 bytes or more")]
    TooLarge,
}
