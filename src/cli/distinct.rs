//! Check that a command neither overwrites an input nor writes a file twice.

use super::failure::Failure;
use super::output::{is_standard, is_stdout};
use remat::unstable::files::WholeFile;
use std::path::{Path, PathBuf};

/// Input of a command.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// A file, or a folder of files.
    pub path: &'a Path,
    /// Option of an output that may have the same path, because the output is written only after
    /// the whole input was read.
    pub may_become: Option<&'static str>,
}

impl<'a> Input<'a> {
    /// Inputs that must stay unchanged.
    pub fn kept<P: AsRef<Path> + ?Sized + 'a>(paths: impl IntoIterator<Item = &'a P>) -> Vec<Self> {
        paths.into_iter().map(|path| Self { path: path.as_ref(), may_become: None }).collect()
    }
}

/// Fails if two outputs are the same file, or if an output would overwrite an input. Symbolic and
/// hard links to a file count as the file. `outputs` has the option of each output, for the error
/// message.
pub fn check(
    outputs: &[(&'static str, &Option<PathBuf>)],
    inputs: &[Input<'_>],
) -> Result<(), Failure> {
    let outputs = outputs.iter().filter_map(|(option, path)| Some((*option, path.as_deref()?)));
    let outputs: Vec<_> = outputs.collect();
    for (i, &(option, path)) in outputs.iter().enumerate() {
        let is_taken = |&&(_, other): &&(_, &Path)| is_same_output(path, other);
        if let Some((other, _)) = outputs[..i].iter().find(is_taken) {
            return Err(Failure::usage(match is_stdout(path) {
                true => format!(
                    "{other} and {option} both write to stdout; name a file for one of them"
                ),
                false => format!(
                    "{other} and {option} name the same file; give each option its own file"
                ),
            }));
        }
        if is_stdout(path) {
            continue;
        }
        for input in inputs {
            let is_itself = input.may_become != Some(option) && reads(input.path, path);
            if is_itself || reads(input.path, &WholeFile::partial(path)) {
                let input = input.path.display();
                return Err(Failure::usage(format!(
                    "{option} would overwrite {input}, which is an input; name another file"
                )));
            }
        }
    }
    Ok(())
}

fn is_same_output(a: &Path, b: &Path) -> bool {
    match (is_stdout(a), is_stdout(b)) {
        (false, false) if is_ordinary(a) && is_ordinary(b) => {
            let [of_a, of_b] = [a, b].map(Place::of);
            let [until_a, until_b] = [a, b].map(|path| Place::of(&WholeFile::partial(path)));
            of_a == of_b || of_a == until_b || of_b == until_a
        }
        (false, false) => false,
        (a, b) => a && b,
    }
}

/// Whether the path is a regular file or does not exist yet. An output would replace the content of
/// a regular file.
fn is_ordinary(path: &Path) -> bool {
    path.metadata().map_or(true, |found| found.is_file())
}

/// Whether `output` is the file `input`, or a file in the folder `input`.
fn reads(input: &Path, output: &Path) -> bool {
    let input = if is_standard(input) { Path::new("/dev/stdin") } else { input };
    if !output.metadata().is_ok_and(|found| found.is_file()) {
        // An output that is not a regular file overwrites nothing.
        return false;
    }
    let place = Place::of(output);
    Place::of(input) == place || (input.is_dir() && holds(input, &place, DEPTH))
}

/// Number of levels of subfolders to search. Data has a folder for each part, which has a folder
/// for each class, which has the images.
const DEPTH: usize = 4;

fn holds(folder: &Path, place: &Place, depth: usize) -> bool {
    let Ok(entries) = folder.read_dir() else { return false };
    entries.flatten().map(|entry| entry.path()).any(|path| match path.is_dir() {
        true => depth > 0 && holds(&path, place, depth - 1),
        false => Place::of(&path) == *place,
    })
}

/// Identity of a file. All names of a file, such as links, have the same identity.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// An existing file: the numbers of its file system and of the file.
    #[cfg(unix)]
    File(u64, u64),
    /// A file that does not exist yet, by its folder and name.
    Name(PathBuf),
}

impl Place {
    fn of(path: &Path) -> Self {
        #[cfg(unix)]
        if let Ok(found) = path.metadata() {
            use std::os::unix::fs::MetadataExt as _;
            return Self::File(found.dev(), found.ino());
        }
        Self::Name(path.canonicalize().unwrap_or_else(|_| {
            // If the path is a link to a missing file, follow the link once.
            let path = path.read_link().map_or_else(
                |_| path.to_owned(),
                |to| path.parent().unwrap_or(Path::new("")).join(to),
            );
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            let folder = folder.unwrap_or(Path::new(".")).canonicalize();
            match (folder, path.file_name()) {
                (Ok(folder), Some(name)) => folder.join(name),
                _ => path,
            }
        }))
    }
}
