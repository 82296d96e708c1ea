//! Locks, channels, threads and thread pools, for the whole library. Only parallel loops bypass
//! this module: they use rayon's iterators, or `device/cpu/split.rs`.

pub(crate) use crossbeam_channel as channel;
pub(crate) use crossbeam_utils::CachePadded;
pub(crate) use rayon::{ThreadPool, ThreadPoolBuilder};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, atomic};
pub(crate) use std::thread;

use std::sync::PoisonError;

/// Runs `work` on a pool with a thread per core. If the system gives no threads, the calling thread
/// does all of the work. A missing pool only costs time, and is not an error.
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

/// Waits for a lock, even if its last holder panicked. A panic leaves no inconsistent data, because
/// this crate completes each change of locked data before code that may panic.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Releases the lock until a notification, and then takes the lock again.
pub(crate) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}
