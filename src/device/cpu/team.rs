//! The threads that share the work of each op.

use crate::device::DeviceError;
use rayon::{ThreadPool, ThreadPoolBuilder};

/// A pool of threads of its own. They end when it is dropped.
#[derive(Debug)]
pub(super) enum Team {
    /// The thread that made it is one of the pool, so work starts on it without being handed over.
    Member {
        /// Kept for its threads, which live as long as it.
        _pool: ThreadPool,
    },
    /// The thread that made it is not, so work is handed over and waited for: it has work of its own, or
    /// is in another pool already, and a thread never leaves its first one.
    Guest {
        /// Where the work is done.
        pool: ThreadPool,
    },
}

impl Team {
    /// A team of `threads` threads; the calling one is among them if `takes_caller` and it can be.
    pub(super) fn new(threads: usize, takes_caller: bool) -> Result<Self, DeviceError> {
        let builder = || {
            ThreadPoolBuilder::new().num_threads(threads).thread_name(|i| format!("remat-cpu-{i}"))
        };
        if takes_caller && rayon::current_thread_index().is_none() {
            let pool = builder().use_current_thread().build().map_err(refused)?;
            Ok(Self::Member { _pool: pool })
        } else {
            Ok(Self::Guest { pool: builder().build().map_err(refused)? })
        }
    }

    /// Does `work` on the team's threads; what it splits up is shared among them.
    pub(super) fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        match self {
            Self::Member { .. } => work(),
            Self::Guest { pool } => pool.install(work),
        }
    }
}

fn refused(error: rayon::ThreadPoolBuildError) -> DeviceError {
    DeviceError::new(format!("cannot start threads: {error}"))
}
