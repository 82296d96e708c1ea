//! Threads that share the work of each op.

use super::MAX_THREADS;
use crate::device::DeviceError;
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{ThreadPool, ThreadPoolBuilder};
use std::sync::Arc;

/// A team of threads that share the work of each op. All clones of a `Team` refer to one team. The
/// threads end when the last clone is dropped.
///
/// Work that a thread of the team starts begins at once. Any other thread passes its work to the
/// team, and waits for the result. A caller that runs many small ops should therefore run the ops
/// on a thread of the team:
///
/// ```
/// use remat::device::Device;
/// use remat::device::cpu::Cpu;
/// use remat::unstable::device::cpu::Team;
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
    /// `Some` until the members are dropped.
    pool: Option<ThreadPool>,
    threads: Vec<JoinHandle<()>>,
}

impl Team {
    /// Starts `threads` threads. With `None`, starts as many threads as the system offers.
    ///
    /// # Errors
    /// Fails if the number is 0 or more than [`MAX_THREADS`], or if the system does not start this
    /// number of threads.
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
        // If the system did not start all threads, dropping `members` ends the threads that were
        // started.
        members.pool = Some(pool.map_err(|error| {
            DeviceError::new(format!("cpu: cannot start {count} threads: {error}; give fewer"))
        })?);
        Ok(Self(Arc::new(members)))
    }

    /// Number of threads.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.0.threads.len()
    }

    /// Runs `work` on each thread of the team.
    pub(crate) fn on_each(&self, work: impl Fn() + Sync) {
        self.0.pool.as_ref().expect("until dropped").broadcast(|_| work());
    }

    /// Runs `work` on one thread of the team, and returns the result of `work`. Parallel loops in
    /// `work` are shared by all threads of the team.
    pub fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        self.0.pool.as_ref().expect("until dropped").install(work)
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        // Tell the threads to end. Dropping the pool does not wait until the threads have ended.
        drop(self.pool.take());
        // The calling thread may be a thread of the team. A thread must not wait for itself.
        let this = thread::current().id();
        for thread in self.threads.drain(..).filter(|thread| thread.thread().id() != this) {
            // The result needs no check, because threads of the team never end with a panic: a
            // panic in the work is passed to the caller that waits for the work.
            let _ = thread.join();
        }
    }
}
