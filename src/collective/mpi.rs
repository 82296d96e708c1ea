//! Ranks that are processes of an MPI job.

use super::fabric::{Fabric, FabricError};
use crate::sync::{Condvar, Mutex, lock, thread, wait};
use ferrompi::{Communicator, ThreadLevel};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// This process's part in an MPI job, started by `mpirun`, `srun` or the like. Without a launcher,
/// the process is the only rank.
///
/// A process that fails must end the job: the other ranks would wait for ever in their next
/// collective. [`Job::run`] therefore ends all ranks by `MPI_Abort` after an error or a panic.
/// Dropping a job without [`Job::finish`] also ends all ranks.
pub struct Job {
    /// `Some` until the job is finished.
    mpi: Option<ferrompi::Mpi>,
    world: Arc<Communicator>,
    local: (usize, usize),
    watch: Arc<Watch>,
}

impl Job {
    /// Default of the time that a rank waits for the other ranks in one call.
    pub const PATIENCE: Duration = Duration::from_secs(600);

    /// Runs the work of a rank, from the start of MPI to its end. If `work` fails or panics, prints
    /// the reason with the number of the rank, and ends all ranks of the job. Returns the result of
    /// `work` only if all ranks have come to their end.
    ///
    /// ```no_run
    /// use remat::unstable::collective::{Job, Ranks};
    /// use remat::prelude::*;
    ///
    /// fn work(job: &Job) -> Result<(), Error> {
    ///     let ranks = Ranks::new(job.fabric());
    ///     let runtime = Runtime::builder().budget("1GiB").cpu()?;
    ///     let mut x = runtime.full(&[3], ranks.rank() as f32)?;
    ///     runtime.update(ranks.all_reduce("x"), &mut [&mut x], &[])?;
    ///     println!("{:?}", x.to_vec::<f32>()?);
    ///     Ok(())
    /// }
    ///
    /// fn main() -> Result<(), remat::unstable::collective::FabricError> {
    ///     Job::run(Job::PATIENCE, work)
    /// }
    /// ```
    ///
    /// # Errors
    /// Errors of [`Job::start`].
    pub fn run<T, E: fmt::Display>(
        patience: Duration,
        work: impl FnOnce(&Self) -> Result<T, E>,
    ) -> Result<T, FabricError> {
        let job = Self::start(patience)?;
        let rank = job.world.rank();
        match catch_unwind(AssertUnwindSafe(|| work(&job))) {
            Ok(Ok(done)) => {
                job.finish()?;
                return Ok(done);
            }
            Ok(Err(error)) => eprintln!("rank {rank} failed: {error}"),
            // The panic has printed its message.
            Err(_) => eprintln!("rank {rank} panicked"),
        }
        job.world.abort(1)
    }

    /// Starts MPI in this process. A call of a collective that takes longer than `patience` ends
    /// the job, because another rank must hang.
    ///
    /// # Errors
    /// An error if MPI was started before, cannot be started, or permits calls from the main thread only.
    pub fn start(patience: Duration) -> Result<Self, FabricError> {
        let mpi = ferrompi::Mpi::init_thread(ThreadLevel::Serialized).map_err(of_mpi)?;
        let given = mpi.thread_level();
        let world = Arc::new(mpi.world());
        if given < ThreadLevel::Serialized {
            return Err(FabricError(format!(
                "this MPI gives threads the level {given:?}, but Serialized is needed: use an MPI that is built with \
                 threads"
            )));
        }
        let machine = world.split_shared().map_err(of_mpi)?;
        let local = (machine.rank() as usize, machine.size() as usize);
        let watch = Watch::start(patience, Arc::clone(&world));
        Ok(Self { mpi: Some(mpi), world, local, watch })
    }

    /// The fabric of this rank.
    #[must_use]
    pub fn fabric(&self) -> impl Fabric + use<> {
        let (world, watch) = (Arc::clone(&self.world), Arc::clone(&self.watch));
        OverMpi { world, local: self.local, watch }
    }

    /// Waits for all ranks, and ends MPI in this process. Call this method after the last
    /// collective.
    ///
    /// # Errors
    /// An error if MPI fails; the job is then aborted.
    pub fn finish(mut self) -> Result<(), FabricError> {
        self.watch.during(|| self.world.barrier()).map_err(of_mpi)?;
        drop(self.mpi.take());
        Ok(())
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if self.mpi.is_some() {
            eprintln!("rank {} ends the job, because it did not finish", self.world.rank());
            self.world.abort(1);
        }
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of an MPI job of {}", self.world.rank(), self.world.size())
    }
}

fn of_mpi(error: ferrompi::Error) -> FabricError {
    FabricError(format!("MPI: {error}"))
}

/// Fabric of a process of an MPI job.
struct OverMpi {
    world: Arc<Communicator>,
    local: (usize, usize),
    watch: Arc<Watch>,
}

impl Fabric for OverMpi {
    fn rank(&self) -> usize {
        self.world.rank() as usize
    }

    fn size(&self) -> usize {
        self.world.size() as usize
    }

    fn local(&self) -> (usize, usize) {
        self.local
    }

    fn all_to_all(&self, send: &[u8], receive: &mut [u8]) -> Result<(), FabricError> {
        self.watch.during(|| self.world.alltoall(send, receive)).map_err(of_mpi)
    }

    fn all_gather(&self, send: &[u8], receive: &mut [u8]) -> Result<(), FabricError> {
        self.watch.during(|| self.world.allgather(send, receive)).map_err(of_mpi)
    }

    fn broadcast(&self, root: usize, bytes: &mut [u8]) -> Result<(), FabricError> {
        self.watch.during(|| self.world.broadcast(bytes, root as i32)).map_err(of_mpi)
    }
}

impl fmt::Debug for OverMpi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {} processes", self.rank(), self.size())
    }
}

/// Watch over the calls of MPI, which have no time limit themselves.
struct Watch {
    patience: Duration,
    /// Start of the current call.
    since: Mutex<Option<Instant>>,
    begun: Condvar,
}

impl Watch {
    /// Starts a thread that ends the job when a call takes longer than `patience`. The thread lives
    /// as long as the process.
    fn start(patience: Duration, world: Arc<Communicator>) -> Arc<Self> {
        let watch = Arc::new(Self { patience, since: Mutex::default(), begun: Condvar::new() });
        let watching = Arc::clone(&watch);
        let named = thread::Builder::new().name("remat-patience".to_owned());
        // Without this thread, a rank that hangs is not noticed; everything else works.
        let _ = named.spawn(move || watching.run(&world));
        watch
    }

    fn run(&self, world: &Communicator) {
        let mut since = lock(&self.since);
        loop {
            let Some(start) = *since else {
                since = wait(&self.begun, since);
                continue;
            };
            let left = self.patience.saturating_sub(start.elapsed());
            if left.is_zero() {
                eprintln!(
                    "rank {} ends the job: it has waited for the other ranks for {} s",
                    world.rank(),
                    self.patience.as_secs_f64()
                );
                world.abort(1);
            }
            let waited = self.begun.wait_timeout(since, left);
            since = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Makes a call under the watch.
    fn during<T>(&self, call: impl FnOnce() -> T) -> T {
        *lock(&self.since) = Some(Instant::now());
        self.begun.notify_one();
        let result = call();
        *lock(&self.since) = None;
        result
    }
}
