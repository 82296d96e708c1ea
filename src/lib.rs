#![doc = include_str!("../README.md")]
#![forbid(clippy::undocumented_unsafe_blocks)]
#![deny(unsafe_code)]
#![warn(missing_docs, missing_debug_implementations)]

pub mod autograd;
mod bytes;
mod cost;
#[cfg(feature = "data")]
pub mod data;
pub mod device;
pub mod engine;
mod error;
mod host;
mod interpreter;
#[cfg(feature = "lab")]
pub mod lab;
mod layout;
pub mod memory;
pub mod nn;
pub mod op;
pub mod ops;
pub mod optim;
pub mod policy;
mod rng;
mod runtime;
pub mod trace;

pub use bytes::{ByteSize, ParseByteSizeError};
pub use cost::{CostModel, CostModelKind, ParseCostModelError, Run};
pub use engine::{Dead, Engine, OutOfMemory, Placement, Settings, Stats};
pub use error::Error;
pub use host::{ElementCountError, HostData, HostMemoryError, HostTensor};
pub use layout::{DType, Dims, Layout, MAX_RANK, broadcast_shapes};
pub use policy::PolicyKind;
pub use runtime::{Builder, Canceller, Ops, Pending, Runtime, Tensor, Tensors, Update};
