//! Ctrl-C and SIGTERM. The first press or signal ends the program after the current step. The
//! second press or signal abandons the step. The third press or signal quits the program at once.

use super::failure::{Failure, INTERRUPTED};
use super::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use super::sync::{Mutex, lock};
use super::terminal::say;
use remat::Canceller;
use remat::unstable::files::WholeFile;
use std::fmt::Display;
use std::io;

/// Number of presses of Ctrl-C.
static PRESSED: AtomicUsize = AtomicUsize::new(0);

/// Phase of the program, for the message about Ctrl-C. Ctrl-C ends the current phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Arguments are checked, and data is read.
    Opening,
    Rehearsal,
    Training,
    Test,
}

/// Current phase, as the number of the variant.
static PHASE: AtomicU8 = AtomicU8::new(Phase::Opening as u8);

impl Phase {
    const ALL: [Self; 4] = [Self::Opening, Self::Rehearsal, Self::Training, Self::Test];

    /// Makes `self` the current phase.
    pub fn begin(self) {
        PHASE.store(self as u8, Ordering::Relaxed);
    }

    fn at_hand() -> Self {
        Self::ALL[usize::from(PHASE.load(Ordering::Relaxed))]
    }

    /// Texts for the effect of the first and of the second Ctrl-C in this phase.
    const fn ends(self) -> [&'static str; 2] {
        match self {
            // The first signal quits.
            Self::Opening => ["", ""],
            Self::Rehearsal => ["ending the rehearsal", "abandoning the rehearsal"],
            Self::Training => ["finishing the current step", "abandoning the current step"],
            Self::Test => ["ending the test", "abandoning the test"],
        }
    }
}

/// Canceller of the current runtime, which stops regenerations at the second Ctrl-C.
static AT_WORK: Mutex<Option<Canceller>> = Mutex::new(None);

/// Handles Ctrl-C from now on. The first Ctrl-C only sets a flag ([`is_requested`]). The second
/// Ctrl-C also cancels regenerations. The third Ctrl-C quits. Before the rehearsal, the first
/// Ctrl-C quits.
pub fn listen(quiet: bool) -> Result<(), Failure> {
    // The closure runs on a thread of its own, not inside a signal handler, so it may lock and
    // wait.
    handle(move || {
        let pressed = PRESSED.fetch_add(1, Ordering::Relaxed);
        let phase = Phase::at_hand();
        let [first, second] = phase.ends();
        let what = match pressed {
            // No work has begun that quitting would lose.
            _ if phase == Phase::Opening => quit(),
            0 => format!("{first}; press Ctrl-C again to abandon it"),
            1 => format!("{second}; press Ctrl-C again to quit at once"),
            _ => quit(),
        };
        if !quiet {
            say(format_args!("interrupted: {what}"));
        }
        if pressed > 0 {
            cancel();
        }
    })
}

/// Handles Ctrl-C from now on. The first Ctrl-C removes unfinished files and quits.
pub fn quit_at_once() -> Result<(), Failure> {
    handle(|| quit())
}

fn handle(on_ctrl_c: impl Fn() + Clone + Send + 'static) -> Result<(), Failure> {
    let failed = |error: &dyn Display| Failure::new(format!("Ctrl-C cannot be handled: {error}"));
    handle_termination(on_ctrl_c.clone()).map_err(|error| failed(&error))?;
    ctrlc::set_handler(on_ctrl_c).map_err(|error| failed(&error))
}

/// Handles SIGTERM like Ctrl-C. Batch systems end a program by SIGTERM.
#[cfg(unix)]
fn handle_termination(on_signal: impl Fn() + Send + 'static) -> io::Result<()> {
    use super::sync::thread;
    use signal_hook::{consts::SIGTERM, iterator::Signals};
    let mut signals = Signals::new([SIGTERM])?;
    let listen = move || signals.forever().for_each(|_| on_signal());
    thread::Builder::new().name("signals".to_owned()).spawn(listen).map(drop)
}

#[cfg(not(unix))]
fn handle_termination(_: impl Fn()) -> io::Result<()> {
    Ok(())
}

/// Makes a write beyond the system's limit on file sizes (`ulimit -f`) fail with an error. By
/// default, a write beyond the limit would end the program, and leave an incomplete file.
pub fn survive_full_files() {
    #[cfg(unix)]
    {
        use super::sync::atomic::AtomicBool;
        use std::sync::Arc;
        let noticed = Arc::new(AtomicBool::new(false));
        // If the signal cannot be caught, the default stays: a write beyond the limit ends the
        // program.
        let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, noticed);
    }
}

fn quit() -> ! {
    WholeFile::remove_unfinished();
    std::process::exit(INTERRUPTED.into())
}

/// Sets the canceller of the current runtime. The second Ctrl-C calls the canceller.
pub fn cancels(canceller: Canceller) {
    *lock(&AT_WORK) = Some(canceller);
    if is_abandoned() {
        cancel();
    }
}

fn cancel() {
    if let Some(canceller) = &*lock(&AT_WORK) {
        canceller.cancel();
    }
}

/// Ends the current phase, as the first Ctrl-C does.
pub fn request() {
    PRESSED.fetch_max(1, Ordering::Relaxed);
}

/// Whether Ctrl-C was pressed.
pub fn is_requested() -> bool {
    PRESSED.load(Ordering::Relaxed) > 0
}

/// Whether Ctrl-C was pressed twice, so that the current step is abandoned.
pub fn is_abandoned() -> bool {
    PRESSED.load(Ordering::Relaxed) > 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_are_found_by_their_numbers() {
        for phase in Phase::ALL {
            phase.begin();
            assert_eq!(Phase::at_hand(), phase);
        }
    }
}
