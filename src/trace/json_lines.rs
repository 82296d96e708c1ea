use super::{Event, Recorder, WholeFile};
use std::io::{self, Write as _};
use std::path::Path;

/// Writes events as JSON Lines. The file appears under its name when the run is over, so a file with
/// that name is always whole.
#[derive(Debug)]
pub struct JsonLines {
    /// `None` once finished, or given up.
    file: Option<WholeFile>,
    error: Option<io::Error>,
}

impl JsonLines {
    /// Starts a file beside `path`, with `.partial` added to its name; see [`WholeFile`].
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        Ok(Self { file: Some(WholeFile::create(path)?), error: None })
    }
}

impl Recorder for JsonLines {
    fn record(&mut self, event: &Event) {
        let Some(file) = &mut self.file else { return };
        let written = serde_json::to_writer(&mut *file, event).map_err(io::Error::from);
        if let Err(error) = written.and_then(|()| file.write_all(b"\n")) {
            self.error = Some(error);
            self.file = None;
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        match (self.error.take(), self.file.take()) {
            (Some(error), _) => Err(error),
            (None, file) => file.map_or(Ok(()), WholeFile::finish),
        }
    }
}
