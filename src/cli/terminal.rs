//! Stdout for results, stderr for all else.

use super::failure::Failure;
use indicatif::MultiProgress;
use std::io::{self, IsTerminal as _, Write};
use std::sync::LazyLock;
use tracing_subscriber::EnvFilter;

/// The progress bars that are on stderr now.
pub static BARS: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);

/// Writes to stderr, above the progress bars.
struct AboveBars;

impl Write for AboveBars {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
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
    std::env::var_os(EnvFilter::DEFAULT_ENV).is_some_and(|filter| !filter.is_empty())
}

/// Shows the engine's events on stderr: warnings, or what `RUST_LOG` says.
pub fn start_logging() {
    let (filter, wrong) = match EnvFilter::try_from_default_env() {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new("warn"), is_logging().then_some(error)),
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_timer(tracing_subscriber::fmt::time::uptime())
        .with_ansi(io::stderr().is_terminal())
        .with_writer(|| AboveBars)
        .init();
    if let Some(error) = wrong {
        say(format_args!("warning: {}: {error}", EnvFilter::DEFAULT_ENV));
    }
}
