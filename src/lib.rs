//! Dynamic tensor rematerialization (DTR): training in less memory than it would otherwise need,
//! with bit-identical results.
//!
//! Device memory is treated as a cache of tensors. When memory runs short, the runtime evicts
//! tensors, and recomputes them when they are needed again. The budget is a hard limit in bytes.
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
//! | [`prelude`] | the names that most programs use |
//! | [`Runtime`] | starts the worker thread that runs everything; new tensors, updates, counters |
//! | [`Tensor`] | a handle to a tensor, with ops as methods and operators; dropping the last handle deletes the tensor |
//! | [`autograd`], [`nn`], [`optim`], `data` | gradients, layers, optimizers, labelled images |
//! | `checkpoint` | networks and optimizers in files; also reads files from PyTorch |
//! | [`ops`] | each op with its shapes, gradient and kernels; [`CustomOp`](ops::CustomOp) for your own |
//! | [`evict`] | choosing tensors to evict: `learned` (the default of a runtime), `ancestors` (of an engine by itself), `dtr`, `dtr-eq`, `dtr-local`, `megengine`, `lru`, `largest`, `msps`, `megengine-article`, `random`, `none`, a formula, or your own |
//! | [`device`] | `cpu` (all ops, no system library), `cuda` (NVIDIA GPUs) and `sim` (bytes and costs only) |
//! | [`trace`] | recordings of programs |
//! | `tune` | finds a sufficient budget, and the best way to run in it, before the first step |
//! | [`error`] | all errors, by family |
//! | [`unstable`] | modules that may change in any version: engine, graph, command language, lab, planners, collectives, networks of papers |
//!
//! Features: `data` adds data sets. `serde` adds traces, snapshots and ops as text. `lab` adds the
//! lab. `cuda` adds NVIDIA GPUs. `mpi` adds ranks that are processes of an MPI job; building needs
//! an MPI implementation with `mpicc`. `cli`, a default feature, adds the program `remat`.
//!
//! # Errors
//!
//! Ops return at once. A call with operands of wrong types or shapes returns an error immediately.
//! A failure on the device is reported later, by the next read of a tensor that depends on the
//! failed op, or by [`Runtime::sync`]. [`Error`] has a variant for each family of errors.

#![cfg_attr(docsrs, feature(doc_cfg))]
// Each file that needs unsafe code, to pass bytes to kernels, allows unsafe code for itself.
#![deny(unsafe_code)]

pub mod autograd;
#[doc(hidden)]
pub mod bound;
mod capture;
#[cfg(feature = "serde")]
pub mod checkpoint;
#[doc(hidden)]
pub mod collective;
#[doc(hidden)]
pub mod command;
mod cost;
#[cfg(feature = "data")]
pub mod data;
pub mod device;
mod driver;
#[doc(hidden)]
pub mod engine;
pub mod error;
#[doc(hidden)]
pub mod event;
pub mod evict;
// `unstable` documents it.
#[cfg(any(feature = "data", feature = "serde"))]
#[doc(hidden)]
pub mod files;
#[doc(hidden)]
pub mod graph;
mod guard;
mod hint;
mod host;
mod interpreter;
#[cfg(feature = "lab")]
#[doc(hidden)]
pub mod lab;
mod layout;
pub mod nn;
pub mod op;
pub mod ops;
pub mod optim;
#[doc(hidden)]
pub mod program;
mod runtime;
#[doc(hidden)]
pub mod step;
mod store;
mod sync;
pub mod trace;
#[cfg(feature = "lab")]
pub mod tune;
pub mod unstable;

pub use cost::{CostModel, CostModelKind, ParseCostModelError, Run};
pub use driver::Plan;
pub use engine::{Dead, Listener, RecomputeLimit, Stats};
#[doc(hidden)]
pub use engine::{Engine, Settings};
pub use error::{Error, OutOfMemory};
pub use evict::PolicyKind;
pub use host::{Element, HostData, HostError, HostTensor, Literal, bf16, f16};
pub use layout::{DType, Dims, Layout, MAX_RANK, ParseDTypeError, broadcast_shapes};
pub use ops::{Op, Tensor, Tensors};
#[doc(hidden)]
pub use remat_memory as memory;
pub use remat_memory::{ByteSize, ParseByteSizeError};
pub use runtime::{Builder, Canceller, CostModelChoice, Pending, PolicyChoice, Runtime, Update};

/// Memory plans for a recognized step: the planners of [`remat_plan`], and captures, which turn
/// steps of recorded programs into graphs.
#[doc(hidden)]
pub mod plan {
    pub use crate::capture::CapturedProgram;
    pub use remat_plan::*;
}

/// Names that most programs use: `use remat::prelude::*`.
pub mod prelude {
    pub use crate::autograd::Tape;
    pub use crate::nn::{Mode, Module};
    pub use crate::{DType, Error, HostTensor, Runtime, Tensor};
}

/// README, whose program is compiled and run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
