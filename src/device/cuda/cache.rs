//! Cache folder for compiled code.
//!
//! Code from the cache folder is executed, so only the user and root may have permission to write
//! to the folder. The folder, its files and all parent folders are checked as `ssh` checks its
//! files. If other users can write to one of these folders or files, the device neither reads code
//! from the cache folder nor keeps code in it.

use crate::sync::atomic::{AtomicU64, Ordering};
use sha2::{Digest as _, Sha256};
use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

/// Cache of compiled code by name.
#[derive(Debug)]
pub(super) struct Cache {
    /// A folder that passed the checks. `None` if no folder was given, or the folder failed the
    /// checks.
    folder: Option<PathBuf>,
}

impl Cache {
    /// Opens a folder; a missing folder is made. If the folder cannot be used, a warning says why.
    pub(super) fn open(folder: Option<PathBuf>) -> Self {
        let folder = folder.and_then(|folder| match trusted(&folder) {
            Ok(folder) => Some(folder),
            Err(error) => {
                tracing::warn!(
                    target: "remat", %error, folder = %folder.display(), "compiled code is not kept"
                );
                None
            }
        });
        Self { folder }
    }

    /// Returns the image kept under `name`. Returns `None` if no image is kept under `name`, or the
    /// file is damaged.
    pub(super) fn get(&self, name: &str) -> Option<Vec<u8>> {
        let path = self.folder.as_ref()?.join(name);
        let mut file = File::open(&path).ok()?;
        closed_to_others(&path, &file.metadata().ok()?).ok()?;
        let mut sealed = Vec::new();
        file.read_to_end(&mut sealed).ok()?;
        unseal(&sealed).map(<[u8]>::to_vec)
    }

    /// Keeps an image under a name. The function writes a temporary file, and renames the file when
    /// it is complete. Concurrent writers therefore never leave an incomplete file.
    pub(super) fn keep(&self, name: &str, image: &[u8]) {
        let Some(folder) = &self.folder else { return };
        // Other threads and processes may write an image of the same name at the same time, so each
        // writer has its own temporary file.
        static DRAFTS: AtomicU64 = AtomicU64::new(0);
        let number = DRAFTS.fetch_add(1, Ordering::Relaxed);
        let draft = folder.join(format!("{name}.{}-{number}.tmp", std::process::id()));
        let written = new_file(&draft)
            .and_then(|mut file| file.write_all(&seal(image)))
            .and_then(|()| std::fs::rename(&draft, folder.join(name)));
        if let Err(error) = written {
            let _ = std::fs::remove_file(&draft);
            tracing::warn!(target: "remat", %error, name, "compiled code is not kept");
        }
    }

    /// Removes the image kept under a name.
    pub(super) fn forget(&self, name: &str) {
        if let Some(folder) = &self.folder {
            let _ = std::fs::remove_file(folder.join(name));
        }
    }
}

/// Puts the digest of an image in front of the image.
fn seal(image: &[u8]) -> Vec<u8> {
    [&Sha256::digest(image)[..], image].concat()
}

/// Returns the image in a file, if the digest matches. The check is necessary, because the driver
/// does not receive a length and would read beyond a truncated image.
fn unseal(file: &[u8]) -> Option<&[u8]> {
    let (digest, image) = file.split_at_checked(32)?;
    (Sha256::digest(image)[..] == *digest).then_some(image)
}

/// Returns the path of the folder without symbolic links, if only the user and root can write to
/// the folder. A missing folder is made, with access for the user only.
fn trusted(folder: &Path) -> io::Result<PathBuf> {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(folder)?;
    let folder = folder.canonicalize()?;
    closed_to_others(&folder, &folder.metadata()?)?;
    // A user who may write to a parent folder could replace the cache folder, unless the parent
    // folder is sticky.
    for above in folder.ancestors().skip(1) {
        let metadata = above.metadata()?;
        if !is_sticky(&metadata) {
            closed_to_others(above, &metadata)?;
        }
    }
    Ok(folder)
}

fn new_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.write(true).create_new(true).open(path)
}

/// Fails unless a file or folder belongs to the user or to root, and no other user may write to it.
#[cfg(unix)]
fn closed_to_others(path: &Path, metadata: &Metadata) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt as _;
    let (owner, mode) = (metadata.uid(), metadata.mode() & 0o7777);
    let path = path.display();
    if owner != 0 && owner != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other(format!("{path} belongs to another user ({owner})")));
    }
    if mode & 0o022 != 0 {
        return Err(io::Error::other(format!(
            "others may write to {path} (mode {mode:04o}); run `chmod go-w {path}`"
        )));
    }
    Ok(())
}

/// Whether a folder is sticky and belongs to root, like `/tmp`: users can rename and remove only
/// their own files in it.
#[cfg(unix)]
fn is_sticky(metadata: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    metadata.mode() & 0o1000 != 0 && metadata.uid() == 0
}

