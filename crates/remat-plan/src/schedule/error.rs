//! Errors of schedules.

use crate::PlanError;

/// Reasons why a list of actions is not a valid [`RecomputeSchedule`](super::RecomputeSchedule), or
/// why no schedule was found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// The step has no op at this position.
    #[error("action {at} runs op {op}, but the step has no such op")]
    NoOp {
        /// Position of the action.
        at: usize,
        /// Position of the op.
        op: usize,
    },
    /// A buffer is not in memory when it is read or dropped, or is missing at the end although it
    /// must stay.
    #[error("buffer {buffer} is not resident at action {at}: run its op again first")]
    NotThere {
        /// Position of the action.
        at: usize,
        /// Number of the buffer.
        buffer: usize,
    },
    /// A dropped buffer cannot be made again with the same contents.
    #[error("action {at} evicts buffer {buffer}, which cannot be recomputed")]
    Lost {
        /// Position of the action.
        at: usize,
        /// Number of the buffer.
        buffer: usize,
    },
    /// An op runs again, but may run only once.
    #[error("action {at} runs op {op} again, which may run only once")]
    Once {
        /// Position of the action.
        at: usize,
        /// Position of the op.
        op: usize,
    },
    /// A repeated run would give other results than the first run.
    #[error("action {at} runs op {op} again, but a buffer of the op was updated since")]
    Changed {
        /// Position of the action.
        at: usize,
        /// Position of the op.
        op: usize,
    },
    /// An op runs before a predecessor.
    #[error("action {at} runs op {op}, before op {needed} has run")]
    Early {
        /// Position of the action.
        at: usize,
        /// Position of the op.
        op: usize,
        /// Position of the missing predecessor.
        needed: usize,
    },
    /// An op never runs.
    #[error("op {op} never runs")]
    Never {
        /// Position of the op.
        op: usize,
    },
    /// The rematerializer found no schedule whose load is within the budget.
    #[error(
        "{name} finds no schedule within {budget} bytes: the smallest found takes {least}, so give that budget or more"
    )]
    Budget {
        /// Name of the rematerializer.
        name: &'static str,
        /// Budget in bytes.
        budget: u64,
        /// Least load of the schedules found, in bytes.
        least: u64,
    },
    /// The lives and workspaces of the schedule add up to 2^64 bytes or more, so they cannot be
    /// planned.
    #[error(transparent)]
    Plan(#[from] PlanError),
}
