//! The terminal: stdout for results, stderr for all other text.

use super::failure::{Failure, INTERRUPTED};
use super::sync::LazyLock;
use super::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use super::wrap::Stream;
use anstream::{AutoStream, ColorChoice};
use clap::builder::Styles;
use indicatif::{MultiProgress, ProgressDrawTarget};
use remat::tune::is_rehearsing;
use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write};
use tracing::{Level, Metadata};
use tracing_subscriber::filter::{
    FilterExt as _, LevelFilter, Targets, dynamic_filter_fn, filter_fn,
};
use tracing_subscriber::fmt;
use tracing_subscriber::prelude::*;

/// Progress bars on stderr.
pub static BARS: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);

/// Whether progress is shown at all.
static PROGRESS: AtomicBool = AtomicBool::new(true);

/// Number of running replays. While this number is above 0, tracing events are dropped.
static REPLAYS: AtomicUsize = AtomicUsize::new(0);

/// Way to show progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shows {
    /// Progress bars, on a terminal.
    Bars,
    /// A line from time to time. Lines are for a stderr that is not a terminal, or that shows
    /// logged events of the engine.
    Lines,
    Nothing,
}

impl Shows {
    /// Way to show progress in the current run.
    pub fn now(quiet: bool) -> Self {
        if quiet || !PROGRESS.load(Ordering::Relaxed) {
            Self::Nothing
        } else if has_bars() && !is_logging() {
            Self::Bars
        } else {
            Self::Lines
        }
    }
}

/// Whether bars can be drawn on stderr.
fn has_bars() -> bool {
    io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|name| name != "dumb")
}

/// Hides all bars and lines of progress from now on.
pub fn hide_progress() {
    PROGRESS.store(false, Ordering::Relaxed);
    BARS.set_draw_target(ProgressDrawTarget::hidden());
}

/// Applies `--color`. The function is called before the arguments are parsed, because errors in the
/// arguments are printed in color.
pub fn set_color(args: impl Iterator<Item = String>) {
    let choice = color(args).unwrap_or_default();
    match choice {
        clap::ColorChoice::Auto => ColorChoice::Auto,
        clap::ColorChoice::Always => ColorChoice::Always,
        clap::ColorChoice::Never => ColorChoice::Never,
    }
    .write_global();
}

/// Value of the last `--color` in the arguments, if the value is valid.
fn color(args: impl Iterator<Item = String>) -> Option<clap::ColorChoice> {
    let args: Vec<String> = args.take_while(|arg| arg != "--").collect();
    let value = |i: usize| match args[i].strip_prefix("--color")? {
        "" => args.get(i + 1).map(String::as_str),
        rest => rest.strip_prefix('='),
    };
    (0..args.len()).rev().find_map(value)?.parse().ok()
}

/// Runs `work`, a replay, and drops the tracing events of the replay.
pub fn muted<R>(work: impl FnOnce() -> R) -> R {
    REPLAYS.fetch_add(1, Ordering::Relaxed);
    let done = work();
    REPLAYS.fetch_sub(1, Ordering::Relaxed);
    done
}

/// Writer to stderr. The written text appears above the progress bars.
struct AboveBars;

impl Write for AboveBars {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        BARS.suspend(|| anstream::stderr().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Escapes control characters in a text, because a terminal could execute them as commands.
pub fn harmless(text: &str) -> String {
    let mut harmless = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => harmless.push(c),
            _ if c.is_control() => harmless.extend(c.escape_default()),
            _ => harmless.push(c),
        }
    }
    harmless
}

/// Prints text to stderr, and ignores errors.
pub fn say(text: impl Display) {
    let text = text.to_string();
    let _ = AboveBars.write_all(format!("{}\n", Stream::Stderr.fit(&text)).as_bytes());
}

/// Prints a warning.
pub fn warn(line: impl Display) {
    let style = Styles::styled().get_invalid().bold();
    say(format_args!("{style}warning:{style:#} {line}"));
}

/// Prints an error, the way clap does.
pub fn fail(message: &str) {
    let style = *Styles::styled().get_error();
    say(format_args!("{style}error:{style:#} {}", message.trim_end()));
}

/// Prints a failure, unless it was printed before.
#[must_use]
pub fn tell(failure: Failure) -> Failure {
    // Names of files may have control characters.
    let message = harmless(&failure.to_string());
    match failure.code() {
        _ if failure.is_told() => {}
        INTERRUPTED => say(message),
        _ => fail(&message),
    }
    failure.told_by(false)
}

