use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// A file that appears under its name when it is whole, and not before: a full disk or a killed program
/// leaves what was there before.
///
/// What is not an ordinary file (a pipe, a terminal, `/dev/null`) is written to as it is.
///
/// ```
/// use remat::trace::WholeFile;
/// use std::io::Write as _;
///
/// let path = std::env::temp_dir().join(format!("remat-whole-{}", std::process::id()));
/// let mut file = WholeFile::create(&path)?;
/// file.write_all(b"all of it")?;
/// assert!(!path.exists());
/// file.finish()?;
/// assert_eq!(std::fs::read(&path)?, b"all of it");
/// # std::fs::remove_file(path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct WholeFile {
    file: BufWriter<File>,
    /// `Some((partial, path))` iff what is written at `partial` is still to become `path`.
    names: Option<(PathBuf, PathBuf)>,
}

impl WholeFile {
    /// Starts a file beside `path`, with `.partial` added to its name.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        // Through a link, so that the file it leads to is the one replaced.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if path.metadata().is_ok_and(|found| !found.is_file()) {
            let file = File::options().write(true).open(&path)?;
            return Ok(Self { file: BufWriter::new(file), names: None });
        }
        let mut partial = path.clone().into_os_string();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let file = BufWriter::new(File::create(&partial)?);
        Ok(Self { file, names: Some((partial, path)) })
    }

    /// Writes out what is left, and gives the file its name.
    ///
    /// # Errors
    /// If that fails. Nothing is left of the file then.
    pub fn finish(mut self) -> io::Result<()> {
        self.file.flush()?;
        if let Some((partial, path)) = &self.names {
            // Some file systems tell only now that the disk is full.
            self.file.get_ref().sync_all()?;
            std::fs::rename(partial, path)?;
            self.names = None;
        }
        Ok(())
    }
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for WholeFile {
    /// A file that nobody finished is not whole.
    fn drop(&mut self) {
        if let Some((partial, _)) = self.names.take() {
            let _ = std::fs::remove_file(partial);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder =
            std::env::temp_dir().join(format!("remat-whole-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn what_nobody_finished_leaves_the_old_file() {
        let folder = folder("unfinished");
        let path = folder.join("a");
        std::fs::write(&path, "old").unwrap();
        let mut file = WholeFile::create(&path).unwrap();
        file.write_all(b"new").unwrap();
        drop(file);
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn a_link_stays_and_leads_to_the_new_file() {
        let folder = folder("link");
        let (path, link) = (folder.join("a"), folder.join("b"));
        std::fs::write(&path, "old").unwrap();
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let mut file = WholeFile::create(&link).unwrap();
        file.write_all(b"new").unwrap();
        file.finish().unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_device_is_written_to_and_not_replaced() {
        let mut file = WholeFile::create("/dev/full").unwrap();
        file.write_all(b"lost").unwrap();
        assert_eq!(file.finish().unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert!(!Path::new("/dev/full").metadata().unwrap().is_file());
    }
}
