//! What can go wrong, and what to do about it.

use crate::device::DeviceError;
use crate::engine::OutOfMemory;
use crate::host::ElementCountError;
use crate::op::OpError;
use std::sync::Arc;

/// An error of the engine or the runtime. Cheap to clone: one failed op can be the reason of many failed tensors.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Inputs that do not fit the op. Nothing was done.
    #[error(transparent)]
    Op(#[from] OpError),
    /// Host data whose shape and number of elements do not agree.
    #[error(transparent)]
    ElementCount(#[from] ElementCountError),
    /// An op, an upload or a read needs more memory than can be freed.
    #[error(transparent)]
    OutOfMemory(Arc<OutOfMemory>),
    /// The device failed while running an op, or a kernel panicked.
    #[error("{op} failed on the device: {message}")]
    Device {
        /// What was running.
        op: Arc<str>,
        /// What the device said.
        message: Arc<str>,
    },
    /// A callback panicked: a method of an op, a cost model or a policy.
    #[error("{what} panicked: {message}")]
    Panicked {
        /// Which callback.
        what: Arc<str>,
        /// What the panic said.
        message: Arc<str>,
    },
    /// A cost model returned an invalid cost.
    #[error(
        "the cost model `{model}` says that {op} costs {cost}; a finite number from 0 up was expected"
    )]
    Cost {
        /// The cost model.
        model: Arc<str>,
        /// What was run.
        op: Arc<str>,
        /// Its answer.
        cost: f64,
    },
    /// A device that could not be opened.
    #[error(transparent)]
    NoDevice(DeviceError),
    /// Recomputing costs more than the limit that was set.
    #[error(
        "recomputing costs {ratio:.2} times the work itself, above the recompute limit of {limit}: \
         raise the budget, or the limit"
    )]
    RecomputeLimit {
        /// Recomputed cost over first-time cost.
        ratio: f64,
        /// The limit.
        limit: f64,
    },
    /// Regenerating what one command reads takes far more runs than there are ops to run.
    #[error(
        "bringing back what was evicted takes too many runs: {runs} of {paths} ops, which costs more than the \
         regeneration limit of {limit} times running each once; raise the budget or the limit, or keep or \
         commit a value on the way"
    )]
    RegenerationLimit {
        /// Runs until it was given up.
        runs: usize,
        /// Different ops among them, and those that were still to run.
        paths: usize,
        /// The limit.
        limit: f64,
    },
    /// A regeneration was cancelled.
    #[error("cancelled while regenerating evicted tensors")]
    Cancelled,
    /// A key whose tensor is gone, or that belongs to another engine.
    #[error("no such tensor: it was deleted, or belongs to another engine")]
    UnknownTensor,
    /// A handle from another runtime.
    #[error("{op}: input {input} is a tensor of another runtime; get() it there and put() it here")]
    ForeignTensor {
        /// What it was given to.
        op: String,
        /// Position among its inputs.
        input: usize,
    },
    /// A recording could not be written.
    #[error("the recording could not be written: {0}")]
    Recording(Arc<std::io::Error>),
    /// The runtime's worker thread is gone.
    #[error("the runtime has stopped: {why}")]
    Stopped {
        /// What ended it.
        why: Arc<str>,
    },
    /// Settings that make no sense.
    #[error("{0}")]
    Settings(String),
}

impl Error {
    /// Whether both are clones of one failure.
    pub(crate) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::OutOfMemory(a), Self::OutOfMemory(b)) => Arc::ptr_eq(a, b),
            (Self::Device { message: a, .. }, Self::Device { message: b, .. })
            | (Self::Panicked { message: a, .. }, Self::Panicked { message: b, .. })
            | (Self::Cost { op: a, .. }, Self::Cost { op: b, .. }) => Arc::ptr_eq(a, b),
            (Self::RecomputeLimit { ratio: a, .. }, Self::RecomputeLimit { ratio: b, .. }) => {
                a.to_bits() == b.to_bits()
            }
            (
                Self::RegenerationLimit { runs: a, paths: b, .. },
                Self::RegenerationLimit { runs: c, paths: d, .. },
            ) => (a, b) == (c, d),
            (Self::Cancelled, Self::Cancelled) => true,
            _ => false,
        }
    }

    pub(crate) fn panicked(what: String, message: String) -> Self {
        Self::Panicked { what: what.into(), message: message.into() }
    }

    pub(crate) fn device(op: &str, error: &DeviceError) -> Self {
        Self::Device { op: op.into(), message: Arc::clone(&error.0) }
    }
}
