mod stream;

use crate::sync::{Mutex, lock};
use flate2::{Compression, write::GzEncoder};
use std::collections::BTreeSet;
use std::fs::{File, FileType, Metadata, TryLockError};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// A file that appears under its name only when it is complete. If the disk is full or the program
/// is killed, an old file with the same name stays unchanged. If the name ends in `.gz`, the
/// contents are compressed.
///
/// Until the file is complete, it is locked, and has a name that ends in `.partial`, in the same
/// folder. A second program that wants to write the same file gets an error. An unfinished file is
/// removed on drop. A killed program leaves the partial file, and the next file of the same name
/// replaces it.
///
/// Writes go directly to `/dev/null`, and to names of files that the program has open. Examples of
/// names of open files are `/dev/stdout`, and `/dev/fd/63`, which a shell passes for `>(..)`.
///
/// ```
/// use remat::unstable::files::WholeFile;
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
    /// Writer of the contents; `None` after `finish`.
    body: Option<Body>,
    /// `Some((partial, path))` while the file at `partial` is still to be renamed to `path`.
    names: Option<(PathBuf, PathBuf)>,
}

#[derive(Debug)]
enum Body {
    Plain(BufWriter<File>),
    Packed(Box<GzEncoder<BufWriter<File>>>),
}

impl Body {
    fn new(file: File, path: &Path) -> Self {
        let file = BufWriter::new(file);
        if path.extension().is_some_and(|end| end.eq_ignore_ascii_case("gz")) {
            Self::Packed(Box::new(GzEncoder::new(file, Compression::default())))
        } else {
            Self::Plain(file)
        }
    }

    fn writer(&mut self) -> &mut dyn Write {
        match self {
            Self::Plain(file) => file,
            Self::Packed(packer) => packer,
        }
    }

    fn finish(self) -> io::Result<File> {
        let file = match self {
            Self::Plain(file) => file,
            Self::Packed(packer) => packer.finish()?,
        };
        file.into_inner().map_err(io::IntoInnerError::into_error)
    }
}

impl WholeFile {
    /// Starts a file that `finish` renames to `path`.
    ///
    /// # Errors
    /// If the file cannot be created, or another program is writing it. Creating also fails if
    /// `path` is a folder, a named pipe, a socket or a device. A file cannot replace a folder or a
    /// special file, and a write to a pipe may wait for ever.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        let named = path.as_ref();
        if let Some(stream) = stream::open(named) {
            return Ok(Self { body: Some(Body::new(stream?, named)), names: None });
        }
        // Follow links, so that the new file replaces the target of a link, and not the link.
        let path = through_links(named);
        if let Some(kind) = path.metadata().ok().and_then(|found| unfit(&found)) {
            let message = format!("it is {kind}; name a file");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let partial = Self::partial(&path);
        let file = begin(&partial).map_err(|error| missing_folder(&path, error))?;
        lock(&UNFINISHED).insert(partial.clone());
        Ok(Self { body: Some(Body::new(file, named)), names: Some((partial, path)) })
    }

    /// Path of the partial file for `path`. If `path` is a link, the partial file is in the folder
    /// of the target.
    #[must_use]
    pub fn partial(path: &Path) -> PathBuf {
        let mut partial = through_links(path).into_os_string();
        partial.push(".partial");
        partial.into()
    }

    /// Writes the buffered bytes, and renames the partial file to its final name.
    ///
    /// # Errors
    /// If writing or renaming fails. After an error, the partial file is removed.
    pub fn finish(mut self) -> io::Result<()> {
        let Some(body) = self.body.take() else { return Ok(()) };
        let file = body.finish()?;
        if let Some((partial, path)) = &self.names {
            // Some file systems report a full disk only when the file is synced.
            file.sync_all()?;
            std::fs::rename(partial, path)?;
            sync_folder(path);
            forget(partial);
            self.names = None;
        }
        Ok(())
    }

    /// Removes all files that the program has not finished. A program must call `remove_unfinished`
    /// if it ends without dropping its files.
    pub fn remove_unfinished() {
        let unfinished = lock(&UNFINISHED);
        for partial in &*unfinished {
            let _ = std::fs::remove_file(partial);
        }
    }

