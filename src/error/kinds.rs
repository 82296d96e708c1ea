use crate::device::DeviceError;
use crate::graph::StorageKey;

/// The device failed while it ran an op or moved bytes, or a kernel panicked. What the op makes is lost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{op} failed on the device: {message}")]
pub struct DeviceFault {
    /// What was running.
    pub op: String,
    /// What the device said.
    pub message: String,
    /// Whether it is for want of memory of its own.
    pub out_of_memory: bool,
}

impl DeviceFault {
    pub(crate) fn of(op: &str, error: &DeviceError) -> Self {
        let out_of_memory = error.is_out_of_memory();
        Self { op: op.to_owned(), message: error.to_string(), out_of_memory }
    }
}

/// Code that a user gave to the runtime: ops, cost models, evictors, recorders, devices.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CallbackError {
    /// It panicked.
    #[error("{what} panicked: {message}")]
    Panicked {
        /// What was called.
        what: String,
        /// What the panic said.
        message: String,
    },
    /// A cost model returned an invalid cost.
    #[error(
        "the cost model `{model}` says that {op} costs {cost}; a finite number from 0 up was expected"
    )]
    Cost {
        /// The cost model.
        model: String,
        /// What was run.
        op: String,
        /// Its answer.
        cost: f64,
    },
    /// An evictor chose a storage that cannot be evicted.
    #[error(
        "the evictor chose storage {storage:?}, which is not there, pinned, or a leaf; \
         one of `View::evictable` was expected"
    )]
    Victim {
        /// What it chose.
        storage: StorageKey,
    },
}

/// Why evicted tensors were not regenerated.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RegenerationError {
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
    /// Recomputing costs more in all than the limit that was set, in units of the cost model.
    #[error(
        "recomputing has cost {cost:.6}, above the recompute limit of {limit}: raise the budget, or the limit"
    )]
    RecomputeCost {
        /// Recomputed cost.
        cost: f64,
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
    /// A step runs far more ops again than it has: memory is just too short for it.
    #[error(
        "this step has run {runs} ops again, more than {limit} times its own {ops}: memory is too short for it; raise \
         the budget, or take a smaller batch"
    )]
    StepLimit {
        /// Ops that ran again.
        runs: u64,
        /// Ops of the step.
        ops: u64,
        /// How many times as many may run again.
        limit: u64,
    },
    /// It was cancelled.
    #[error("cancelled while regenerating evicted tensors")]
    Cancelled,
}

/// A handle or key that cannot be used here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandleError {
    /// A key whose tensor is gone, or that belongs to another engine.
    #[error("no such tensor: it was deleted, or belongs to another engine")]
    Unknown,
    /// A handle from another runtime.
    #[error("{op}: input {input} is a tensor of another runtime; get() it there and put() it here")]
    Foreign {
        /// What it was given to.
        op: String,
        /// Position among its inputs.
        input: usize,
    },
}

/// What is wrong with a runtime as a whole.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// Settings that make no sense.
    #[error("{0}")]
    Settings(String),
    /// A device that could not be opened.
    #[error(transparent)]
    NoDevice(DeviceError),
    /// The worker thread is gone.
    #[error("the runtime has stopped: {why}")]
    Stopped {
        /// What ended it.
        why: String,
    },
    /// A wait for the worker, on one of its own threads: it would never end.
    #[error(
        "a listener, a cost model, a device or an op cannot wait for the runtime that runs it: the answer would come after it; \
         ask from another thread, or keep what is needed"
    )]
    OwnThread,
    /// A wait for the worker in a process that was forked, which has no threads but the one that forked it.
    #[error(
        "the runtime's worker is not in this process: it was forked after the runtime was started; start a runtime in it"
    )]
    Forked,
    /// A recording could not be written.
    #[error("the recording could not be written: {0}")]
    Recording(std::io::Error),
}
