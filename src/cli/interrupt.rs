//! Ctrl-C: the first ends the program with what it has, the second ends it at once.

use super::failure::Failure;
use super::terminal::say;
use std::sync::atomic::{AtomicBool, Ordering};

/// What the shell takes to mean "ended by Ctrl-C".
pub const EXIT_CODE: u8 = 130;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// From now on the first Ctrl-C is a request.
pub fn listen(quiet: bool) -> Result<(), Failure> {
    ctrlc::set_handler(move || {
        if INTERRUPTED.swap(true, Ordering::Relaxed) {
            std::process::exit(EXIT_CODE.into());
        }
        // This is a thread of its own, so it may lock and wait.
        if !quiet {
            say("interrupted: finishing the step at hand; press Ctrl-C again to quit at once");
        }
    })
    .map_err(|error| Failure::new(format!("Ctrl-C cannot be listened to: {error}")))
}

/// Whether Ctrl-C was pressed.
pub fn is_requested() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}
