//! Files that are asked for on the command line: stdout if they are called `-`.

use super::failure::Failure;
use super::terminal::print_result;
use remat::trace::WholeFile;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// A result that will be written in one piece.
pub enum Output {
    Stdout,
    File(WholeFile, PathBuf),
}

impl Output {
    /// Starts the file now, for what cannot be written should be known before the work, not after.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        if path.as_os_str() == "-" {
            return Ok(Self::Stdout);
        }
        let file = WholeFile::create(path).map_err(|e| Failure::writing(path, e))?;
        Ok(Self::File(file, path.to_owned()))
    }

    /// Writes and finishes.
    pub fn deliver(self, text: &str) -> Result<(), Failure> {
        match self {
            Self::Stdout => print_result(text),
            Self::File(mut file, path) => {
                let text = format!("{}\n", text.trim_end());
                let written = file.write_all(text.as_bytes()).and_then(|()| file.finish());
                written.map_err(|e| Failure::writing(&path, e))
            }
        }
    }
}

/// Says so if two outputs have the same name.
pub fn check_distinct(outputs: &[(&str, &Option<PathBuf>)]) -> Result<(), Failure> {
    for (i, (option, path)) in outputs.iter().enumerate() {
        let same = outputs[..i].iter().find(|(_, other)| path.is_some() && other == path);
        if let Some((other, _)) = same {
            return Err(Failure::usage(format!(
                "{other} and {option} name the same file; give each its own"
            )));
        }
    }
    Ok(())
}
