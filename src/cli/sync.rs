//! Locks, channels and threads of the program: as the library's, they have their names from one place.

pub use std::sync::{LazyLock, Mutex, atomic, mpsc};
pub use std::thread;

use std::sync::{MutexGuard, PoisonError};

/// Waits for a lock, whoever panicked while holding it.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
