//! The contract of planners: limits, results, errors.

use std::time::{Duration, Instant};

use super::{Lifetimes, Placement, PlacementError};

/// A method of placing buffers.
pub trait Planner {
    /// Name of the planner, as `named` takes names: `two-level`, for example.
    fn name(&self) -> String;

    /// Finds an address for each buffer.
    ///
    /// # Errors
    ///
    /// [`PlanError`] if there is more than the planner can place in reasonable time, or the planner
    /// does not know the kind of buffers.
    fn plan(&self, lifetimes: &Lifetimes, limits: &Limits) -> Result<Planned, PlanError>;
}

/// Time limit of a planner.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Time at which a planner that searches answers with the best placement so far. A planner that
    /// takes n^2 time for n buffers, or more, gives up then. Other planners ignore the limit.
    pub until: Option<Instant>,
}

impl Limits {
    /// Limit at about `time` from now.
    #[must_use]
    pub fn within(time: Duration) -> Self {
        Self { until: Instant::now().checked_add(time) }
    }

    /// No limit: a search runs until it has proven that no placement is better.
    #[must_use]
    pub fn none() -> Self {
        Self { until: None }
    }

    /// Whether the time is up.
    #[must_use]
    pub fn over(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }
}

/// Result of a planner.
#[derive(Clone, Debug)]
pub struct Planned {
    /// An address for each buffer.
    pub placement: Placement,
    /// Whether no placement takes less: the placement takes no more than the load, or a search has
    /// ruled out all others.
    pub proven: bool,
}

impl Planned {
    /// Checks the offsets. A placement that takes no more than the load is proven.
    ///
    /// # Errors
    ///
    /// The offsets are no placement: an error in the planner.
    pub fn new(lifetimes: &Lifetimes, offsets: Vec<u64>) -> Result<Self, PlanError> {
        let placement = Placement::new(lifetimes, offsets)?;
        let proven = placement.bytes() == lifetimes.load();
        Ok(Self { placement, proven })
    }
}

/// Errors of planners.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A buffer is not alive for any instant.
    #[error("buffer {number} lives from {lower} to {upper}: it must end after it begins")]
    NeverAlive {
        /// Number of the buffer.
        number: usize,
        /// First instant of the life.
        lower: u64,
        /// End of the life.
        upper: u64,
    },
    /// An alignment is 0.
    #[error("buffer {number} is to be aligned to {align}: that must be 1 or more")]
    Alignment {
        /// Number of the buffer.
        number: usize,
        /// Alignment asked for.
        align: u64,
    },
    /// A buffer cannot have its gap.
    #[error("buffer {number} has a gap from {lower} to {upper}, {why}")]
    Gap {
        /// Number of the buffer.
        number: usize,
        /// First instant of the gap.
        lower: u64,
        /// End of the gap.
        upper: u64,
        /// Fault in the gap.
        why: &'static str,
    },
    /// The bytes of all buffers together exceed all addresses.
    #[error("all buffers together have 2^64 bytes or more")]
    TooLarge,
    /// Too many buffers for the planner to place in reasonable time.
    #[error("{planner} places {limit} buffers at most, and there are {buffers}")]
    TooMany {
        /// Name of the planner.
        planner: String,
        /// Limit of the planner on buffers.
        limit: usize,
        /// Number of buffers given.
        buffers: usize,
    },
    /// Too many pieces for the planner to place in reasonable time.
    #[error("{planner} places {limit} pieces at most, and gaps cut the buffers into {pieces}")]
    TooManyPieces {
        /// Name of the planner.
        planner: String,
        /// Limit of the planner on pieces.
        limit: usize,
        /// Number of pieces given.
        pieces: usize,
    },
    /// The planner was not done when the time was up.
    #[error(
        "{planner} was not done in time: give it longer, or take one that is quicker, such as {quicker}"
    )]
    TooLong {
        /// Name of the planner.
        planner: String,
        /// Name of a quicker planner.
        quicker: &'static str,
    },
    /// The planner does not place buffers of this kind: with colours, gaps, or bytes kept in gaps.
    #[error("{planner} does not know {what}")]
    Unknown {
        /// Name of the planner.
        planner: String,
        /// Property of the buffers, such as "colours".
        what: &'static str,
    },
    /// The planner's answer is no placement: an error in the planner.
    #[error("an error in the planner: {0}")]
    Placement(#[from] PlacementError),
}
