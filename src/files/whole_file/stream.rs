//! Outputs that are written to directly, not replaced by a new file: files that the program has
//! open, and `/dev/null`.

use std::fs::File;
use std::io;
use std::path::Path;

/// Opens the stream with the name `path` for writing. `None` if the name is neither `/dev/null` nor
/// the name of an open file.
#[cfg(unix)]
pub fn open(path: &Path) -> Option<io::Result<File>> {
    use std::os::fd::AsFd as _;
    let number = number(path);
    let is_null = path == Path::new("/dev/null");
    match number {
        // The handles of stdout and stderr are duplicated. If the file were opened a second time,
        // it would have a second write position, and writes would overwrite the program's output.
        Some(1) => Some(io::stdout().as_fd().try_clone_to_owned().map(File::from)),
        Some(2) => Some(io::stderr().as_fd().try_clone_to_owned().map(File::from)),
        Some(_) => Some(reopen(path)),
        None if is_null => Some(File::options().write(true).open(path)),
        None => None,
    }
}

#[cfg(not(unix))]
pub fn open(_: &Path) -> Option<io::Result<File>> {
    None
}

/// Number of the open file (file descriptor) that the name stands for.
#[cfg(unix)]
fn number(path: &Path) -> Option<u32> {
    let name = path.to_str()?;
    match name {
        "/dev/stdin" => return Some(0),
        "/dev/stdout" => return Some(1),
        "/dev/stderr" => return Some(2),
        _ => {}
    }
    let digits =
        ["/dev/fd/", "/proc/self/fd/"].iter().find_map(|folder| name.strip_prefix(folder))?;
    digits.parse().ok()
}

/// Opens an open file of the program a second time. Fails for a pipe without a reader; without
/// `NONBLOCK`, opening would wait for a reader.
#[cfg(unix)]
fn reopen(path: &Path) -> io::Result<File> {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    use std::os::unix::fs::OpenOptionsExt as _;
    let waits_not = OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().append(true).custom_flags(waits_not).open(path)?;
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn streams_are_known_by_name() {
        for (name, expected) in [
            ("/dev/stdout", Some(1)),
            ("/dev/stderr", Some(2)),
            ("/dev/fd/63", Some(63)),
            ("/proc/self/fd/1", Some(1)),
            ("/dev/fd/", None),
            ("/dev/fd/a", None),
            ("/dev/full", None),
            ("fd/1", None),
        ] {
            assert_eq!(number(Path::new(name)), expected, "{name}");
        }
    }
}
