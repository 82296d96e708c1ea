//! Prints which run takes very long. A slow run goes on, and does not count as a failure.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Time after which a line about a run is printed. The slowest runs take seconds under a sanitizer.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs `body`. Prints `what()` if `body` takes long.
pub fn during<R>(what: impl FnOnce() -> String + Send, body: impl FnOnce() -> R) -> R {
    let (done, is_done) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if is_done.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                eprintln!("still running after {PATIENCE:?}: {}", what());
            }
        });
        let result = body();
        drop(done);
        result
    })
}
