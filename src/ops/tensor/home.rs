//! Link from a tensor's handle to the tensor's runtime. The link does not keep the runtime alive.

use super::{Tensor, Tensors};
use crate::command::{Ids, TensorId};
use crate::error::{Error, RuntimeError};
use crate::host::HostTensor;
use crate::ops::{Deferred, Op};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::channel::{Receiver, Sender};
use crate::sync::{Mutex, MutexGuard, OnceLock, lock};
use std::fmt;
use std::sync::{Arc, Weak};

/// Runtime of the crate's ops, which runs the methods of tensors.
pub(crate) trait Runs: Send + Sync {
    /// Link from the runtime's tensors to the runtime.
    fn home(&self) -> &Home;
    /// See [`Runtime::apply`](crate::Runtime::apply).
    fn apply(&self, op: Op, inputs: &[&Tensor]) -> Result<Tensors, Error>;
    /// See [`Runtime::get`](crate::Runtime::get).
    fn get(&self, x: &Tensor) -> Result<HostTensor, Error>;
    /// See [`Runtime::replace`](crate::Runtime::replace).
    fn replace(&self, target: &mut Tensor, value: &Tensor) -> Result<(), Error>;
    /// See [`Runtime::next_random`](crate::Runtime::next_random).
    fn next_random(&self) -> (u64, u64);
    /// Whether [`Runtime::defer_statistics`](crate::Runtime::defer_statistics) was called.
    fn defers_statistics(&self) -> bool;
    /// Keeps statistics for [`Runtime::take_statistics`](crate::Runtime::take_statistics).
    fn defer(&self, statistics: Deferred) -> Result<(), Error>;
}

/// Link from a tensor to its runtime.
pub(crate) struct Home {
    /// Number of the runtime, unique in the process.
    number: u64,
    /// Handles that were dropped since the last command was sent.
    ///
    /// The next command takes the dropped handles to the worker. Dropping a handle is therefore
    /// only a push to a list, under a lock that is rarely contended, and deletions keep their order
    /// among the commands. If the worker is idle, dropping a handle wakes the worker.
    dropped: Mutex<Dropped>,
    wake: Sender<()>,
    woken: Receiver<()>,
    /// Runtime that runs the methods of tensors. Not set if the runtime's ops are not the crate's
    /// ops.
    runs: OnceLock<Weak<dyn Runs>>,
}

#[derive(Default)]
struct Dropped {
    /// Handles that were dropped after the last command was sent.
    ids: Ids,
    /// Number of commands sent.
    sent: u64,
    /// Whether the worker waits for a command or a wake-up.
    sleeps: bool,
}

impl Default for Home {
    fn default() -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let (wake, woken) = crate::sync::channel::bounded(1);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        Self { number, dropped: Mutex::default(), wake, woken, runs: OnceLock::new() }
    }
}

impl Home {
    /// Number of the runtime.
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Sets the runtime that runs the methods of tensors.
    pub fn set_runs(&self, runs: Weak<dyn Runs>) {
        let _ = self.runs.set(runs);
    }

    /// Returns the runtime that runs the methods of tensors.
    pub(super) fn runs(&self) -> Result<Arc<dyn Runs>, Error> {
        let runs = self.runs.get().ok_or_else(|| {
            RuntimeError::Settings(
                "this runtime does not use the ops of remat: call Runtime::apply instead of a method of the \
                 tensor".to_owned(),
            )
        })?;
        runs.upgrade().ok_or_else(|| {
            RuntimeError::Stopped { why: "the runtime was dropped before this tensor".to_owned() }
                .into()
        })
    }

    pub(super) fn push(&self, id: TensorId) {
        let mut dropped = self.lock();
        dropped.ids.push(id);
        if std::mem::take(&mut dropped.sleeps) {
            drop(dropped);
            // If the channel is full, the worker has not received an earlier wake-up yet. One
            // wake-up is enough.
            let _ = self.wake.try_send(());
        }
    }

    /// Takes the handles that were dropped since the last command, to send them with the next
    /// command.
    pub fn take(&self) -> Ids {
        let mut dropped = self.lock();
        dropped.sent += 1;
        std::mem::take(&mut dropped.ids)
    }

    /// Takes the dropped handles that no command has taken; only the worker calls this function.
    /// Also returns the number of commands that were sent before.
    ///
    /// Returns `None` if no handle was dropped. After `None`, the next dropped handle wakes the
    /// worker.
    pub fn take_or_sleep(&self) -> Option<(u64, Ids)> {
        let mut dropped = self.lock();
        if dropped.ids.is_empty() {
            dropped.sleeps = true;
            return None;
        }
        Some((dropped.sent, std::mem::take(&mut dropped.ids)))
    }

    /// Channel that receives a message when the worker must wake up.
    pub const fn woken(&self) -> &Receiver<()> {
        &self.woken
    }

    fn lock(&self) -> MutexGuard<'_, Dropped> {
        lock(&self.dropped)
    }
}

impl fmt::Debug for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Home").field("number", &self.number).finish_non_exhaustive()
    }
}
