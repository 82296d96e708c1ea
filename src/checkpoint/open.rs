//! The files of a checkpoint: a single file, or several listed in an index.

use super::header::{Entry, Header, MOST_BYTES, MOST_TENSORS, check_name};
use super::{CheckpointError, VERSION, keys};
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

/// File names of a checkpoint in a folder, as the transformers library writes them.
const IN_FOLDER: [&str; 2] = ["model.safetensors", "model.safetensors.index.json"];

/// Limit on the number of files of a checkpoint.
const MOST_FILES: usize = 1024;

/// A file that holds the elements of tensors.
#[derive(Debug)]
pub struct DataFile {
    pub path: PathBuf,
    /// Position of the first element, in bytes.
    pub start: u64,
}

/// A tensor with its file.
#[derive(Clone, Debug)]
pub struct Place {
    pub entry: Entry,
    /// Index of the file.
    pub file: usize,
}

/// Headers of all files of a checkpoint.
#[derive(Debug, Default)]
pub struct Opened {
    pub files: Vec<DataFile>,
    /// Metadata of a checkpoint that is a single file. The map is empty for a checkpoint of several
    /// files, because no file has metadata for the whole checkpoint.
    pub metadata: BTreeMap<String, String>,
    pub tensors: BTreeMap<String, Place>,
}

impl Opened {
    /// Reads a safetensors file, an index if the name ends in `.json`, or a folder that contains
    /// one of them.
    pub fn read(path: &Path) -> Result<Self, CheckpointError> {
        if path.is_dir() {
            let found = IN_FOLDER.iter().map(|name| path.join(name)).find(|path| path.exists());
            let [file, index] = IN_FOLDER;
            let none = || wrong(path, format!("this folder has no {file} and no {index}"));
            return Self::read(&found.ok_or_else(none)?);
        }
        if path.extension().is_some_and(|end| end.eq_ignore_ascii_case("json")) {
            return Self::of_index(path);
        }
        let mut all = Self::default();
        all.metadata = all.add(path, &mut 0)?;
        Ok(all)
    }

    /// Reads the files that an index lists.
    fn of_index(path: &Path) -> Result<Self, CheckpointError> {
        let index: Index = json(path, "index of safetensors files")?;
        let Files { names, places } = index.weight_map;
        let folder = path.parent().unwrap_or(Path::new(""));
        let mut all = Self::default();
        let mut headers = 0;
        for name in &names {
            if !is_inside(Path::new(name)) {
                return Err(wrong(
                    path,
                    format!("the index lists `{name}`, which is not in its folder"),
                ));
            }
            all.add(&folder.join(name), &mut headers)?;
        }
        let is_elsewhere = |(tensor, file): &(&String, &usize)| {
            all.tensors.get(*tensor).is_none_or(|place| place.file != **file)
        };
        let mut elsewhere = places.iter().filter(is_elsewhere);
        if let Some((tensor, &file)) = elsewhere.next() {
            let more = match elsewhere.count() {
                0 => String::new(),
                n => format!("; {n} more are not in their files"),
            };
            let file = &names[file];
            return Err(wrong(
                path,
                format!(
                    "the index lists `{tensor}` in {file}, which does not have this tensor{more}"
                ),
            ));
        }
        Ok(all)
    }

    /// Adds the tensors of a file, and returns the file's metadata. Adds the bytes of the header to
    /// `headers`, the total over all files.
    fn add(
        &mut self,
        path: &Path,
        headers: &mut u64,
    ) -> Result<BTreeMap<String, String>, CheckpointError> {
        let (header, start) = header(path, headers)?;
        let file = self.files.len();
        self.files.push(DataFile { path: path.to_owned(), start });
        if self.tensors.len() + header.tensors.len() > MOST_TENSORS {
            return Err(wrong(
                path,
                format!("with this file, there are more than {MOST_TENSORS} tensors"),
            ));
        }
        for (name, entry) in header.tensors {
            match self.tensors.entry(name) {
                Slot::Vacant(slot) => drop(slot.insert(Place { entry, file })),
                Slot::Occupied(slot) => {
                    let other = self.files[slot.get().file].path.display();
                    return Err(wrong(path, format!("`{}` is in {other}, too", slot.key())));
                }
            }
        }
        Ok(header.metadata)
    }
}

