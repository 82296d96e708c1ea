//! Display of progress for work of unknown duration.

use super::progress::turn;
use super::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use super::sync::thread::{self, JoinHandle};
use super::terminal::{BARS, Shows, say};
use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

/// Shows the current work of the program, if the work takes longer than a second. On a terminal,
/// the display is a spinner; otherwise it is a line of text from time to time.
pub struct Waiting {
    /// Spinner, invisible at first. The message of the spinner is also the text of the lines.
    spinner: ProgressBar,
    /// Channel to the thread `teller`. Dropping the sender signals to the thread that the work is
    /// done.
    busy: Option<Sender<()>>,
    teller: Option<JoinHandle<()>>,
}

impl Waiting {
    /// Time before the work is shown. Shorter work is never shown.
    const MOMENT: Duration = Duration::from_secs(1);
    /// Time between lines.
    const SILENCE: Duration = Duration::from_secs(10);

    /// Begins to show the work. Dropping the value ends the display.
    pub fn new(shows: Shows) -> Self {
        let style = ProgressStyle::with_template("{spinner} {msg}, {elapsed}");
        let style = style.expect("the template is a constant");
        let spinner = ProgressBar::hidden().with_style(style);
        let (busy, done) = channel();
        let teller = (shows != Shows::Nothing).then(|| {
            let spinner = spinner.clone();
            // If the system can start no thread, nothing is shown.
            thread::Builder::new().spawn(move || tell(&spinner, shows, &done)).ok()
        });
        let teller = teller.flatten();
        Self { spinner, busy: Some(busy), teller }
    }

    /// Sets the text about the current part of the work.
    pub fn at(&self, what: impl Into<String>) {
        self.spinner.set_message(what.into());
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        drop(self.busy.take());
        if let Some(teller) = self.teller.take() {
            // Ignore a panic of the thread, because only the display is lost.
            let _ = teller.join();
        }
    }
}

fn tell(spinner: &ProgressBar, shows: Shows, done: &Receiver<()>) {
    if !is_busy_after(Waiting::MOMENT, done) {
        return;
    }
    if shows == Shows::Bars {
        let spinner = BARS.add(spinner.clone());
        turn(&spinner);
        let _ = done.recv();
        spinner.finish_and_clear();
    } else {
        tell_in_lines(spinner, Waiting::SILENCE, done, say);
    }
}

/// Prints lines until the work is done. The first line is printed at once, because the work has
/// already taken a second.
fn tell_in_lines(
    spinner: &ProgressBar,
    silence: Duration,
    done: &Receiver<()>,
    mut say: impl FnMut(String),
) {
    let mut told = spinner.message();
    say(format!("{told} ..."));
    while is_busy_after(silence, done) {
        let message = spinner.message();
        let elapsed = spinner.elapsed().as_secs();
        say(match message == told {
            true => format!("{message}, {elapsed} s so far ..."),
            false => format!("{message} ..."),
        });
        told = message;
    }
}

/// Whether the work still goes on after `time`. Returns earlier if the work ends.
fn is_busy_after(time: Duration, done: &Receiver<()>) -> bool {
    done.recv_timeout(time) == Err(RecvTimeoutError::Timeout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ongoing_work_is_told_until_it_is_done() {
        let (busy, done) = channel::<()>();
        let (lines, told) = channel();
        let spinner = ProgressBar::hidden();
        spinner.set_message("one");
        let shown = spinner.clone();
        let teller = thread::spawn(move || {
            let say = |line| lines.send(line).unwrap();
            tell_in_lines(&shown, Duration::from_millis(1), &done, say);
        });
        assert_eq!(told.recv().unwrap(), "one ...");
        assert_eq!(told.recv().unwrap(), "one, 0 s so far ...");
        spinner.set_message("two");
        while told.recv().unwrap() != "two ..." {}
        drop(busy);
        teller.join().unwrap();
    }

    #[test]
    fn of_work_that_is_done_nothing_is_told() {
        let (busy, done) = channel::<()>();
        drop(busy);
        // The call returns at once.
        assert!(!is_busy_after(Duration::MAX, &done));
    }
}
