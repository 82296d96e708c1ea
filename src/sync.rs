//! Locks, channels, threads and pools of them: all that the library uses of them has its name from here. Only what is done
//! side by side on a pool is said where it is done, by rayon's iterators.

pub(crate) use crossbeam_channel as channel;
pub(crate) use crossbeam_utils::CachePadded;
pub(crate) use rayon::{ThreadPool, ThreadPoolBuilder, join};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, atomic};
pub(crate) use std::thread;

use std::sync::PoisonError;

/// Waits for a lock. Whoever panicked while holding it left nothing half done: what is locked in this crate is
/// changed in one go.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives the lock away until somebody notifies.
pub(crate) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}
