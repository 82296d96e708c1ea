//! Dynamic tensor rematerialization (DTR): training in less memory than it needs, with the same bits out.
//!
//! Device memory is a cache of tensors. What does not fit the budget is evicted, and recomputed when it is needed
//! again. The budget is a hard limit in bytes.
//!
//! ```
//! use remat::autograd::Tape;
//! use remat::{HostTensor, Ops, Runtime};
//!
//! let runtime = Runtime::builder().budget("1MiB").cpu()?;
//! let x = runtime.put(HostTensor::f32([2], vec![1.0, 2.0])?)?;
//! let tape = Tape::new(&runtime);
//! tape.watch(&x);
//! let loss = tape.mean(&tape.square(&x)?)?;
//! let gradients = tape.backward(&loss)?;
//! let dx = gradients.get(&x).expect("the loss depends on x");
//! assert_eq!(runtime.get(dx)?.as_f32(), Some(&[1.0, 2.0][..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Layers
//!
//! | module | what it is |
//! |---|---|
//! | [`Runtime`], [`Tensor`] | commands to a worker thread, and handles; dropping a handle deletes the tensor |
//! | [`Ops`] | the crate's ops as methods, on a [`Runtime`] or a [`Tape`](autograd::Tape) |
//! | [`autograd`], [`nn`], [`optim`], `data` | gradients, layers, SGD, labelled images |
//! | [`engine`] | the state machine: one thread, no clock; generic over the device and the ops |
//! | [`policy`] | what to evict: `dtr-eq` (default), `dtr`, `dtr-local`, `megengine`, `lru`, `largest`, `msps`, `random`, `none`, a formula, or your own |
//! | [`device`] | `cpu` (all ops, no system library), `cuda` (NVIDIA GPUs) and `sim` (bytes and costs only) |
//! | [`trace`], `lab` | recordings; replays, sweeps, and plots of them |
//! | [`memory`] | a best-fit arena over offsets, which can be used by itself |
//!
//! The feature `data` adds data sets, `serde` traces and snapshots as text, `lab` the lab, `cuda` NVIDIA GPUs, and
//! `cli`, a default, the program.
//!
//! # Errors
//!
//! Ops return at once. A failure on the device is reported by the next [`Runtime::get`] of a tensor that depends on
//! it, or by the next [`Runtime::sync`]; see [`Error`].

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

/// Its program is compiled and run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
