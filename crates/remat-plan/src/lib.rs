//! Plans of memory for a known step: the order of its ops, the ops to recompute, and the address of
//! each buffer.
//!
//! A [`Capture`] is a step as a value. An [`Order`] is a sequence of all ops of the step; [`order`]
//! finds orders that take less memory than the order of the program. A
//! [`RecomputeSchedule`](schedule::RecomputeSchedule) runs some ops a second time, and so takes
//! even less memory.
//!
//! [`Lifetimes`] say when each buffer is alive. A [`Planner`] gives each buffer an address. The
//! result is a [`Placement`], whose constructor checks that no two buffers overlap. [`named`] finds
//! a planner by name, and [`Instance`] reads lifetimes from a file. The crate needs no runtime, so
//! a compiler can use it alone.
//!
//! ```
//! use remat_plan::{Buffer, Lifetimes, Placement};
//!
//! let lifetimes = Lifetimes::new([Buffer::new(0, 2, 100), Buffer::new(1, 3, 50), Buffer::new(2, 4, 100)])?;
//! assert_eq!((lifetimes.load(), lifetimes.total()), (150, 250));
//! // The first and the last buffer are never alive at the same time.
//! let placement = Placement::new(&lifetimes, vec![0, 100, 0])?;
//! assert_eq!(placement.bytes(), 150);
//! # Ok::<(), remat_plan::PlanError>(())
//! ```

#![forbid(unsafe_code)]

mod capture;
mod csv;
#[cfg(feature = "serde")]
pub mod graph;
mod lifetimes;
pub mod order;
mod placement;
mod planner;
pub mod random;
mod registry;
mod reuse;
pub mod schedule;

pub use capture::{Capture, CaptureError, CapturedBuffer, CapturedOp, Class, Decoder, Difference};
pub use csv::{CsvError, Instance, Lives};
pub use lifetimes::{Buffer, Change, Gap, Lifetimes, Part};
pub use order::Order;
pub use placement::{Placement, PlacementError};
pub use planner::{Limits, PlanError, Planned, Planner};
pub use registry::{UnknownPlanner, all, named};
pub use reuse::{
    Answer, BestFit, BinaryBlock, Exact, First, Gaps, IntervalMove, MaxBlock, Portfolio, Pushdown,
    Take, TwoLevel, nnvm,
};

/// README, whose program is compiled and run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
