//! A step of a program: the values read and made by its commands, and the positions of all uses.
//!
//! ```text
//! commands ──▶ reader.rs ──▶ values per command ──▶ teller.rs      uses of values: future.rs
//!                                               ├──▶ plan/capture  buffers to order and place
//!                                               └──▶ bound/demand  evictable values and costs
//! ```
//!
//! The engine handles step marks, and cuts history at marks, in `engine/step.rs`.
//!
//! A value is the content of a storage between two updates. `in_place.rs` decides, for readers and
//! for the engine, whether an update takes over the storage of the old value. `recognize.rs`
//! recognizes repeated steps while they run.

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
