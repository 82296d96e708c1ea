//! Errors of schedules.

use super::super::PlanError;

/// Reasons why actions are no [`RecomputeSchedule`](super::RecomputeSchedule), or why none was
/// found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// The step has no op of this position.
    #[error("action {at} runs op {op}, and the step has no such op")]
    NoOp {
        /// Position of the action.
        at: usize,
        /// Position of the op.
        op: usize,
    },
    /// A buffer is read, dropped, or wanted at the end, and is not in memory.
    #[error("buffer {buffer} is not there at action {at}: run the op again that makes it")]
    NotThere {
        /// Position of the action.
        at: usize,
        /// Number of the buffer.
        buffer: usize,
    },
    /// A dropped buffer cannot be made again as before.
    #[error("action {at} drops buffer {buffer}, which nothing makes again as it is")]
    Lost {
        /// Position of the action.
        at: usize,
        /// Number of the buffer.
        buffer: usize,
    },
    /// An op runs again, but may run only once.
    #[error("action {at} runs op {op} again, which may run once only")]
    Once {
        /// Position of the action.
        at: usize,
        /// Position of the op.
        op: usize,
    },
    /// A repeated run would give other results than the first run.
    #[error("action {at} runs op {op} again, and what it reads or makes was updated meanwhile")]
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
    /// No schedule fits the budget.
    #[error("{name} finds no schedule within {budget} bytes: the smallest takes {least}")]
    Budget {
        /// Name of the rematerializer.
        name: &'static str,
        /// Budget in bytes.
        budget: u64,
        /// Least load of the schedules found, in bytes.
        least: u64,
    },
    /// Lifetimes for a planner cannot be made from the schedule, because they have 2^64 bytes or
    /// more.
    #[error(transparent)]
    Plan(#[from] PlanError),
}
