//! `--record`: the trace of a run, in whole steps.

use remat::trace::{Event, JsonLines, Recorder};
use std::io::{self, Stdout, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Writes the trace of a run, and leaves nothing of one that fails. Half a step, cut off where memory ran
/// out or somebody pressed Ctrl-C, is not what someone who replays a file expects in it.
#[derive(Debug)]
pub struct Recording {
    /// `None` once finished, or given up.
    lines: Option<JsonLines>,
    /// Events since the last step's end.
    step: Vec<Event>,
    /// Steps that are still to be written.
    left: usize,
    /// Whether a step was written.
    is_begun: bool,
    /// What went wrong first.
    error: Option<io::Error>,
    finished: Arc<AtomicBool>,
}

/// Says that a run has come to an end that is worth keeping.
#[derive(Clone, Debug, Default)]
pub struct Finished(Arc<AtomicBool>);

impl Finished {
    /// What was recorded so far is all there is.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Recording {
    /// Starts to record so many steps: in a file, packed if its name ends in `.gz`, or on stdout if it is
    /// called `-`.
    pub fn create(path: &Path, steps: usize, finished: &Finished) -> io::Result<Self> {
        let lines = match path.as_os_str() == "-" {
            true => JsonLines::to(UntilReaderLeaves(io::stdout())),
            false => JsonLines::create(path)?,
        };
        Ok(Self {
            lines: Some(lines),
            step: Vec::new(),
            left: steps,
            is_begun: false,
            error: None,
            finished: Arc::clone(&finished.0),
        })
    }

    /// Brings what was written to safety.
    fn close(&mut self) {
        if let Some(Err(error)) = self.lines.take().map(|mut lines| lines.finish()) {
            self.error.get_or_insert(error);
        }
    }
}

impl Recorder for Recording {
    fn record(&mut self, event: &Event) {
        let Some(lines) = &mut self.lines else { return };
        self.step.push(event.clone());
        if *event == Event::Step {
            self.left -= 1;
            self.is_begun = true;
            self.step.drain(..).for_each(|event| lines.record(&event));
            if self.left == 0 {
                // Safe from whatever happens to the rest of the run.
                self.close();
            }
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        if self.is_begun && self.finished.load(Ordering::Relaxed) {
            self.close();
        }
        self.lines = None;
        self.error.take().map_or(Ok(()), Err)
    }
}

/// Stdout. A reader that has gone has seen enough.
#[derive(Debug)]
struct UntilReaderLeaves(Stdout);

impl Write for UntilReaderLeaves {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        unless_it_left(self.0.write(bytes), bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        unless_it_left(self.0.flush(), ())
    }
}

fn unless_it_left<T>(written: io::Result<T>, all: T) -> io::Result<T> {
    written.or_else(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Ok(all),
        _ => Err(error),
    })
}
