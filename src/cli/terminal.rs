//! Stdout for results, stderr for all else.

use super::failure::Failure;
use indicatif::MultiProgress;
use std::io::{self, IsTerminal as _, Write};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::Level;
use tracing_subscriber::filter::{LevelFilter, Targets, filter_fn};
use tracing_subscriber::fmt;
use tracing_subscriber::prelude::*;

/// The progress bars that are on stderr now.
pub static BARS: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);

/// Whether all of this is held back.
static MUTED: AtomicBool = AtomicBool::new(false);

/// Does `work`, a rehearsal whose events would only confuse.
pub fn muted<R>(work: impl FnOnce() -> R) -> R {
    MUTED.store(true, Ordering::Relaxed);
    let done = work();
    MUTED.store(false, Ordering::Relaxed);
    done
}

/// Writes to stderr, above the progress bars.
struct AboveBars;

impl Write for AboveBars {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if MUTED.load(Ordering::Relaxed) {
            return Ok(bytes.len());
        }
        BARS.suspend(|| io::stderr().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Says something on stderr. If nobody listens, so be it.
pub fn say(line: impl std::fmt::Display) {
    let _ = AboveBars.write_all(format!("{line}\n").as_bytes());
}

/// Prints a result. A reader that has gone has seen enough.
pub fn print_result(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match writeln!(stdout, "{}", text.trim_end()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(format!("stdout: {error}")))
        }
        _ => Ok(()),
    }
}

/// Whether events of the engine were asked for.
pub fn is_logging() -> bool {
    wanted_events().is_some()
}

/// Such as `remat=debug`.
fn wanted_events() -> Option<String> {
    let wanted = std::env::var_os("RUST_LOG")?;
    (!wanted.is_empty()).then(|| wanted.to_string_lossy().into_owned())
}

/// Shows the engine's events on stderr: what `RUST_LOG` says, else warnings. Not errors: those end the
/// run, and are told then.
pub fn start_logging() {
    let warnings = || {
        let filter = filter_fn(|event| *event.level() == Level::WARN);
        filter.with_max_level_hint(LevelFilter::WARN)
    };
    let events = fmt::layer()
        .with_timer(fmt::time::uptime())
        .with_ansi(io::stderr().is_terminal())
        .with_writer(|| AboveBars);
    let registry = tracing_subscriber::registry();
    match wanted_events().map(|wanted| wanted.parse::<Targets>()).transpose() {
        Ok(Some(filter)) => registry.with(events.with_filter(filter)).init(),
        Ok(None) => registry.with(events.with_filter(warnings())).init(),
        Err(error) => {
            registry.with(events.with_filter(warnings())).init();
            say(format_args!("warning: RUST_LOG: {error}"));
        }
    }
}
