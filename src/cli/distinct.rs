//! Whether a command would write over what it reads, or twice over one file.

use super::failure::Failure;
use super::output::{is_standard, is_stdout};
use remat::trace::WholeFile;
use std::path::{Path, PathBuf};

/// A file or folder that a command reads.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// A file, or a folder of files.
    pub path: &'a Path,
    /// The output that may take its place: it is written when all of it was read.
    pub may_become: Option<&'static str>,
}

impl<'a> Input<'a> {
    /// Files or folders that stay as they are.
    pub fn kept<P: AsRef<Path> + ?Sized + 'a>(paths: impl IntoIterator<Item = &'a P>) -> Vec<Self> {
        paths.into_iter().map(|path| Self { path: path.as_ref(), may_become: None }).collect()
    }
}

/// Fails if two outputs are one file, or an output is an input: by any name, through symbolic and hard links. Outputs have the
/// options that name them.
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
                true => format!("{other} and {option} both go to stdout; name a file for one"),
                false => format!("{other} and {option} name the same file; give each its own"),
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
                    "{option} would overwrite {input}, which is an input; give another file"
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

/// Whether a file is there that can be lost, or none yet.
fn is_ordinary(path: &Path) -> bool {
    path.metadata().map_or(true, |found| found.is_file())
}

/// Whether `output` is the input, or a file in it.
fn reads(input: &Path, output: &Path) -> bool {
    let input = if is_standard(input) { Path::new("/dev/stdin") } else { input };
    if !output.metadata().is_ok_and(|found| found.is_file()) {
        // There is nothing to lose.
        return false;
    }
    let place = Place::of(output);
    Place::of(input) == place || (input.is_dir() && holds(input, &place, DEPTH))
}

/// Folders of data are so deep at most: parts, classes, and images in them.
const DEPTH: usize = 4;

fn holds(folder: &Path, place: &Place, depth: usize) -> bool {
    let Ok(entries) = folder.read_dir() else { return false };
    entries.flatten().map(|entry| entry.path()).any(|path| match path.is_dir() {
        true => depth > 0 && holds(&path, place, depth - 1),
        false => Place::of(&path) == *place,
    })
}

/// One value for all names of a file.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// A file that is there: the number of its file system, and its own.
    #[cfg(unix)]
    File(u64, u64),
    /// One that is not there yet, by its folder and name.
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
            // A link to what is not there is followed as far as it leads.
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
