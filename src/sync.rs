//! Locks, channels, threads and thread pools: the library takes all of them from here. Only
//! parallel loops on a pool are written where they are used, with rayon's iterators.

pub(crate) use crossbeam_channel as channel;
pub(crate) use crossbeam_utils::CachePadded;
pub(crate) use rayon::{ThreadPool, ThreadPoolBuilder, join};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, atomic};
pub(crate) use std::thread;

use std::sync::PoisonError;

/// Runs `work`, whose parts all cores share. If the system gives no threads for that, the calling
/// thread does all of it. That takes longer, and is no error.
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

/// Waits for a lock, even if its last holder panicked. Data under locks in this crate is changed in
/// one go, so a panic leaves nothing half done.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Releases the lock until a notification, and takes it again.
pub(crate) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}
