//! Trains any Burn model under a memory budget. Results have the same bits as without a budget.

#![deny(unsafe_code)]
#![warn(missing_docs, missing_debug_implementations)]

mod backend;
mod behind;
mod builder;
mod custom;
mod device;
mod error;
mod form;
mod guard;
mod heap;
mod learn;
mod name;
mod op;
mod random;
mod router;
mod runner;
#[cfg(test)]
mod samples;
mod server;
mod session;
#[cfg(test)]
mod tests;
#[cfg(feature = "lab")]
mod tuner;
mod view;
mod work;

pub use builder::Builder;
pub use error::Error;
pub use guard::{Guard, Summary};
pub use remat;
#[cfg(feature = "lab")]
pub use tuner::{Tuned, Tuner};

use remat::ByteSize;
use std::fmt::Display;

/// Starts the description of a device with a memory budget. The budget is in bytes or a text such
/// as `"8GiB"`. The budget covers all tensors of the device: parameters, activations and gradients.
pub fn budget<T: TryInto<ByteSize, Error: Display>>(budget: T) -> Builder {
    Builder::new(budget)
}