    fn writer(&mut self) -> &mut dyn Write {
        self.body.as_mut().expect("it is there until `finish`, which takes all").writer()
    }
}

/// Paths of all partial files that the program is writing.
static UNFINISHED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn forget(partial: &Path) {
    lock(&UNFINISHED).remove(partial);
}

fn through_links(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Creates and locks the partial file. Removes a partial file that a killed program left. Fails if
/// another program is writing the partial file.
///
/// The old partial file is removed, not emptied: it may be a hard link to a file of the user.
fn begin(partial: &Path) -> io::Result<File> {
    let left = left(partial)?;
    if left.is_some() {
        std::fs::remove_file(partial)?;
    }
    let created = File::options().create_new(true).write(true).open(partial);
    let file = created.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => is_busy(partial),
        _ => error,
    })?;
    take(&file, partial)?;
    // Unlock the old partial file only after the new file is locked. Until then, another program
    // that opened the old file finds it locked, and gives up.
    drop(left);
    Ok(file)
}

/// Opens and locks the file that a killed program left at `partial`, if any.
fn left(partial: &Path) -> io::Result<Option<File>> {
    // Number of attempts. An attempt fails if the program that held the lock before has just
    // renamed the file or begun a new file.
    const TRIES: usize = 8;
    for _ in 0..TRIES {
        let found = match partial.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            found => found?,
        };
        if let Some(kind) = unfit(&found) {
            let place = partial.display();
            let message = format!("the partial file {place} is {kind}; delete it");
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
        }
        let file = match File::options().write(true).open(partial) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        take(&file, partial)?;
        if is_at(&file, partial)? {
            return Ok(Some(file));
        }
    }
    let place = partial.display();
    let message = format!("the partial file {place} is replaced again and again; delete it");
    Err(io::Error::new(io::ErrorKind::ResourceBusy, message))
}

/// Locks the file. Fails if another program has the lock.
fn take(file: &File, partial: &Path) -> io::Result<()> {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(is_busy(partial)),
        // On a file system without locks, continue without a lock.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(()),
    }
}

fn is_busy(partial: &Path) -> io::Error {
    let message = format!("another program is writing {}", partial.display());
    io::Error::new(io::ErrorKind::ResourceBusy, message)
}

/// Kind of a file that cannot be replaced, in words; `None` for an ordinary file.
fn unfit(found: &Metadata) -> Option<&'static str> {
    let kind = found.file_type();
    if kind.is_file() {
        return None;
    }
    Some(match () {
        () if kind.is_dir() => "a folder",
        () if kind.is_symlink() => "a symbolic link",
        () => unusual(kind),
    })
}

#[cfg(unix)]
fn unusual(kind: FileType) -> &'static str {
    use std::os::unix::fs::FileTypeExt as _;
    if kind.is_fifo() {
        "a named pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

#[cfg(not(unix))]
fn unusual(_: FileType) -> &'static str {
    "not a regular file"
}

/// Makes the new name survive a loss of power, on file systems that can.
#[cfg(unix)]
fn sync_folder(path: &Path) {
    if let Some(folder) = path.parent().and_then(|folder| File::open(folder).ok()) {
        let _ = folder.sync_all();
    }
}

#[cfg(not(unix))]
fn sync_folder(_: &Path) {}

/// Whether `path` still names the open file.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt as _;
    let file = file.metadata()?;
    let found = path.symlink_metadata();
    Ok(found.is_ok_and(|found| (found.dev(), found.ino()) == (file.dev(), file.ino())))
}

#[cfg(not(unix))]
fn is_at(_: &File, path: &Path) -> io::Result<bool> {
    Ok(path.exists())
}

/// Replaces `error` by an error that names the folder, if the folder of `path` does not exist.
fn missing_folder(path: &Path, error: io::Error) -> io::Error {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match folder {
        Some(folder) if error.kind() == io::ErrorKind::NotFound && !folder.exists() => {
            let message = format!("there is no folder {}", folder.display());
            io::Error::new(io::ErrorKind::NotFound, message)
        }
        _ => error,
    }
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer().flush()
    }
}

