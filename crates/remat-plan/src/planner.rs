//! Interface of planners: the trait, time limits, results and errors.

use std::time::{Duration, Instant};

use super::{Lifetimes, Placement, PlacementError};

/// A method of placing buffers.
pub trait Planner {
    /// Name by which [`named`](super::named) finds the planner: `two-level`, for example.
    fn name(&self) -> String;

    /// Finds an address for each buffer.
    ///
    /// # Errors
    ///
    /// [`PlanError`] if there are more buffers than the planner can place in reasonable time, or if
    /// it does not support their colours or gaps.
    fn plan(&self, lifetimes: &Lifetimes, limits: &Limits) -> Result<Planned, PlanError>;
}

/// Time limit of a planner.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Time at which a planner must stop. At the time limit, a planner that searches returns its
    /// best placement so far. A planner that takes time n^2 or more for n buffers fails. All other
    /// planners ignore the limit.
    pub until: Option<Instant>,
}

impl Limits {
    /// Limit that ends `time` from now.
    #[must_use]
    pub fn within(time: Duration) -> Self {
        Self { until: Instant::now().checked_add(time) }
    }

    /// No limit: a search runs until it has proven that no placement has fewer bytes.
    #[must_use]
    pub fn none() -> Self {
        Self { until: None }
    }

    /// Whether the time limit has passed.
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
    /// Whether it is proven that no placement has fewer bytes: the bytes equal the load, or a
    /// search has excluded all smaller placements.
    pub proven: bool,
}

impl Planned {
    /// Checks the offsets. The placement is proven if its bytes equal the load.
    ///
    /// # Errors
    ///
    /// [`PlanError::Placement`] if the offsets are no valid placement: a bug of the planner.
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
    #[error("buffer {number} lives from {lower} to {upper}: the end must be after the beginning")]
    NeverAlive {
        /// Number of the buffer.
        number: usize,
        /// First instant of the life.
        lower: u64,
        /// First instant after the life.
        upper: u64,
    },
    /// An alignment is 0.
    #[error("buffer {number} has an alignment of {align}: give 1 or more")]
    Alignment {
        /// Number of the buffer.
        number: usize,
        /// Requested alignment.
        align: u64,
    },
    /// A gap of a buffer is not valid.
    #[error("buffer {number} has a gap from {lower} to {upper}, {why}")]
    Gap {
        /// Number of the buffer.
        number: usize,
        /// First instant of the gap.
        lower: u64,
        /// First instant after the gap.
        upper: u64,
        /// Description of the fault.
        why: &'static str,
    },
    /// All buffers together have 2^64 bytes or more.
    #[error("all buffers together have 2^64 bytes or more")]
    TooLarge,
    /// Too many buffers for the planner to place in reasonable time.
    #[error(
        "{planner} places at most {limit} buffers, but there are {buffers}: use another planner, such as pushdown"
    )]
    TooMany {
        /// Name of the planner.
        planner: String,
        /// Largest number of buffers that the planner places.
        limit: usize,
        /// Number of buffers given.
        buffers: usize,
    },
    /// Gaps cut the buffers into too many pieces for the planner to place in reasonable time.
    #[error(
        "{planner} places at most {limit} pieces, but gaps cut the buffers into {pieces}: use another planner"
    )]
    TooManyPieces {
        /// Name of the planner.
        planner: String,
        /// Largest number of pieces that the planner places.
        limit: usize,
        /// Number of pieces given.
        pieces: usize,
    },
    /// The planner had not ended when its time was up.
    #[error(
        "{planner} ran out of time: allow more time, or use a quicker planner, such as {quicker}"
    )]
    TooLong {
        /// Name of the planner.
        planner: String,
        /// Name of a quicker planner.
        quicker: &'static str,
    },
    /// The planner does not support a property of the buffers: colours, gaps, or bytes that are
    /// kept in gaps.
    #[error("{planner} does not support {what}")]
    Unknown {
        /// Name of the planner.
        planner: String,
        /// Property of the buffers, such as "colours".
        what: &'static str,
    },
    /// The result of the planner is no valid placement: a bug of the planner.
    #[error("the planner made an invalid placement, please report this: {0}")]
    Placement(#[from] PlacementError),
}
