//! The threads that share the work of each op.

use super::MAX_THREADS;
use crate::device::DeviceError;
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{ThreadPool, ThreadPoolBuilder};
use std::sync::Arc;

/// Threads that share the work of each op. Clones are the same team; its threads have ended once the last one is
/// dropped.
///
/// A thread of the team starts work on it at once; any other hands it over and waits. So whoever runs many small
/// ops does that from within:
///
/// ```
/// use remat::device::Device;
/// use remat::device::cpu::{Cpu, Team};
///
/// let team = Team::new(Some(2))?;
/// let mut device = Cpu::<remat::Op>::of(&team, 1 << 20)?;
/// team.run(|| device.copy(0, 256, 256))?; // .. and all else that is to be done with it
/// # Ok::<(), remat::device::DeviceError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Team(Arc<Members>);

#[derive(Debug)]
struct Members {
    /// `Some` until dropped.
    pool: Option<ThreadPool>,
    threads: Vec<JoinHandle<()>>,
}

impl Team {
    /// So many threads, or as many as the system offers.
    ///
    /// # Errors
    /// If there are none or more than [`MAX_THREADS`], or the system does not give as many.
    pub fn new(threads: Option<usize>) -> Result<Self, DeviceError> {
        let count = threads.unwrap_or_else(|| {
            thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS)
        });
        if !(1..=MAX_THREADS).contains(&count) {
            return Err(DeviceError::new(format!(
                "cpu: {count} threads, expected between 1 and {MAX_THREADS}"
            )));
        }
        let mut members = Members { pool: None, threads: Vec::with_capacity(count) };
        let pool = ThreadPoolBuilder::new()
            .num_threads(count)
            .spawn_handler(|thread| {
                let named = thread::Builder::new().name(format!("remat-cpu-{}", thread.index()));
                members.threads.push(named.spawn(|| thread.run())?);
                Ok(())
            })
            .build();
        // Those that were started end with `members`, if not all were.
        members.pool = Some(pool.map_err(|error| {
            DeviceError::new(format!("cpu: cannot start {count} threads: {error}; give fewer"))
        })?);
        Ok(Self(Arc::new(members)))
    }

    /// How many threads there are.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.0.threads.len()
    }

    /// Does `work` on each of the threads.
    pub(crate) fn on_each(&self, work: impl Fn() + Sync) {
        self.0.pool.as_ref().expect("until dropped").broadcast(|_| work());
    }

    /// Does `work` on one of the threads, and returns what it returns. What it splits up, all of them share.
    pub fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        self.0.pool.as_ref().expect("until dropped").install(work)
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        // They end when they see this, which nobody waits for.
        drop(self.pool.take());
        // One of them may be the one that drops the team.
        let this = thread::current().id();
        for thread in self.threads.drain(..).filter(|thread| thread.thread().id() != this) {
            // A thread of the pool does not panic: it hands panics to whoever waits for the work.
            let _ = thread.join();
        }
    }
}
