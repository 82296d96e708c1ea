//! Recordings as text, with one entry on each line, as a JSON object.

use super::{Entry, Recorder};
use crate::files::WholeFile;
use std::fmt;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Writes entries as JSON Lines. The last line marks the recording as complete.
///
/// ```
/// use remat::Runtime;
/// use remat::trace::JsonLines;
///
/// let path = std::env::temp_dir().join(format!("remat-lines-{}.jsonl.gz", std::process::id()));
/// let runtime = Runtime::builder().budget("1MiB").record(JsonLines::create(&path)?).sim()?;
/// runtime.step()?;
/// runtime.finish_recording()?;
/// # std::fs::remove_file(path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct JsonLines {
    /// Writer of the lines; `None` after the end of the recording, or after a failed write.
    lines: Option<Box<dyn Sink>>,
    error: Option<io::Error>,
}

/// Writer whose output is complete only after a call of `finish`.
trait Sink: Write + Send {
    /// Writes the buffered bytes, and ends the output.
    fn finish(self: Box<Self>) -> io::Result<()>;
}

impl Sink for WholeFile {
    fn finish(self: Box<Self>) -> io::Result<()> {
        Self::finish(*self)
    }
}

impl<W: Write + Send> Sink for BufWriter<W> {
    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.flush()
    }
}

impl JsonLines {
    /// Creates a file, compressed if its name ends in `.gz`. The file appears under its name only
    /// when the recording is finished, so no incomplete file has this name; see [`WholeFile`].
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        Ok(Self { lines: Some(Box::new(WholeFile::create(path)?)), error: None })
    }

    /// Writes to any writer, such as stdout. Without [`Recorder::finish`], the last line is
    /// missing. A reader recognizes an incomplete recording by the missing last line.
    #[must_use]
    pub fn to(writer: impl Write + Send + 'static) -> Self {
        Self { lines: Some(Box::new(BufWriter::new(writer))), error: None }
    }
}

impl Recorder for JsonLines {
    fn record(&mut self, entry: &Entry) {
        let Some(lines) = &mut self.lines else { return };
        let written = serde_json::to_writer(&mut *lines, entry).map_err(io::Error::from);
        if let Err(error) = written.and_then(|()| lines.write_all(b"\n")) {
            self.error = Some(error);
            self.lines = None;
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        self.record(&Entry::End);
        match (self.error.take(), self.lines.take()) {
            (Some(error), _) => Err(error),
            (None, lines) => lines.map_or(Ok(()), Sink::finish),
        }
    }
}

impl fmt::Debug for JsonLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JsonLines").field("error", &self.error).finish_non_exhaustive()
    }
}
