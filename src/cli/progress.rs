//! Progress bars and lines.

use super::sync::thread;
use super::terminal::{BARS, Shows, say};
use super::words::Counted;
use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use remat::{ByteSize, Stats};
use std::time::{Duration, Instant};

/// Time between two frames of a spinner.
const TURN: Duration = Duration::from_millis(100);

/// Makes a bar move continuously. Does nothing if the system can start no thread.
pub fn turn(bar: &ProgressBar) {
    if thread::Builder::new().spawn(|| ()).is_ok() {
        bar.enable_steady_tick(TURN);
    }
}

/// Progress in steps or in examples: a bar on a terminal, otherwise a line of text from time to
/// time.
pub struct Progress {
    shows: Shows,
    /// Name of a unit of progress: `step`, `image`.
    of: &'static str,
    bar: ProgressBar,
    /// Progress and time when the last line was printed.
    last: Option<(usize, Instant)>,
    total: usize,
}

impl Progress {
    /// Number of lines in a run, approximately.
    const LINES: usize = 10;
    /// Longest silence: once this time has passed since the last line, the next finished step
    /// prints a line.
    const SILENCE: Duration = Duration::from_secs(10);

    /// Progress of a training with `steps` steps.
    pub fn of_training(steps: usize, shows: Shows) -> Self {
        Self::new(steps, "step", shows, "first step")
    }

    /// Progress of a test on `examples` examples.
    pub fn of_test(examples: usize, of: &'static str, shows: Shows) -> Self {
        if shows == Shows::Lines {
            say(format_args!("testing on {}", Counted(examples as u64, of)));
        }
        let mut progress = Self::new(examples, of, shows, "testing");
        progress.last = Some((0, Instant::now()));
        progress
    }

    fn new(total: usize, of: &'static str, shows: Shows, message: &'static str) -> Self {
        let bar = if shows == Shows::Bars {
            BARS.add(
                ProgressBar::new(total as u64).with_style(style("{msg}")).with_message(message),
            )
        } else {
            ProgressBar::hidden()
        };
        if shows == Shows::Bars {
            // The bar is drawn at once, because the work may end before the first frame of the
            // spinner.
            bar.tick();
            // The bar also moves during a step, because a step may take long.
            turn(&bar);
        }
        Self { shows, of, bar, last: None, total }
    }

    /// Shows the end of step `done`, counted from 1.
    pub fn step(&mut self, done: usize, loss: f32, stats: &Stats) {
        let evictions = Counted(stats.evictions, "eviction");
        if self.shows == Shows::Bars {
            self.bar.set_message(format!("loss {loss:.4}  {}  {evictions}", memory(stats)));
            self.advance(done);
        }
        if self.is_due(done, Self::LINES) {
            say(format_args!(
                "step {done}/{}: loss {loss:.4}, peak {} of {}, {evictions}, {} recomputed",
                self.total,
                ByteSize(stats.peak_bytes),
                ByteSize(stats.budget_bytes),
                HumanCount(stats.recomputed_ops),
            ));
        }
    }

    /// Shows the result of a test after step `step`.
    pub fn test(&mut self, step: usize, told: &str) {
        let line = format_args!("step {step}/{}: test {told}", self.total);
        match self.shows {
            Shows::Bars => self.bar.suspend(|| say(line)),
            Shows::Lines => say(line),
            Shows::Nothing => {}
        }
    }

    /// Shows that `examples` examples have been tested.
    pub fn tested(&mut self, examples: usize) {
        self.advance(examples);
        if examples < self.total && self.is_due(examples, 1) {
            say(format_args!(
                "tested {} of {}",
                HumanCount(examples as u64),
                Counted(self.total as u64, self.of)
            ));
        }
    }

    /// Moves the bar. The bar shows the remaining time only after the first finished step or
    /// example.
    fn advance(&self, done: usize) {
        if self.bar.position() == 0 {
            self.bar.set_style(style("{msg}  {eta} left"));
        }
        self.bar.set_position(done as u64);
    }

    /// Whether a line is due, if the whole run prints about `lines` lines.
    fn is_due(&mut self, done: usize, lines: usize) -> bool {
        let is_due = self.shows == Shows::Lines
            && self.last.is_none_or(|(before, time)| {
                done == self.total
                    || (done - before) * lines >= self.total
                    || time.elapsed() >= Self::SILENCE
            });
        if is_due {
            self.last = Some((done, Instant::now()));
        }
        is_due
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn style(end: &str) -> ProgressStyle {
    let template = format!("{{spinner}} {{pos}}/{{len}} {{wide_bar}} {end}");
    let style = ProgressStyle::with_template(&template).expect("templates are constants");
    style.progress_chars("━╸─")
}

/// Memory in use and the budget: `2.1 of 7.4 MiB in use`.
fn memory(stats: &Stats) -> String {
    let budget = ByteSize(stats.budget_bytes).to_string();
    let unit = budget.split_once(' ').map_or("B", |(_, unit)| unit);
    let scale = format!("1{unit}").parse().map_or(1, |ByteSize(bytes)| bytes) as f64;
    let [used, budget] = [stats.used_bytes, stats.budget_bytes].map(|bytes| bytes as f64 / scale);
    format!("{used:.1} of {budget:.1} {unit} in use")
}
