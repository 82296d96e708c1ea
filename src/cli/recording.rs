//! `--record`: the trace of a run, in whole steps.

use flate2::Compression;
use flate2::write::GzEncoder;
use remat::trace::{Event, Recorder, WholeFile};
use std::io::{self, BufWriter, Stdout, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Writes the trace of a run, and leaves nothing of one that fails. Half a step, cut off where memory ran
/// out or somebody pressed Ctrl-C, is not what someone who replays a file expects in it.
#[derive(Debug)]
pub struct Recording {
    /// `None` once finished, or given up.
    lines: Option<Lines>,
    /// Events since the last step's end, as lines.
    step: Vec<u8>,
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
        Ok(Self {
            lines: Some(Lines::create(path)?),
            step: Vec::new(),
            left: steps,
            is_begun: false,
            error: None,
            finished: Arc::clone(&finished.0),
        })
    }

    /// Brings what was written to safety.
    fn close(&mut self) {
        if let Some(Err(error)) = self.lines.take().map(Lines::finish) {
            self.error.get_or_insert(error);
        }
    }
}

impl Recorder for Recording {
    fn record(&mut self, event: &Event) {
        let Some(lines) = &mut self.lines else { return };
        let mut written = serde_json::to_writer(&mut self.step, event).map_err(io::Error::from);
        self.step.push(b'\n');
        if *event == Event::Step {
            self.left -= 1;
            self.is_begun = true;
            written = written.and_then(|()| lines.write(&self.step));
            self.step.clear();
        }
        if let Err(error) = written {
            self.error = Some(error);
            self.lines = None;
        } else if self.left == 0 {
            // Safe from whatever happens to the rest of the run.
            self.close();
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

/// Where lines go.
#[derive(Debug)]
enum Lines {
    File(WholeFile),
    Packed(GzEncoder<WholeFile>),
    Stdout(BufWriter<Stdout>),
}

impl Lines {
    fn create(path: &Path) -> io::Result<Self> {
        if path.as_os_str() == "-" {
            return Ok(Self::Stdout(BufWriter::new(io::stdout())));
        }
        let file = WholeFile::create(path)?;
        Ok(match path.extension().is_some_and(|extension| extension == "gz") {
            true => Self::Packed(GzEncoder::new(file, Compression::default())),
            false => Self::File(file),
        })
    }

    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        match self {
            Self::File(file) => file.write_all(lines),
            Self::Packed(file) => file.write_all(lines),
            // At once: somebody may be reading along.
            Self::Stdout(stdout) => {
                unless_reader_left(stdout.write_all(lines).and_then(|()| stdout.flush()))
            }
        }
    }

    fn finish(self) -> io::Result<()> {
        match self {
            Self::File(file) => file.finish(),
            Self::Packed(file) => file.finish()?.finish(),
            Self::Stdout(mut stdout) => unless_reader_left(stdout.flush()),
        }
    }
}

/// A reader that has gone has seen enough.
fn unless_reader_left(written: io::Result<()>) -> io::Result<()> {
    written.or_else(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(error),
    })
}