#[cfg(not(unix))]
fn closed_to_others(_path: &Path, _metadata: &Metadata) -> io::Result<()> {
    Ok(())
}

#[cfg(not(unix))]
fn is_sticky(_metadata: &Metadata) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_files_are_not_read() {
        let file = seal(b"code");
        assert_eq!(unseal(&file), Some(&b"code"[..]));
        for damaged in [&file[..35], &file[..32], &file[1..], &[], b"code"] {
            assert_eq!(unseal(damaged), None);
        }
        assert_eq!(unseal(&[&file[..], b"more"].concat()), None);
    }

    #[cfg(unix)]
    mod folders {
        use super::*;
        use std::fs::{Permissions, set_permissions};
        use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

        /// A new folder for one test, in the sticky folder for temporary files.
        fn folder(name: &str) -> PathBuf {
            let folder = std::env::temp_dir().join(format!("remat-{}-{name}", std::process::id()));
            let _ = std::fs::remove_dir_all(&folder);
            std::fs::create_dir(&folder).unwrap();
            allow(&folder, 0o755);
            folder
        }

        fn allow(path: &Path, mode: u32) {
            set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }

        fn mode(path: &Path) -> u32 {
            path.metadata().unwrap().permissions().mode() & 0o7777
        }

        /// Whether a cache keeps code in `inner`, or in the folder that `inner` links to.
        fn is_used(inner: &Path) -> bool {
            let cache = Cache::open(Some(inner.to_owned()));
            cache.keep("name", b"code");
            let found = cache.get("name");
            assert!(found.is_none() || found.as_deref() == Some(b"code"));
            assert_eq!(found.is_some(), inner.join("name").exists());
            cache.forget("name");
            assert!(!inner.join("name").exists());
            found.is_some()
        }

        #[test]
        fn a_new_folder_is_the_users_alone() {
            let outer = folder("new");
            let inner = outer.join("remat/kernels");
            assert!(is_used(&inner));
            assert_eq!((mode(&inner), mode(&outer.join("remat"))), (0o700, 0o700));
            let cache = Cache::open(Some(inner.clone()));
            cache.keep("name", b"code");
            assert_eq!(mode(&inner.join("name")), 0o600);
            std::fs::remove_dir_all(outer).unwrap();
        }

        #[test]
        fn a_folder_that_others_may_write_to_is_not_used() {
            let outer = folder("writable");
            let inner = outer.join("kernels");
            std::fs::create_dir(&inner).unwrap();
            for (mode, used) in [
                (0o755, true),
                (0o700, true),
                (0o770, false),
                (0o775, false),
                (0o707, false),
                (0o1777, false),
            ] {
                allow(&inner, mode);
                assert_eq!(is_used(&inner), used, "{mode:o}");
            }
            allow(&inner, 0o700);
            // If other users can write to the parent folder, the cache does not use the folder.
            for (mode, used) in [(0o755, true), (0o775, false), (0o777, false)] {
                allow(&outer, mode);
                assert_eq!(is_used(&inner), used, "above it, {mode:o}");
            }
            allow(&outer, 0o755);
            // If other users can write to the target of a link, the cache does not use the link.
            let (open, link) = (outer.join("open"), outer.join("link"));
            std::fs::create_dir(&open).unwrap();
            symlink(&open, &link).unwrap();
            for (mode, used) in [(0o777, false), (0o700, true)] {
                allow(&open, mode);
                assert_eq!(is_used(&link), used, "behind a link, {mode:o}");
            }
            std::fs::remove_dir_all(outer).unwrap();
        }

        #[test]
        fn a_file_that_others_may_write_to_is_not_read() {
            let outer = folder("file");
            let cache = Cache::open(Some(outer.join("kernels")));
            cache.keep("name", b"code");
            let file = outer.join("kernels/name");
            for (mode, used) in [(0o644, true), (0o666, false), (0o620, false)] {
                allow(&file, mode);
                assert_eq!(cache.get("name").is_some(), used, "{mode:o}");
            }
            std::fs::remove_dir_all(outer).unwrap();
        }

        /// Only root can give files to another user, so the test does nothing for other users.
        #[test]
        fn files_and_folders_of_another_user_are_not_used() {
            let outer = folder("foreign");
            let inner = outer.join("kernels");
            let cache = Cache::open(Some(inner.clone()));
            cache.keep("name", b"code");
            if chown(inner.join("name"), Some(12_345), None).is_err() {
                println!("skipped: not root");
                return;
            }
            assert_eq!(cache.get("name"), None);
            std::fs::remove_file(inner.join("name")).unwrap();
            chown(&inner, Some(12_345), None).unwrap();
            assert!(!is_used(&inner));
            chown(&inner, Some(0), None).unwrap();
            chown(&outer, Some(12_345), None).unwrap();
            assert!(!is_used(&inner));
            std::fs::remove_dir_all(outer).unwrap();
        }
    }
}