/// Prints a result for people, with long lines broken on a terminal.
pub fn print_report(text: &str) -> Result<(), Failure> {
    print_result(&Stream::Stdout.fit(text))
}

/// Prints a result for people: to stdout, or to stderr if stdout is taken.
pub fn show(report: &impl Display, stdout_is_taken: bool) -> Result<(), Failure> {
    if stdout_is_taken {
        say(report);
        return Ok(());
    }
    print_report(&report.to_string())
}

/// Prints a result unchanged. A closed pipe is not an error: the reader of the pipe needs no more
/// output.
pub fn print_result(text: &str) -> Result<(), Failure> {
    let mut stdout = anstream::stdout().lock();
    match writeln!(stdout, "{}", text.trim_end()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(format!("stdout: {error}")))
        }
        _ => Ok(()),
    }
}

/// Whether `RUST_LOG` is set.
fn is_logging() -> bool {
    wanted_events().is_some()
}

/// Value of `RUST_LOG`: `remat=debug`, for example.
fn wanted_events() -> Option<String> {
    let wanted = std::env::var_os("RUST_LOG")?;
    (!wanted.is_empty()).then(|| wanted.to_string_lossy().into_owned())
}

/// Starts to log tracing events on stderr: the events that `RUST_LOG` names. Without `RUST_LOG`,
/// only warnings are logged, and with `quiet` nothing. Events of replays and rehearsals are never
/// logged.
pub fn start_logging(quiet: bool) {
    let warnings = || {
        let most = if quiet { LevelFilter::OFF } else { LevelFilter::WARN };
        filter_fn(move |event| !quiet && is_warning(event)).with_max_level_hint(most)
    };
    let no_rehearsal = || {
        let filter =
            dynamic_filter_fn(|_, _| REPLAYS.load(Ordering::Relaxed) == 0 && !is_rehearsing());
        // The hint allows all levels, because the filter for `RUST_LOG` decides about levels.
        filter.with_max_level_hint(LevelFilter::TRACE)
    };
    // A line has only the event, without its enclosing spans, so that lines are easy to read and
    // search.
    let no_span = || {
        let filter = filter_fn(|told| told.is_event());
        filter.with_max_level_hint(LevelFilter::TRACE)
    };
    let hidden = || no_rehearsal().and(no_span());
    let events = fmt::layer()
        .with_timer(fmt::time::uptime())
        .with_ansi(AutoStream::choice(&io::stderr()) != ColorChoice::Never)
        .with_writer(|| AboveBars);
    let registry = tracing_subscriber::registry();
    match wanted_events().map(|wanted| wanted.parse::<Targets>()).transpose() {
        Ok(Some(filter)) => {
            registry.with(events.with_filter(filter.and(hidden()))).init();
        }
        Ok(None) => registry.with(events.with_filter(warnings().and(hidden()))).init(),
        Err(error) => {
            registry.with(events.with_filter(warnings().and(hidden()))).init();
            if !quiet {
                warn(format_args!("RUST_LOG: {error}"));
            }
        }
    }
}

/// Whether an event is shown without `RUST_LOG`: a warning that is not from the engine. In place of
/// warnings of the engine, the program prints its own warnings, which name the option to change.
/// Errors are not shown, because they end the run and are printed at the end.
fn is_warning(event: &Metadata<'_>) -> bool {
    let from_engine = event.module_path().is_some_and(|path| path.starts_with("remat::engine"));
    *event.level() == Level::WARN && !from_engine
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_steers_the_terminal() {
        let text = harmless("a\u{1b}[2J\r\n\tb\u{7}\u{9b}é");
        assert_eq!(text, "a\\u{1b}[2J\\r\n\tb\\u{7}\\u{9b}é");
    }

    #[test]
    fn the_last_color_counts() {
        let color = |args: &str| color(args.split(' ').map(str::to_owned));
        for (args, expected) in [
            ("remat train", None),
            ("remat --color never train", Some(clap::ColorChoice::Never)),
            ("remat train --color=always", Some(clap::ColorChoice::Always)),
            ("remat --color=always train --color auto", Some(clap::ColorChoice::Auto)),
            ("remat --color", None),
            ("remat --color=red", None),
            ("remat --colors=never", None),
            ("remat train -- --color=never", None),
        ] {
            assert_eq!(color(args), expected, "{args}");
        }
    }
}
