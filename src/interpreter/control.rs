//! State that a runtime and its worker share, other than the queue of commands.

use crate::command::Window;
use crate::error::{Error, RuntimeError};
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::sync::{CachePadded, Condvar, Mutex, OnceLock, lock, wait};
use std::cell::Cell;

/// Limit on bytes of host values that were sent to the worker and that the worker has not put yet.
/// A sender that exceeds the limit waits, unless the worker has put all other values. A worker with
/// a window must not wait for more bytes than the limit before it executes a command. A worker that
/// waited for more bytes would wait for a sender that waits for the worker.
const MOST_IN_FLIGHT: u64 = Window::PUT_BYTES;

thread_local! {
    /// Address of the [`Control`] of the runtime that the current thread works for; 0 if it works
    /// for none.
    static SERVES: Cell<usize> = const { Cell::new(0) };
}

#[derive(Debug, Default)]
pub(crate) struct Control {
    /// Number of commands sent so far.
    sent: CachePadded<AtomicU64>,
    /// Number of the worker's current command. Commands are executed in the order of sending.
    at: CachePadded<AtomicU64>,
    /// Number of the last cancelled command. Regenerations for all commands up to the number are
    /// cancelled.
    cancelled: AtomicU64,
    /// Whether the last handle of the runtime was dropped.
    closing: AtomicBool,
    /// Number of pending answers that callers may still read.
    readers: AtomicUsize,
    in_flight: Mutex<InFlight>,
    landed: Condvar,
    /// Reason why the worker ended, if it ended before all its senders were dropped.
    why_stopped: OnceLock<String>,
    /// The process of the worker.
    process: Process,
}

/// A process id. The default is the current process.
#[derive(Debug, PartialEq, Eq)]
struct Process(u32);

impl Default for Process {
    fn default() -> Self {
        Self(std::process::id())
    }
}

#[derive(Debug, Default)]
struct InFlight {
    bytes: u64,
    /// Whether the worker has ended, so that no value will arrive any more.
    ended: bool,
}

impl Control {
    /// Marks the calling thread as a thread of the worker, until the thread ends.
    pub fn serve(&self) {
        SERVES.set(self.address());
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Error for a wait that would never end, because the caller is a thread of the worker or a
    /// forked process. `None` if waiting is allowed.
    pub fn bars_waiting(&self) -> Option<Error> {
        if SERVES.get() == self.address() {
            Some(RuntimeError::OwnThread.into())
        } else if self.process != Process::default() {
            Some(RuntimeError::Forked.into())
        } else {
            None
        }
    }

    /// Counts a command that is about to be sent.
    pub fn will_send(&self) {
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a command that the worker begins.
    pub fn next_command(&self) {
        // Only the worker writes `at`.
        self.at.store(self.at() + 1, Ordering::Relaxed);
    }

    /// Number of the worker's current command, or of the last command while the worker waits.
    pub fn at(&self) -> u64 {
        self.at.load(Ordering::Relaxed)
    }

    /// Cancels regenerations for all commands sent so far.
    pub fn cancel(&self) {
        self.cancelled.fetch_max(self.sent.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Notes that the last handle of the runtime is dropped.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    /// Whether to cancel a regeneration for the current command. True if the user cancelled the
    /// command, or if the runtime is closing and no caller can read an answer any more.
    pub fn is_cancelled(&self) -> bool {
        let cancelled = self.cancelled.load(Ordering::Relaxed);
        (cancelled > 0 && cancelled >= self.at())
            || (self.closing.load(Ordering::Relaxed) && self.readers.load(Ordering::Relaxed) == 0)
    }

    pub fn add_reader(&self) {
        self.readers.fetch_add(1, Ordering::Relaxed);
    }

    pub fn remove_reader(&self) {
        self.readers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a value of `bytes` bytes that is about to be sent to the worker.
    pub fn take_off(&self, bytes: u64) {
        let mut in_flight = lock(&self.in_flight);
        in_flight.bytes = in_flight.bytes.saturating_add(bytes);
    }

    /// Waits, after a value of `bytes` bytes was sent, until the bytes not yet put by the worker
    /// are within the limit. Does not wait if all bytes that were not put belong to the sent value.
    ///
    /// # Errors
    /// [`RuntimeError::Stopped`] if the worker has ended, or the error of
    /// [`bars_waiting`](Self::bars_waiting).
    pub fn await_landing(&self, bytes: u64) -> Result<(), Error> {
        let mut in_flight = lock(&self.in_flight);
        while !in_flight.ended && in_flight.bytes > bytes.max(MOST_IN_FLIGHT) {
            if let Some(barred) = self.bars_waiting() {
                return Err(barred);
            }
            in_flight = wait(&self.landed, in_flight);
        }
        if in_flight.ended { Err(self.stopped()) } else { Ok(()) }
    }

    /// Notes that the worker has executed the put of a value of `bytes` bytes.
    pub fn land(&self, bytes: u64) {
        let mut in_flight = lock(&self.in_flight);
        in_flight.bytes = in_flight.bytes.saturating_sub(bytes);
        drop(in_flight);
        self.landed.notify_all();
    }

    /// Notes that the worker ends. `why` is the reason if it ends early.
    pub fn end(&self, why: Option<String>) {
        if let Some(why) = why {
            let _ = self.why_stopped.set(why);
        }
        lock(&self.in_flight).ended = true;
        self.landed.notify_all();
    }

    /// The error of commands after the worker's end.
    pub fn stopped(&self) -> Error {
        let why = self.why_stopped.get().map_or("its worker thread ended", String::as_str);
        RuntimeError::Stopped { why: why.to_owned() }.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a control whose worker is at command number `at` of `sent` commands.
    fn control(sent: u64, at: u64) -> Control {
        let control = Control::default();
        (0..sent).for_each(|_| control.will_send());
        (0..at).for_each(|_| control.next_command());
        control
    }

    #[test]
    fn a_cancel_hits_earlier_commands_and_no_later_ones() {
        let cancelled = |at: u64| {
            let control = control(5, at);
            assert!(!control.is_cancelled());
            control.cancel();
            (0..3).for_each(|_| control.will_send());
            control.is_cancelled()
        };
        assert!((1..=5).all(cancelled));
        assert!(!(6..=8).any(cancelled));
        // Cancel before any command was sent.
        let control = control(0, 0);
        control.cancel();
        assert!(!control.is_cancelled());
    }

    /// Regression test: dropping a runtime waited for regenerations whose results no caller could
    /// read.
    #[test]
    fn without_readers_nothing_is_brought_back_for_a_runtime_that_goes() {
        let control = control(1, 1);
        control.add_reader();
        control.add_reader();
        control.remove_reader();
        control.close();
        assert!(!control.is_cancelled(), "somebody still waits");
        control.remove_reader();
        assert!(control.is_cancelled());
    }

    #[test]
    fn a_worker_that_ended_lets_nobody_wait() {
        let control = Control::default();
        control.take_off(MOST_IN_FLIGHT);
        control.await_landing(MOST_IN_FLIGHT).unwrap();
        control.take_off(1);
        crate::sync::thread::scope(|scope| {
            let waits = scope.spawn(|| control.await_landing(1));
            control.end(Some("on purpose".to_owned()));
            let error = waits.join().unwrap().unwrap_err();
            assert!(error.to_string().contains("on purpose"), "{error}");
        });
    }
}
