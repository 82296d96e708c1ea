use remat::trace::{Event, JsonLines, Recorder};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Writes the trace of a run that goes to its end, and leaves nothing of any other: half a step, cut off
/// where memory ran out, is not what someone who replays a file expects in it.
#[derive(Debug)]
pub struct Recording {
    lines: Option<JsonLines>,
    finished: Arc<AtomicBool>,
}

/// Says that a run went to its end.
#[derive(Clone, Debug, Default)]
pub struct Finished(Arc<AtomicBool>);

impl Finished {
    /// What was recorded so far is all there is.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Recording {
    /// Starts a file.
    pub fn create(path: &Path, finished: &Finished) -> io::Result<Self> {
        Ok(Self { lines: Some(JsonLines::create(path)?), finished: Arc::clone(&finished.0) })
    }
}

impl Recorder for Recording {
    fn record(&mut self, event: &Event) {
        if let Some(lines) = &mut self.lines {
            lines.record(event);
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        match self.lines.take() {
            Some(mut lines) if self.finished.load(Ordering::Relaxed) => lines.finish(),
            _ => Ok(()),
        }
    }
}
