//! What planners have in common.

use std::time::{Duration, Instant};

use super::{Lifetimes, Placement, PlacementError};

/// A way to place buffers.
pub trait Planner {
    /// By which it is asked for, such as `two-level`.
    fn name(&self) -> String;

    /// An address for each buffer.
    ///
    /// # Errors
    ///
    /// More than it can place in reasonable time, or kinds of buffers that it does not know.
    fn plan(&self, lifetimes: &Lifetimes, limits: &Limits) -> Result<Planned, PlanError>;
}

/// How long a planner may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// When a planner that searches is to answer with the best that it has. One that takes n^2 time for n buffers, or more,
    /// gives up then; others do not look at it.
    pub until: Option<Instant>,
}

impl Limits {
    /// To answer after about `time`.
    #[must_use]
    pub fn within(time: Duration) -> Self {
        Self { until: Instant::now().checked_add(time) }
    }

    /// Until it is proven that nothing is better.
    #[must_use]
    pub fn none() -> Self {
        Self { until: None }
    }

    /// Whether it is time to answer.
    #[must_use]
    pub fn over(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }
}

/// What a planner found.
#[derive(Clone, Debug)]
pub struct Planned {
    /// An address for each buffer.
    pub placement: Placement,
    /// Whether no placement takes less: it takes no more than the load, or a search has tried all others.
    pub proven: bool,
}

impl Planned {
    /// The placement with these offsets, proven if it takes no more than the load.
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

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// Not alive for any instant.
    #[error("buffer {number} lives from {lower} to {upper}: it must end after it begins")]
    NeverAlive {
        /// Which buffer.
        number: usize,
        /// When it begins.
        lower: u64,
        /// When it ends.
        upper: u64,
    },
    /// Nothing that an address can be a multiple of.
    #[error("buffer {number} is to be aligned to {align}: that must be 1 or more")]
    Alignment {
        /// Which buffer.
        number: usize,
        /// What was asked for.
        align: u64,
    },
    /// A gap that no buffer can have.
    #[error("buffer {number} has a gap from {lower} to {upper}, {why}")]
    Gap {
        /// Which buffer.
        number: usize,
        /// When the gap begins.
        lower: u64,
        /// When it ends.
        upper: u64,
        /// The fault in it.
        why: &'static str,
    },
    /// More bytes than there are addresses.
    #[error("all buffers together have 2^64 bytes or more")]
    TooLarge,
    /// More than the planner can do in reasonable time.
    #[error("{planner} places {limit} buffers at most, and there are {buffers}")]
    TooMany {
        /// Which planner.
        planner: String,
        /// What it can do.
        limit: usize,
        /// What was asked of it.
        buffers: usize,
    },
    /// More pieces than the planner can do in reasonable time.
    #[error("{planner} places {limit} pieces at most, and gaps cut the buffers into {pieces}")]
    TooManyPieces {
        /// Which planner.
        planner: String,
        /// Most that it can do.
        limit: usize,
        /// Pieces that there are.
        pieces: usize,
    },
    /// Not done when it was time to answer.
    #[error(
        "{planner} was not done in time: give it longer, or take one that is quicker, such as {quicker}"
    )]
    TooLong {
        /// Which planner.
        planner: String,
        /// Another one.
        quicker: &'static str,
    },
    /// Buffers of a kind that the planner does not place: with colours, gaps, or bytes kept in gaps.
    #[error("{planner} does not know {what}")]
    Unknown {
        /// Which planner.
        planner: String,
        /// What the buffers have, such as "colours".
        what: &'static str,
    },
    /// An error in the planner: what it answered is no placement.
    #[error("an error in the planner: {0}")]
    Placement(#[from] PlacementError),
}
