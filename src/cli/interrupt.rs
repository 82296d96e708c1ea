//! Ctrl-C: the first ends the program after the current step, the second abandons that step, the third quits at
//! once.

use super::failure::Failure;
use super::terminal::say;
use remat::Canceller;
use remat::trace::WholeFile;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// What shells use for "interrupted by Ctrl-C".
pub const EXIT_CODE: u8 = 130;

/// How often it was pressed.
static PRESSED: AtomicUsize = AtomicUsize::new(0);

/// Cancels regenerations of the running runtime.
static AT_WORK: Mutex<Option<Canceller>> = Mutex::new(None);

/// From now on the first Ctrl-C is a request.
pub fn listen(quiet: bool) -> Result<(), Failure> {
    // The handler is a thread of its own, so it may lock and wait.
    ctrlc::set_handler(move || {
        let pressed = PRESSED.fetch_add(1, Ordering::Relaxed);
        let what = match pressed {
            0 => "finishing the current step; press Ctrl-C again to abandon it",
            1 => "abandoning the current step; press Ctrl-C again to quit at once",
            _ => quit(),
        };
        if !quiet {
            say(format_args!("interrupted: {what}"));
        }
        if pressed > 0 {
            cancel();
        }
    })
    .map_err(|error| Failure::new(format!("Ctrl-C cannot be handled: {error}")))
}

/// From now on the first Ctrl-C quits, and leaves no half-written file.
pub fn quit_at_once() -> Result<(), Failure> {
    ctrlc::set_handler(|| quit())
        .map_err(|error| Failure::new(format!("Ctrl-C cannot be handled: {error}")))
}

fn quit() -> ! {
    WholeFile::remove_unfinished();
    std::process::exit(EXIT_CODE.into())
}

/// The second Ctrl-C is for this runtime.
pub fn cancels(canceller: Canceller) {
    *AT_WORK.lock().unwrap_or_else(PoisonError::into_inner) = Some(canceller);
    if is_abandoned() {
        cancel();
    }
}

fn cancel() {
    if let Some(canceller) = &*AT_WORK.lock().unwrap_or_else(PoisonError::into_inner) {
        canceller.cancel();
    }
}

/// Whether Ctrl-C was pressed.
pub fn is_requested() -> bool {
    PRESSED.load(Ordering::Relaxed) > 0
}

/// Whether Ctrl-C was pressed twice: the current step is not finished.
pub fn is_abandoned() -> bool {
    PRESSED.load(Ordering::Relaxed) > 1
}
