//! A sign of life from work of unknown length.

use super::terminal::{BARS, Shows, say};
use indicatif::{ProgressBar, ProgressStyle};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Tells what the program is busy with, if that takes longer than a moment: on a terminal as a spinner,
/// else as a line now and then.
pub struct Waiting {
    /// Invisible at first. Its message is what is told.
    spinner: ProgressBar,
    /// Dropped when the work is done.
    busy: Option<Sender<()>>,
    teller: Option<JoinHandle<()>>,
}

impl Waiting {
    /// Nothing is told of work that takes no longer.
    const MOMENT: Duration = Duration::from_secs(1);
    /// Between lines.
    const SILENCE: Duration = Duration::from_secs(10);
    /// Between turns of the spinner.
    const TURN: Duration = Duration::from_millis(100);

    /// From now until it is dropped.
    pub fn new(shows: Shows) -> Self {
        let style = ProgressStyle::with_template("{spinner} {msg}, {elapsed}");
        let style = style.expect("the template is a constant");
        let spinner = ProgressBar::hidden().with_style(style);
        let (busy, done) = channel();
        let teller = (shows != Shows::Nothing).then(|| {
            let spinner = spinner.clone();
            std::thread::spawn(move || tell(&spinner, shows, &done))
        });
        Self { spinner, busy: Some(busy), teller }
    }

    /// What the work is at.
    pub fn at(&self, what: impl Into<String>) {
        self.spinner.set_message(what.into());
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        drop(self.busy.take());
        if let Some(teller) = self.teller.take() {
            // One that panicked has told what it could.
            let _ = teller.join();
        }
    }
}

fn tell(spinner: &ProgressBar, shows: Shows, done: &Receiver<()>) {
    let is_over = |after| done.recv_timeout(after) != Err(RecvTimeoutError::Timeout);
    if is_over(Waiting::MOMENT) {
        return;
    }
    if shows == Shows::Bars {
        let spinner = BARS.add(spinner.clone());
        spinner.enable_steady_tick(Waiting::TURN);
        let _ = done.recv();
        spinner.finish_and_clear();
        return;
    }
    loop {
        say(format_args!("{} ...", spinner.message()));
        if is_over(Waiting::SILENCE) {
            return;
        }
    }
}
