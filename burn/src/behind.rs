//! Backend whose operations run on a separate thread, asynchronously to the engine's thread.
//!
//! While kernels run, the engine already decides on later operations and evictions. All jobs run in
//! the order of the queue, so memory in use never exceeds the bytes that the engine counts.

use crate::op::Looks;
use crate::runner::{Run, Runner};
use burn_backend::TensorData;
use burn_ir::{BackendIr, TensorIr};
use remat::device::DeviceError;
use remat::error::DeviceFault;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Maximum number of jobs in the queue. The engine waits while the queue is full.
const AHEAD: usize = 256;

/// Runner on another thread, with the queue of its jobs.
pub(crate) struct Behind<B: BackendIr> {
    shared: Arc<Shared<B>>,
    thread: Option<JoinHandle<()>>,
}

struct Shared<B: BackendIr> {
    queue: Mutex<Queue<B>>,
    /// Signals that a job was added, or that the queue was closed.
    filled: Condvar,
    /// Signals that the queue is below its maximum length.
    emptied: Condvar,
}

struct Queue<B: BackendIr> {
    jobs: Vec<Job<B>>,
    /// Whether the thread waits for jobs.
    idle: bool,
    /// Whether the queue accepts no more jobs, because the [`Behind`] was dropped or the thread has
    /// ended.
    closed: bool,
    /// Seconds of finished timed runs, the oldest first, until [`Behind::take_time`] takes them.
    seconds: VecDeque<f64>,
    /// First unreported failure.
    untold: Option<Arc<DeviceFault>>,
}

enum Job<B: BackendIr> {
    Run(Run),
    Forget(u64),
    Ask(Question<B>),
}

type Question<B> = Box<dyn FnOnce(&mut Worker<B>) + Send>;

/// State of the thread.
struct Worker<B: BackendIr> {
    runner: Runner<B>,
    shared: Arc<Shared<B>>,
    /// Storages of outputs whose op failed, each with the failure.
    failed: FxHashMap<u64, Arc<DeviceFault>>,
}

impl<B: BackendIr> Behind<B> {
    pub fn new(runner: Runner<B>) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            queue: Mutex::new(Queue {
                jobs: Vec::new(),
                idle: false,
                closed: false,
                seconds: VecDeque::new(),
                untold: None,
            }),
            filled: Condvar::new(),
            emptied: Condvar::new(),
        });
        let worker = Worker { runner, shared: Arc::clone(&shared), failed: FxHashMap::default() };
        let thread = std::thread::Builder::new().name("remat-burn-ops".to_owned());
        let thread = thread.spawn(move || worker.work())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Queues a run of an op. A failure is reported to every read of the op's outputs, and by
    /// [`Behind::take_failure`].
    pub fn run(&self, run: Run) {
        self.push(Job::Run(run));
    }

    /// Queues the release of the tensor with this number.
    pub fn forget(&self, number: u64) {
        self.push(Job::Forget(number));
    }

    /// Uploads a value, and waits for the upload. Because of the wait, the queue never holds data
    /// of uploads. All releases queued before the upload run first, so their memory is free for the
    /// upload.
    pub fn write(&self, number: u64, data: TensorData) -> Result<(), DeviceError> {
        self.ask(move |worker| worker.runner.write(number, data))?
    }

    /// Reads a tensor. The inner error is the failure of the op that makes the tensor.
    pub fn read(
        &self,
        looks: Option<Looks>,
        ir: TensorIr,
        storage: u64,
    ) -> Result<Result<TensorData, DeviceFault>, DeviceError> {
        self.ask(move |worker| match worker.failed.get(&storage) {
            Some(fault) => {
                let mut queue = worker.shared.queue();
                if queue.untold.as_ref().is_some_and(|untold| Arc::ptr_eq(untold, fault)) {
                    queue.untold = None;
                }
                Ok(Err((**fault).clone()))
            }
            None => worker.runner.read(looks.as_ref(), &ir, storage).map(Ok),
        })?
    }

    /// Waits until the backend has received all earlier jobs.
    pub fn catch_up(&self) {
        // If the thread has ended, the next read reports the end of the thread.
        let _ = self.ask(|_| ());
    }

    /// Waits until all work is done.
    pub fn sync(&self) -> Result<(), DeviceError> {
        self.ask(|worker| worker.runner.sync())?
    }

    /// Calls `with` on the runner after all earlier jobs.
    #[cfg(test)]
    pub fn look(&self, with: impl FnOnce(&mut Runner<B>) + Send + 'static) {
        // A panic of `with` is raised again on this thread.
        let looked = self.ask(move |worker| {
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| with(&mut worker.runner)))
        });
        if let Err(panic) = looked.expect("the thread is there") {
            std::panic::resume_unwind(panic);
        }
    }

    /// Takes the first unreported failure.
    pub fn take_failure(&self) -> Option<DeviceFault> {
        self.shared.queue().untold.take().map(|fault| (*fault).clone())
    }

    /// Takes the seconds of the oldest timed run that were not taken yet. `None` if that run has
    /// not ended.
    pub fn take_time(&self) -> Option<f64> {
        self.shared.queue().seconds.pop_front()
    }

    fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Worker<B>) -> T + Send + 'static,
    ) -> Result<T, DeviceError> {
        let (reply, answer) = sync_channel(1);
        self.push(Job::Ask(Box::new(move |worker| {
            let _ = reply.send(question(worker));
        })));
        answer.recv().map_err(|_| DeviceError::new("the thread that runs the operations has ended"))
    }

    fn push(&self, job: Job<B>) {
        let mut queue = self.shared.queue();
        while queue.jobs.len() >= AHEAD && !queue.closed {
            queue = self.shared.emptied.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        if queue.closed {
            return;
        }
        queue.jobs.push(job);
        if std::mem::take(&mut queue.idle) {
            drop(queue);
            self.shared.filled.notify_one();
        }
    }
}