/// Whether a relative path stays inside its folder.
fn is_inside(path: &Path) -> bool {
    let mut parts = path.components().peekable();
    parts.peek().is_some()
        && parts.all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

fn wrong(path: &Path, message: impl Into<String>) -> CheckpointError {
    CheckpointError::Format { path: path.to_owned(), message: message.into() }
}

/// Opens a regular file, and returns its size. Any other kind of file may be endless, or block
/// until another program writes to it.
fn regular(path: &Path) -> Result<(File, u64), CheckpointError> {
    let io = |error: io::Error| CheckpointError::Io { path: path.to_owned(), error };
    if !fs::metadata(path).map_err(io)?.is_file() {
        return Err(wrong(path, "not a regular file"));
    }
    let file = File::open(path).map_err(io)?;
    let size = file.metadata().map_err(io)?.len();
    Ok((file, size))
}

/// Reads the header of a file. Returns the header and the position of the first element. Adds the
/// bytes of the header to `headers`, the total over all files.
fn header(path: &Path, headers: &mut u64) -> Result<(Header, u64), CheckpointError> {
    let io = |error: io::Error| CheckpointError::Io { path: path.to_owned(), error };
    let (mut file, size) = regular(path)?;
    let mut start = [0; 8];
    if size < 8 {
        let message = format!("not a safetensors file: the file has only {size} bytes");
        return Err(wrong(path, message));
    }
    file.read_exact(&mut start).map_err(io)?;
    let length = Header::length(start, size).map_err(|message| wrong(path, message))?;
    *headers = headers.saturating_add(length);
    if *headers > MOST_BYTES {
        let what = format!("the headers have {headers} bytes, more than {MOST_BYTES}");
        return Err(wrong(path, what));
    }
    let mut text = vec![0; length as usize];
    file.read_exact(&mut text).map_err(io)?;
    let header =
        Header::decode(&text, size - 8 - length).map_err(|message| wrong(path, message))?;
    match header.metadata.get(keys::VERSION) {
        Some(found) if found != VERSION => Err(CheckpointError::Version {
            path: path.to_owned(),
            found: found.clone(),
            known: VERSION,
        }),
        _ => Ok((header, 8 + length)),
    }
}

/// Reads a JSON file. Refuses a file that is longer than the limit on headers.
fn json<T: for<'de> Deserialize<'de>>(path: &Path, what: &str) -> Result<T, CheckpointError> {
    let (mut file, size) = regular(path)?;
    if size > MOST_BYTES {
        return Err(wrong(path, format!("the {what} has {size} bytes, more than {MOST_BYTES}")));
    }
    let mut text = Vec::new();
    let read = file.by_ref().take(MOST_BYTES).read_to_end(&mut text);
    read.map_err(|error| CheckpointError::Io { path: path.to_owned(), error })?;
    serde_json::from_slice(&text).map_err(|error| wrong(path, format!("not an {what}: {error}")))
}

/// An index, as the transformers library writes it.
#[derive(Deserialize)]
struct Index {
    weight_map: Files,
}

/// Names of all files, and the file of each tensor.
struct Files {
    names: Vec<String>,
    /// Tensor name -> index of its file.
    places: BTreeMap<String, usize>,
}

impl<'de> Deserialize<'de> for Files {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Map;
        impl<'de> Visitor<'de> for Map {
            type Value = Files;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("names of files by name of tensor")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Files, A::Error> {
                let (mut known, mut places) = (BTreeMap::new(), BTreeMap::new());
                while let Some((tensor, file)) = map.next_entry::<String, String>()? {
                    check_name(&tensor)?;
                    check_name(&file)?;
                    let next = known.len();
                    let file = *known.entry(file).or_insert(next);
                    if file == MOST_FILES {
                        let message = format_args!("more than {MOST_FILES} files");
                        return Err(de::Error::custom(message));
                    }
                    if places.len() == MOST_TENSORS {
                        let message = format_args!("more than {MOST_TENSORS} tensors");
                        return Err(de::Error::custom(message));
                    }
                    match places.entry(tensor) {
                        Slot::Occupied(slot) => {
                            let message = format_args!("`{}` is listed twice", slot.key());
                            return Err(de::Error::custom(message));
                        }
                        Slot::Vacant(slot) => drop(slot.insert(file)),
                    }
                }
                let mut names = vec![String::new(); known.len()];
                for (name, file) in known {
                    names[file] = name;
                }
                Ok(Files { names, places })
            }
        }
        from.deserialize_map(Map)
    }
}
