//! Link from a tensor's handle to its runtime. The link does not keep the runtime alive.

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
    /// Home of the runtime's tensors.
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

/// Link from a tensor to its runtime.
pub(crate) struct Home {
    /// Number of the runtime, unique in the process.
    number: u64,
    /// Handles dropped since the last command.
    ///
    /// Dropped handles are sent with the next command. Dropping is then a push under an uncontended
    /// lock, and deletions stay in order with commands. An idle worker is woken for dropped
    /// handles.
    dropped: Mutex<Dropped>,
    wake: Sender<()>,
    woken: Receiver<()>,
    /// Runtime that runs the methods of tensors. Not set for a runtime with ops other than the
    /// crate's.
    runs: OnceLock<Weak<dyn Runs>>,
}

#[derive(Default)]
struct Dropped {
    /// Handles dropped after the last command was sent, and before the next one.
    ids: Ids,
    /// Number of commands sent.
    sent: u64,
    /// Set while the worker waits for a command or a wake-up.
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
            // A full channel means that an earlier wake-up was not received yet, which is enough.
            let _ = self.wake.try_send(());
        }
    }

    /// Takes the handles dropped since the last command, for a command that is about to be sent.
    pub fn take(&self) -> Ids {
        let mut dropped = self.lock();
        dropped.sent += 1;
        std::mem::take(&mut dropped.ids)
    }

    /// Takes the dropped handles that no command has taken, for the worker. Also returns the number
    /// of commands sent before.
    ///
    /// If no handle was dropped, returns `None`, and the next dropped handle wakes the worker.
    pub fn take_or_sleep(&self) -> Option<(u64, Ids)> {
        let mut dropped = self.lock();
        if dropped.ids.is_empty() {
            dropped.sleeps = true;
            return None;
        }
        Some((dropped.sent, std::mem::take(&mut dropped.ids)))
    }

    /// Channel that receives a message when the worker is to wake up.
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
