//! Locks, channels and threads of the program. As in the library, other modules have them from this
//! one place.

pub use std::sync::{LazyLock, Mutex, atomic, mpsc};
pub use std::thread;

use std::sync::{MutexGuard, PoisonError};

/// Waits for a lock, even if a thread panicked while holding it.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
