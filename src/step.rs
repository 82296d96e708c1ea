//! A step of a program: which values its commands read and make, and when each of them is used.
//!
//! ```text
//! commands ──▶ reader.rs ──▶ what each command does to values ──▶ teller.rs     when a step uses what: future.rs
//!                                                             ├──▶ plan/capture  buffers, to be ordered and planned
//!                                                             └──▶ bound/demand  what may be away, and at what cost
//! ```
//!
//! A mark, and what it cuts off, is the engine's: `engine/step.rs`.
//!
//! A value is what a storage holds between two updates. Whether an update takes the storage over is said in one place, for
//! readers and for the engine: `in_place.rs`. Which steps repeat is found out while they run: `recognize.rs`.

mod future;
mod in_place;
mod reader;
pub(crate) mod recognize;
mod teller;

pub use future::StepFuture;
pub(crate) use future::{NEVER, StepFutureBuilder};
pub(crate) use in_place::takes_over;
pub(crate) use reader::{Deed, Reader, Values};
pub use recognize::KnownSteps;
pub use teller::StepTeller;
