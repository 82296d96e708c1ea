//! Locks, channels, threads and pools of them: all that the library uses of them has its name from here. Only what is done
//! side by side on a pool is said where it is done, by rayon's iterators.

pub(crate) use crossbeam_channel as channel;
pub(crate) use crossbeam_utils::CachePadded;
pub(crate) use rayon::{ThreadPool, ThreadPoolBuilder, join};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, atomic};
pub(crate) use std::thread;

use std::sync::PoisonError;

/// Does `work`, whose parts all cores share. Where the system gives no threads for that, the calling one does all of it: that takes
/// longer, and is no error.
#[cfg(any(feature = "data", feature = "lab"))]
pub(crate) fn shared<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    static POOL: OnceLock<Option<ThreadPool>> = OnceLock::new();
    if rayon::current_thread_index().is_some() {
        return work();
    }
    let of_cores = || ThreadPoolBuilder::new().thread_name(|i| format!("remat-{i}")).build().ok();
    match POOL.get_or_init(of_cores) {
        Some(pool) => pool.install(work),
        None => match ThreadPoolBuilder::new().num_threads(1).use_current_thread().build() {
            Ok(alone) => alone.install(work),
            Err(_) => work(),
        },
    }
}

/// Waits for a lock. Whoever panicked while holding it left nothing half done: what is locked in this crate is
/// changed in one go.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives the lock away until somebody notifies.
pub(crate) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}
