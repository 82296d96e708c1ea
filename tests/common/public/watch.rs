//! Names what hangs. It ends nothing: what is slow is no failure.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// After so long a run is worth a word. The slowest ones take seconds, under a sanitizer.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs `body`. If that takes long, what it is doing is printed.
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
