//! What a handle knows of its runtime. It does not keep the runtime alive.

use super::{Tensor, Tensors};
use crate::command::{Ids, TensorId};
use crate::error::{Error, RuntimeError};
use crate::host::HostTensor;
use crate::ops::Op;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::channel::{Receiver, Sender};
use crate::sync::{Mutex, MutexGuard, OnceLock, lock};
use std::fmt;
use std::sync::{Arc, Weak};

/// Runs the methods of tensors: a runtime of the crate's ops.
pub(crate) trait Runs: Send + Sync {
    /// Where its tensors find it.
    fn home(&self) -> &Home;
    /// See [`Runtime::apply`](crate::Runtime::apply).
    fn apply(&self, op: Op, inputs: &[&Tensor]) -> Result<Tensors, Error>;
    /// See [`Runtime::get`](crate::Runtime::get).
    fn get(&self, x: &Tensor) -> Result<HostTensor, Error>;
    /// See [`Runtime::replace`](crate::Runtime::replace).
    fn replace(&self, target: &mut Tensor, value: &Tensor) -> Result<(), Error>;
    /// See [`Runtime::next_random`](crate::Runtime::next_random).
    fn next_random(&self) -> (u64, u64);
}

/// What a tensor knows of its runtime.
pub(crate) struct Home {
    /// Unique in the process.
    number: u64,
    /// Dropped handles. They are sent with the next command, so that dropping is a push under an uncontended lock, and
    /// deletions stay in order with commands. An idle worker is woken for them.
    dropped: Mutex<Dropped>,
    wake: Sender<()>,
    woken: Receiver<()>,
    /// Not set for a runtime with ops other than the crate's.
    runs: OnceLock<Weak<dyn Runs>>,
}

#[derive(Default)]
struct Dropped {
    /// All of them went after the last command was sent, and before the next.
    ids: Ids,
    /// Number of commands sent.
    sent: u64,
    /// The worker waits for a command or to be woken.
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
    /// The number of the runtime.
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Lets the methods of its tensors run on `runs`.
    pub fn set_runs(&self, runs: Weak<dyn Runs>) {
        let _ = self.runs.set(runs);
    }

    /// What runs the methods of tensors.
    pub(super) fn runs(&self) -> Result<Arc<dyn Runs>, Error> {
        let runs = self.runs.get().ok_or_else(|| {
            RuntimeError::Settings(
                "this runtime has ops of its own: call Runtime::apply instead of a method of the tensor".to_owned(),
            )
        })?;
        runs.upgrade().ok_or_else(|| {
            RuntimeError::Stopped { why: "it was dropped before this tensor".to_owned() }.into()
        })
    }

    pub(super) fn push(&self, id: TensorId) {
        let mut dropped = self.lock();
        dropped.ids.push(id);
        if std::mem::take(&mut dropped.sleeps) {
            drop(dropped);
            // If it is full, the worker is being woken already.
            let _ = self.wake.try_send(());
        }
    }

    /// For a command that is about to be sent: the handles dropped since the one before.
    pub fn take(&self) -> Ids {
        let mut dropped = self.lock();
        dropped.sent += 1;
        std::mem::take(&mut dropped.ids)
    }

    /// For the worker: the handles dropped so far that no command has taken along, and the number of commands sent
    /// before that. If there are none, returns `None`, and the next dropped handle wakes the worker.
    pub fn take_or_sleep(&self) -> Option<(u64, Ids)> {
        let mut dropped = self.lock();
        if dropped.ids.is_empty() {
            dropped.sleeps = true;
            return None;
        }
        Some((dropped.sent, std::mem::take(&mut dropped.ids)))
    }

    /// Receives a message when the worker is woken.
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
