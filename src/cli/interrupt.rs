//! Ctrl-C, and SIGTERM: the first ends the program after the current step, the second abandons that step, the third quits at
//! once.

use super::failure::{Failure, INTERRUPTED};
use super::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use super::sync::{Mutex, lock};
use super::terminal::say;
use remat::Canceller;
use remat::trace::WholeFile;
use std::fmt::Display;
use std::io;

/// How often it was pressed.
static PRESSED: AtomicUsize = AtomicUsize::new(0);

/// What the program is doing, and so what Ctrl-C ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Rehearsal,
    Training,
    Test,
}

/// The phase at hand, as its number.
static PHASE: AtomicU8 = AtomicU8::new(Phase::Rehearsal as u8);

impl Phase {
    const ALL: [Self; 3] = [Self::Rehearsal, Self::Training, Self::Test];

    /// From now on the program is doing this.
    pub fn begin(self) {
        PHASE.store(self as u8, Ordering::Relaxed);
    }

    fn at_hand() -> Self {
        Self::ALL[usize::from(PHASE.load(Ordering::Relaxed))]
    }

    /// What the first and the second Ctrl-C do.
    const fn ends(self) -> [&'static str; 2] {
        match self {
            Self::Rehearsal => ["ending the rehearsal", "abandoning the rehearsal"],
            Self::Training => ["finishing the current step", "abandoning the current step"],
            Self::Test => ["ending the test", "abandoning the test"],
        }
    }
}

/// Cancels regenerations of the running runtime.
static AT_WORK: Mutex<Option<Canceller>> = Mutex::new(None);

/// From now on the first Ctrl-C is a request.
pub fn listen(quiet: bool) -> Result<(), Failure> {
    // The handler is a thread of its own, so it may lock and wait.
    handle(move || {
        let pressed = PRESSED.fetch_add(1, Ordering::Relaxed);
        let [first, second] = Phase::at_hand().ends();
        let what = match pressed {
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

/// From now on the first Ctrl-C quits, and leaves no half-written file.
pub fn quit_at_once() -> Result<(), Failure> {
    handle(|| quit())
}

fn handle(on_ctrl_c: impl Fn() + Clone + Send + 'static) -> Result<(), Failure> {
    let failed = |error: &dyn Display| Failure::new(format!("Ctrl-C cannot be handled: {error}"));
    handle_termination(on_ctrl_c.clone()).map_err(|error| failed(&error))?;
    ctrlc::set_handler(on_ctrl_c).map_err(|error| failed(&error))
}

/// SIGTERM, by which batch systems end a program, does as Ctrl-C does.
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

/// Has a file that grows beyond what the system allows (`ulimit -f`) be an error of the write, from now on. Otherwise it ends the
/// program at once, and leaves half a file.
pub fn survive_full_files() {
    #[cfg(unix)]
    {
        use super::sync::atomic::AtomicBool;
        use std::sync::Arc;
        let noticed = Arc::new(AtomicBool::new(false));
        // Where it cannot be had, the program is ended as before.
        let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, noticed);
    }
}

fn quit() -> ! {
    WholeFile::remove_unfinished();
    std::process::exit(INTERRUPTED.into())
}

/// The second Ctrl-C is for this runtime.
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

/// Whether Ctrl-C was pressed.
pub fn is_requested() -> bool {
    PRESSED.load(Ordering::Relaxed) > 0
}

/// Whether Ctrl-C was pressed twice: the current step is not finished.
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
