//! Why there is no schedule.

use super::super::PlanError;

/// What does not hold of actions that were to be a [`RecomputeSchedule`](super::RecomputeSchedule), or why none was found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// None of this number.
    #[error("action {at} runs op {op}, and the step has no such op")]
    NoOp {
        /// Which action.
        at: usize,
        /// Which op.
        op: usize,
    },
    /// Read, dropped, or wanted at the end, and not there.
    #[error("buffer {buffer} is not there at action {at}: run the op again that makes it")]
    NotThere {
        /// Which action.
        at: usize,
        /// Which buffer.
        buffer: usize,
    },
    /// Nothing makes it again.
    #[error("action {at} drops buffer {buffer}, which nothing makes again as it is")]
    Lost {
        /// Which action.
        at: usize,
        /// Which buffer.
        buffer: usize,
    },
    /// A second run, of what may run once.
    #[error("action {at} runs op {op} again, which may run once only")]
    Once {
        /// Which action.
        at: usize,
        /// Which op.
        op: usize,
    },
    /// A second run that would not do what the first did.
    #[error("action {at} runs op {op} again, and what it reads or makes was updated meanwhile")]
    Changed {
        /// Which action.
        at: usize,
        /// Which op.
        op: usize,
    },
    /// A first run before another that it needs.
    #[error("action {at} runs op {op}, before op {needed} has run")]
    Early {
        /// Which action.
        at: usize,
        /// Which op.
        op: usize,
        /// What should have run.
        needed: usize,
    },
    /// An op without a run.
    #[error("op {op} never runs")]
    Never {
        /// Which op.
        op: usize,
    },
    /// No schedule is small enough.
    #[error("{name} finds nothing within {budget} bytes: the best takes {least}")]
    Budget {
        /// Which rematerializer.
        name: &'static str,
        /// What there is.
        budget: u64,
        /// What it would take.
        least: u64,
    },
    /// No lifetimes.
    #[error(transparent)]
    Plan(#[from] PlanError),
}
