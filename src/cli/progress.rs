//! Where a run is, for people.

use super::terminal::{self, BARS, say};
use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use remat::{ByteSize, Stats};
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

/// Shows each step: on a terminal as a bar, else as a line now and then.
pub enum Progress {
    Bar(ProgressBar),
    Lines { steps: usize, last: Option<(usize, Instant)> },
    Silent,
}

impl Progress {
    /// Lines in a run, more or less.
    const LINES: usize = 10;
    /// No longer than this without a line.
    const SILENCE: Duration = Duration::from_secs(10);

    /// For a run of so many steps.
    pub fn new(steps: usize, quiet: bool) -> Self {
        if quiet {
            Self::Silent
        } else if std::io::stderr().is_terminal() && !terminal::is_logging() {
            let style = "{pos:>6}/{len} {wide_bar} {msg} {eta:>4}";
            let style = ProgressStyle::with_template(style).expect("the template is a constant");
            let bar = ProgressBar::new(steps as u64).with_style(style.progress_chars("━╸─"));
            Self::Bar(BARS.add(bar))
        } else {
            Self::Lines { steps, last: None }
        }
    }

    /// Step `done`, counted from 1, is done.
    pub fn step(&mut self, done: usize, loss: f32, stats: &Stats) {
        match self {
            Self::Bar(bar) => {
                bar.set_message(format!(
                    "loss {loss:.4}  {}  {} evictions",
                    memory(stats),
                    HumanCount(stats.evictions)
                ));
                bar.set_position(done as u64);
            }
            Self::Lines { steps, last } => {
                let due = last.is_none_or(|(step, time)| {
                    done == *steps
                        || (done - step) * Self::LINES >= *steps
                        || time.elapsed() >= Self::SILENCE
                });
                if due {
                    *last = Some((done, Instant::now()));
                    say(format_args!(
                        "step {done}/{steps}: loss {loss:.4}, peak {} of {}, {} evictions, {} recomputed",
                        ByteSize(stats.peak_bytes),
                        ByteSize(stats.budget_bytes),
                        HumanCount(stats.evictions),
                        HumanCount(stats.recomputed_ops),
                    ));
                }
            }
            Self::Silent => {}
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

/// Used now, most ever used, and the budget: `2.1, peak 7.3 of 7.4 MiB`.
fn memory(stats: &Stats) -> String {
    let budget = ByteSize(stats.budget_bytes).to_string();
    let unit = budget.split_once(' ').map_or("B", |(_, unit)| unit);
    let scale = format!("1{unit}").parse().map_or(1, |ByteSize(bytes)| bytes) as f64;
    let [used, peak] = [stats.used_bytes, stats.peak_bytes].map(|bytes| bytes as f64 / scale);
    format!("{used:.1}, peak {peak:.1} of {:.1} {unit}", stats.budget_bytes as f64 / scale)
}
