//! Memory known ahead: which buffers there will be and when, and where each is best placed.
//!
//! A step that repeats can be planned. [`Lifetimes`] says which buffers are alive when; a [`Planner`] gives each an
//! address; a [`Placement`] is what it answers, checked anew each time. Nothing here needs a runtime: a compiler that
//! knows its buffers can use this module alone.
//!
//! ```
//! use remat::plan::{Buffer, Lifetimes, Placement};
//!
//! let lifetimes = Lifetimes::new([Buffer::new(0, 2, 100), Buffer::new(1, 3, 50), Buffer::new(2, 4, 100)])?;
//! assert_eq!((lifetimes.load(), lifetimes.total()), (150, 250));
//! // The first and the last are never alive at once.
//! let placement = Placement::new(&lifetimes, vec![0, 100, 0])?;
//! assert_eq!(placement.bytes(), 150);
//! # Ok::<(), remat::plan::PlanError>(())
//! ```

mod lifetimes;
mod placement;
mod planner;
mod reuse;

pub use lifetimes::{Buffer, Change, Lifetimes};
pub use placement::{Placement, PlacementError};
pub use planner::{Limits, PlanError, Planned, Planner};
pub use reuse::{Answer, BestFit, Exact, First, Gaps, IntervalMove, Portfolio, Pushdown, nnvm};
