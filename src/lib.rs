//! Dynamic tensor rematerialization (DTR): training in less memory than it needs, with the same bits out.
//!
//! Device memory is a cache of tensors. What does not fit the budget is evicted, and recomputed when it is needed
//! again. The budget is a hard limit in bytes.
//!
//! ```
//! use remat::prelude::*;
//!
//! let runtime = Runtime::builder().budget("1MiB").cpu()?;
//! let mut x = runtime.tensor(&[2], vec![1.0, 2.0])?;
//! let tape = Tape::new(&runtime);
//! tape.watch(&mut x);
//! let loss = (x.square()? + 1.0)?.mean()?;
//! let gradients = tape.backward(&loss)?;
//! let dx = gradients.get(&x).expect("the loss depends on x");
//! assert_eq!(loss.item()?, 3.5);
//! assert_eq!(dx.to_vec::<f32>()?, [1.0, 2.0]);
//! # Ok::<(), Error>(())
//! ```
//!
//! # Layers
//!
//! | module | what it is |
//! |---|---|
//! | [`prelude`] | what programs begin with |
//! | [`Runtime`] | starts the worker thread that runs everything; new tensors, updates, counters |
//! | [`Tensor`] | a handle, with ops as methods and operators; dropping it deletes the tensor |
//! | [`autograd`], [`nn`], [`optim`], `data` | gradients, layers, optimizers, labelled images |
//! | `checkpoint` | networks and optimizers in files, PyTorch's among them |
//! | [`ops`] | each op with all there is to know about it; [`CustomOp`](ops::CustomOp) for your own |
//! | [`engine`] | the state machine: one thread, no clock; generic over the device and the ops |
//! | [`graph`] | its tables: storages, compute paths, and the edges between them |
//! | [`event`] | what happens in it, for every [`Listener`] |
//! | [`evict`] | what to evict: `learned` (the default of a runtime), `ancestors` (of an engine by itself), `dtr`, `dtr-eq`, `dtr-local`, `megengine`, `lru`, `largest`, `msps`, `megengine-article`, `random`, `none`, a formula, or your own |
//! | [`device`] | `cpu` (all ops, no system library), `cuda` (NVIDIA GPUs) and `sim` (bytes and costs only) |
//! | [`program`] | the command language: what a runtime is sent, a recording has, and the lab replays |
//! | [`trace`], `lab` | recordings; replays, sweeps, and plots of them |
//! | `tune` | a budget that passes, and the best way to run in it, found out before the first step |
//! | [`plan`] | buffers of a step known ahead, and where they are best placed |
//! | [`memory`] | a best-fit arena over offsets, which can be used by itself |
//! | [`error`] | what can go wrong, by family |
//!
//! The feature `data` adds data sets, `serde` traces, snapshots and ops as text, `lab` the lab, `cuda` NVIDIA GPUs, and
//! `cli`, a default, the program.
//!
//! # Errors
//!
//! Ops return at once. Operands that do not fit are an error there. A failure on the device is reported by the next read
//! of a tensor that depends on it, or by the next [`Runtime::sync`]. [`Error`] has a variant per family of errors.

#![forbid(clippy::undocumented_unsafe_blocks)]
#![deny(unsafe_code)]
#![warn(missing_docs, missing_debug_implementations)]

pub mod autograd;
pub mod bound;
mod bytes;
#[cfg(feature = "serde")]
pub mod checkpoint;
pub mod command;
mod cost;
#[cfg(feature = "data")]
pub mod data;
pub mod device;
mod driver;
pub mod engine;
pub mod error;
pub mod event;
pub mod evict;
pub mod graph;
mod guard;
mod hint;
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
pub mod plan;
pub mod program;
mod rng;
mod runtime;
pub mod step;
mod store;
mod sync;
pub mod trace;
#[cfg(feature = "lab")]
pub mod tune;

pub use bytes::{ByteSize, ParseByteSizeError};
pub use cost::{CostModel, CostModelKind, ParseCostModelError, Run};
pub use driver::Plan;
pub use engine::{Dead, Engine, Listener, RecomputeLimit, Settings, Stats};
pub use error::{Error, OutOfMemory};
pub use evict::PolicyKind;
pub use host::{Element, HostData, HostError, HostTensor, Literal, bf16, f16};
pub use layout::{DType, Dims, Layout, MAX_RANK, ParseDTypeError, broadcast_shapes};
pub use ops::{Op, Tensor, Tensors};
pub use runtime::{Builder, Canceller, CostModelChoice, Pending, PolicyChoice, Runtime, Update};

/// What programs begin with: `use remat::prelude::*`.
pub mod prelude {
    pub use crate::autograd::Tape;
    pub use crate::nn::{Mode, Module};
    pub use crate::{DType, Error, HostTensor, Runtime, Tensor};
}

/// Its program is compiled and run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
