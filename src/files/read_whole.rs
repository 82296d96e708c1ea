//! Reading of whole files, with a limit on their size.

use remat_memory::ByteSize;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Reads a file of at most `most` bytes. `what` names the contents in error messages, in the
/// plural: "plans", for example.
///
/// # Errors
/// If the file has more than `most` bytes, cannot be read, or is not a regular file. Pipes and
/// devices are refused, because reading a pipe may wait for ever, and reading a device may never
/// end.
pub fn read_whole(path: &Path, what: &str, most: u64) -> io::Result<Vec<u8>> {
    let refused = |message| Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    let found = path.metadata()?;
    if !found.is_file() {
        return refused("not a regular file".to_owned());
    }
    let mut bytes = Vec::new();
    // The file may grow while it is read. If `most + 1` bytes can be read, the file has become too
    // large.
    if found.len() <= most {
        File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    }
    match found.len().max(bytes.len() as u64) {
        length if length > most => {
            let [length, most] = ByteSize::apart(length, most);
            refused(format!("the file has {length}, but {what} have at most {most}"))
        }
        _ => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_whole_or_refused() {
        let folder = std::env::temp_dir().join(format!("remat-whole-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("a");
        assert_eq!(read_whole(&path, "notes", 4).unwrap_err().kind(), io::ErrorKind::NotFound);
        std::fs::write(&path, "four").unwrap();
        assert_eq!(read_whole(&path, "notes", 4).unwrap(), b"four");
        let refused = read_whole(&path, "notes", 3).unwrap_err().to_string();
        assert_eq!(refused, "the file has 4 B, but notes have at most 3 B");
        let refused = read_whole(&folder, "notes", 3).unwrap_err().to_string();
        assert_eq!(refused, "not a regular file");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