impl Drop for WholeFile {
    /// Removes the partial file, unless the file was finished.
    fn drop(&mut self) {
        if let Some((partial, _)) = self.names.take() {
            // Windows cannot remove an open file. Other systems remove the file while it is locked,
            // so that it cannot be the partial file of another program.
            if cfg!(windows) {
                self.body = None;
            }
            let _ = std::fs::remove_file(&partial);
            forget(&partial);
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
    fn an_unfinished_file_leaves_the_old_one() {
        let folder = folder("unfinished");
        let path = folder.join("a");
        std::fs::write(&path, "old").unwrap();
        let mut file = WholeFile::create(&path).unwrap();
        file.write_all(b"new").unwrap();
        drop(file);
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), 1);
    }

    #[test]
    fn a_name_in_gz_is_compressed() {
        use std::io::Read as _;
        let folder = folder("packed");
        for name in ["a.gz", "a.jsonl.GZ", "a.csv"] {
            let mut file = WholeFile::create(folder.join(name)).unwrap();
            for _ in 0..10_000 {
                file.write_all(b"the same again\n").unwrap();
            }
            file.finish().unwrap();
            let bytes = std::fs::read(folder.join(name)).unwrap();
            if name == "a.csv" {
                assert_eq!(bytes.len(), 150_000);
                continue;
            }
            assert!(bytes.len() < 5_000, "{}", bytes.len());
            let mut text = String::new();
            flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut text).unwrap();
            assert_eq!(text, "the same again\n".repeat(10_000));
        }
        drop(WholeFile::create(folder.join("b.gz")).unwrap());
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), 3);
    }

    #[test]
    fn a_missing_folder_is_named() {
        let folder = folder("nowhere").join("not").join("there");
        let error = WholeFile::create(folder.join("a")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert_eq!(error.to_string(), format!("there is no folder {}", folder.display()));
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

    #[test]
    fn a_file_is_written_by_one_at_a_time() {
        let path = folder("locked").join("a");
        std::fs::write(path.with_extension("partial"), "left by a killed program, and long")
            .unwrap();
        let mut first = WholeFile::create(&path).unwrap();
        first.write_all(b"first").unwrap();
        let error = WholeFile::create(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
        assert!(error.to_string().starts_with("another program is writing "), "{error}");
        first.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"first");
        WholeFile::create(&path).unwrap().finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn only_open_files_and_null_are_written_to_as_they_are() {
        let folder = folder("unusual");
        let socket = folder.join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for (path, kind) in [
            (Path::new("/dev/full"), "a device"),
            (Path::new("/dev/tty"), "a device"),
            (&socket, "a socket"),
            (&folder, "a folder"),
        ] {
            let said = WholeFile::create(path).unwrap_err().to_string();
            assert_eq!(said, format!("it is {kind}; name a file"), "{}", path.display());
        }
        let mut file = WholeFile::create("/dev/null").unwrap();
        file.write_all(b"lost").unwrap();
        file.finish().unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn links_and_folders_at_the_partial_path_are_neither_followed_nor_emptied() {
        let folder = folder("in-the-way");
        let path = folder.join("a");
        let partial = WholeFile::partial(&path);
        let other = folder.join("other");
        std::fs::write(&other, "mine").unwrap();

        std::os::unix::fs::symlink(&other, &partial).unwrap();
        let said = WholeFile::create(&path).unwrap_err().to_string();
        assert!(said.ends_with("is a symbolic link; delete it"), "{said}");
        std::fs::remove_file(&partial).unwrap();

        std::fs::create_dir(&partial).unwrap();
        let said = WholeFile::create(&path).unwrap_err().to_string();
        assert!(said.ends_with("is a folder; delete it"), "{said}");
        std::fs::remove_dir(&partial).unwrap();

        std::fs::hard_link(&other, &partial).unwrap();
        let mut file = WholeFile::create(&path).unwrap();
        file.write_all(b"new").unwrap();
        file.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(std::fs::read(&other).unwrap(), b"mine");
    }
}