impl<B: BackendIr> Drop for Behind<B> {
    /// Ends the thread. Jobs still in the queue are dropped. Jobs that the thread has already taken
    /// out of the queue are run. When `drop` returns, all memory of the runner is free.
    fn drop(&mut self) {
        self.shared.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl<B: BackendIr> Shared<B> {
    fn queue(&self) -> MutexGuard<'_, Queue<B>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        self.queue().closed = true;
        self.filled.notify_one();
        self.emptied.notify_one();
    }
}

impl<B: BackendIr> Worker<B> {
    fn work(mut self) {
        struct Close<B: BackendIr>(Arc<Shared<B>>);
        impl<B: BackendIr> Drop for Close<B> {
            fn drop(&mut self) {
                self.0.close();
                // Dropping a job closes the channel on which its caller waits for the answer, so
                // that the caller gets an error.
                self.0.queue().jobs.clear();
            }
        }
        let _close = Close(Arc::clone(&self.shared));
        let mut jobs = Vec::new();
        while self.next(&mut jobs) {
            for job in jobs.drain(..) {
                match job {
                    Job::Run(run) => self.run(&run),
                    Job::Forget(number) => {
                        self.failed.remove(&number);
                        self.runner.forget(number);
                    }
                    Job::Ask(question) => question(&mut self),
                }
            }
        }
    }

    /// Takes all queued jobs, and waits while the queue is empty. Returns false once the queue is
    /// closed.
    fn next(&self, jobs: &mut Vec<Job<B>>) -> bool {
        let mut queue = self.shared.queue();
        while queue.jobs.is_empty() && !queue.closed {
            queue.idle = true;
            queue = self.shared.filled.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        queue.idle = false;
        std::mem::swap(&mut queue.jobs, jobs);
        let (full, closed) = (jobs.len() >= AHEAD, queue.closed);
        drop(queue);
        if full {
            self.shared.emptied.notify_one();
        }
        !closed
    }

    fn run(&mut self, run: &Run) {
        let lost = run.inputs.iter().find_map(|input| self.failed.get(input)).cloned();
        let ran = match lost {
            Some(fault) => Err(fault),
            None => self.runner.run(run).map_err(|error| {
                let (op, message) = (run.op.form.name.to_string(), error.to_string());
                let fault = Arc::new(DeviceFault { op, message, out_of_memory: false });
                self.shared.queue().untold.get_or_insert_with(|| Arc::clone(&fault));
                fault
            }),
        };
        if run.timed {
            let seconds = ran.as_ref().ok().copied().flatten();
            self.shared.queue().seconds.push_back(seconds.unwrap_or(f64::NAN));
        }
        if let Err(fault) = ran {
            self.failed.extend(run.outputs.iter().map(|&out| (out, Arc::clone(&fault))));
        }
    }
}
