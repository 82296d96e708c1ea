//! Locks, channels and threads of the program. All modules of the program import locks, channels
//! and threads only from this module. The library has a `sync` module for the same purpose.

pub use std::sync::{LazyLock, Mutex, atomic, mpsc};
pub use std::thread;

use std::sync::{MutexGuard, PoisonError};

/// Waits for a lock and takes it, even if a thread panicked while holding the lock.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
