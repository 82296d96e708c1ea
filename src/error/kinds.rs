use crate::device::DeviceError;
use crate::graph::StorageKey;

/// Failure of the device in an op or while moving bytes, or a panic of a kernel. The outputs of the
/// op are lost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{op} failed on the device: {message}")]
pub struct DeviceFault {
    /// Op that was running.
    pub op: String,
    /// Message of the device.
    pub message: String,
    /// Whether the device itself ran out of memory.
    pub out_of_memory: bool,
}

impl DeviceFault {
    pub(crate) fn of(op: &str, error: &DeviceError) -> Self {
        let out_of_memory = error.is_out_of_memory();
        Self { op: op.to_owned(), message: error.to_string(), out_of_memory }
    }
}

/// Failure of code that a user gave to the runtime: ops, cost models, evictors, recorders, devices.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CallbackError {
    /// The code panicked.
    #[error("{what} panicked: {message}")]
    Panicked {
        /// Name of the code that was called.
        what: String,
        /// Message of the panic.
        message: String,
    },
    /// A cost model returned an invalid cost.
    #[error("the cost model `{model}` gives {op} a cost of {cost}; give a finite number from 0 up")]
    Cost {
        /// Name of the cost model.
        model: String,
        /// Op that was run.
        op: String,
        /// Cost that the model returned.
        cost: f64,
    },
    /// An evictor chose a storage that cannot be evicted.
    #[error(
        "the evictor chose storage {storage:?}, which is missing, pinned, or a leaf; choose one of `View::evictable`"
    )]
    Victim {
        /// Storage that the evictor chose.
        storage: StorageKey,
    },
}

/// Reason why evicted tensors were not regenerated.
///
/// ```
/// use remat::error::RegenerationError;
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("1MiB").interrupt_when(|| true).cpu()?;
/// let x = runtime.ones(&[2])?.exp()?;
/// runtime.drop_now(&x)?;
/// let Err(Error::Regeneration(error)) = runtime.get(&x) else { panic!("it was not evicted") };
/// assert_eq!(*error, RegenerationError::Cancelled);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RegenerationError {
    /// Recomputing cost more than [`RecomputeLimit::Multiple`](crate::RecomputeLimit::Multiple)
    /// allows.
    #[error(
        "recomputing costs {ratio:.2} times the work itself, above the recompute limit of {limit}: \
         raise the budget, or the limit"
    )]
    RecomputeLimit {
        /// Cost of repeated runs over cost of first runs.
        ratio: f64,
        /// Limit that the user set.
        limit: f64,
    },
    /// The total cost of recomputing exceeds what
    /// [`RecomputeLimit::Cost`](crate::RecomputeLimit::Cost) allows.
    #[error(
        "recomputing has cost {cost:.6}, above the recompute limit of {limit}: raise the budget, or the limit"
    )]
    RecomputeCost {
        /// Cost of repeated runs, in units of the cost model.
        cost: f64,
        /// Limit that the user set.
        limit: f64,
    },
    /// Regenerating the inputs of one command needs far more runs than the number of different ops.
    #[error(
        "regenerating evicted tensors ended after {runs} runs of {paths} ops, which cost more than {limit} times one \
         run of each op, the regeneration limit; raise the budget or the limit, or hold or commit() an intermediate \
         value"
    )]
    RegenerationLimit {
        /// Number of runs before the regeneration was given up.
        runs: usize,
        /// Number of different ops that ran, or were still to run.
        paths: usize,
        /// Limit that the user set.
        limit: f64,
    },
    /// A step reran many times as many ops as it has: memory is too short for the step.
    #[error(
        "this step has recomputed {runs} ops, more than {limit} times its own {ops} ops; raise the budget, or take a \
         smaller batch"
    )]
    StepLimit {
        /// Number of ops that ran again.
        runs: u64,
        /// Number of ops of the step.
        ops: u64,
        /// Limit on `runs`, in multiples of `ops`.
        limit: u64,
    },
    /// The user cancelled the command.
    #[error("cancelled while regenerating evicted tensors")]
    Cancelled,
}

/// Error: a handle or key cannot be used with the runtime or engine that got it.
///
/// ```
/// use remat::error::HandleError;
/// use remat::prelude::*;
///
/// let a = Runtime::builder().budget("1MiB").cpu()?;
/// let b = Runtime::builder().budget("1MiB").cpu()?;
/// let x = a.ones(&[2])?;
/// let Err(Error::Handle(error)) = b.get(&x) else { panic!("it is a tensor of `a`") };
/// assert!(matches!(*error, HandleError::Foreign { .. }));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandleError {
    /// The tensor of the key was deleted, or belongs to another engine.
    #[error("no such tensor: it was deleted, or belongs to another engine")]
    Unknown,
    /// The handle belongs to another runtime.
    #[error("{op}: input {input} is a tensor of another runtime; get() it there and put() it here")]
    Foreign {
        /// Op that the handle was given to.
        op: String,
        /// Position of the tensor among the op's inputs.
        input: usize,
    },
}

/// Error that concerns a whole runtime.
///
/// ```
/// use remat::error::RuntimeError;
/// use remat::prelude::*;
///
/// let Err(Error::Runtime(error)) = Runtime::builder().threads(0).cpu() else { panic!("none?") };
/// assert!(matches!(*error, RuntimeError::Settings(_)));
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// The settings are invalid or contradict each other.
    #[error("{0}")]
    Settings(String),
    /// The device could not be opened.
    #[error(transparent)]
    NoDevice(DeviceError),
    /// The worker thread has ended.
    #[error("the runtime has stopped: {why}")]
    Stopped {
        /// Reason why the thread ended.
        why: String,
    },
    /// A thread of the worker was about to wait for the worker, which would never end.
    #[error(
        "a listener, a cost model, a device or an op cannot wait for the runtime that calls it, because the runtime \
         answers only after the call; ask from another thread, or ask before the call"
    )]
    OwnThread,
    /// A forked process was about to wait for the worker, whose thread does not exist in a forked
    /// process.
    #[error(
        "this process was forked after the runtime was started, so the runtime's worker thread is missing; start a \
         runtime in this process"
    )]
    Forked,
    /// The recording could not be written.
    #[error("the recording could not be written: {0}")]
    Recording(std::io::Error),
}
