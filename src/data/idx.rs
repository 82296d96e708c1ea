//! The file format of MNIST: a magic number, big-endian sizes, then bytes.
//!
//! The headers of all four files are read first. Data is read only after the headers have been
//! checked against each other and against the lengths of the files, because a few kilobytes of gzip
//! may unpack to gigabytes.

use super::{DataError, Dataset, Images, regular};
use crate::files::{Members, is_packed};
use remat_memory::ByteSize;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Limit on the bytes unpacked from one file: twice the size of the largest data set published in
/// this format.
const MOST_UNPACKED: u64 = 1 << 30;

/// Largest ratio of unpacked to packed bytes in Deflate.
const MOST_FROM_ONE: u64 = 1032;

pub(super) fn load(folder: &Path) -> Result<Dataset, DataError> {
    let train = Part::open(folder, "train")?;
    let test = Part::open(folder, "t10k")?;
    let shape = train.shape();
    if test.shape() != shape {
        let message = format!(
            "test images have the shape {:?}, but training images have {shape:?}",
            test.shape()
        );
        return Err(DataError::Format { path: test.images.path, message });
    }
    let (pixels, labels) = train.read()?;
    let (test_pixels, test_labels) = test.read()?;
    let classes =
        labels.iter().chain(&test_labels).max().map_or(0, |&largest| usize::from(largest) + 1);
    let train = Images::stored(shape, classes, pixels, labels, None);
    let test = Images::stored(shape, classes, test_pixels, test_labels, Some(&train));
    Ok(Dataset { train, test })
}

/// Training or test part of the data set, with at least one image, and as many labels as images.
struct Part {
    images: IdxFile<3>,
    labels: IdxFile<1>,
}

impl Part {
    fn open(folder: &Path, name: &str) -> Result<Self, DataError> {
        let images = IdxFile::<3>::open(find(folder, &format!("{name}-images"), "idx3")?)?;
        let labels = IdxFile::<1>::open(find(folder, &format!("{name}-labels"), "idx1")?)?;
        let ([count, height, width], [labelled]) = (images.sizes, labels.sizes);
        if count != labelled || images.bytes == 0 {
            let message = format!(
                "{labelled} labels for {count} images of {height}x{width} in {}",
                images.path.display()
            );
            return Err(DataError::Format { path: labels.path, message });
        }
        Ok(Self { images, labels })
    }

    const fn shape(&self) -> [usize; 3] {
        let [_, height, width] = self.images.sizes;
        [1, height, width]
    }

    /// Reads pixels and labels.
    fn read(self) -> Result<(Vec<u8>, Vec<u8>), DataError> {
        // Labels are read first, because they have fewer bytes.
        let labels = self.labels.read()?;
        Ok((self.images.read()?, labels))
    }
}

/// Finds a file, whose name may be `train-images-idx3-ubyte` or `train-images.idx3-ubyte`, with or
/// without `.gz`.
fn find(folder: &Path, name: &str, kind: &str) -> Result<PathBuf, DataError> {
    let wrong = |message| Err(DataError::Format { path: folder.to_owned(), message });
    if !folder.exists() {
        return wrong(
            "there is no such folder; it should hold train-images-idx3-ubyte, train-labels-idx1-ubyte, \
             t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, each plain or with .gz"
                .to_owned(),
        );
    }
    if !folder.is_dir() {
        return wrong("this is a file; give the folder with the four files".to_owned());
    }
    let spellings = [format!("{name}-{kind}-ubyte"), format!("{name}.{kind}-ubyte")];
    let paths = ["", ".gz"]
        .iter()
        .flat_map(|end| spellings.iter().map(move |name| folder.join(format!("{name}{end}"))));
    let mut found = paths.filter(|path| path.exists());
    match found.next() {
        Some(path) => Ok(path),
        None => wrong(format!(
            "there is no {} in this folder, nor {}, nor one of them with .gz",
            spellings[0], spellings[1]
        )),
    }
}

/// A file with an array of `N` dimensions, read up to the end of its header.
struct IdxFile<const N: usize> {
    path: PathBuf,
    sizes: [usize; N],
    /// Bytes of data after the header, computed from `sizes`.
    bytes: u64,
    rest: Box<dyn Read>,
}

impl<const N: usize> IdxFile<N> {
    fn open(path: PathBuf) -> Result<Self, DataError> {
        let io = |error| DataError::Io { path: path.clone(), error };
        let wrong = |message: String| Err(DataError::Format { path: path.clone(), message });
        let (file, length) = regular(&path)?;
        let mut file = BufReader::new(file);
        // Detect compression by the content of the file, not by its name: browsers unpack files and
        // keep their names.
        let packed = is_packed(file.fill_buf().map_err(io)?);
        let mut rest: Box<dyn Read> =
            if packed { Box::new(Members::new(file)) } else { Box::new(file) };

        let cut_off = |error: io::Error| match error.kind() {
            io::ErrorKind::UnexpectedEof => DataError::Format {
                path: path.clone(),
                message: "ends within its header: not an idx file, or cut off".to_owned(),
            },
            _ => io(error),
        };
        let magic = word(&mut rest).map_err(cut_off)?;
        let expected = 0x0800 | N as u32;
        if magic != expected {
            return wrong(format!(
                "starts with {magic:#010x}, expected {expected:#010x}: not an idx file of this kind"
            ));
        }
        let mut sizes = [0; N];
        for size in &mut sizes {
            *size = word(&mut rest).map_err(cut_off)?;
        }
        let Some(bytes) = sizes.iter().try_fold(1u64, |n, &d| n.checked_mul(u64::from(d))) else {
            return wrong(format!("claims {sizes:?} entries, more than any file has"));
        };
        let size = ByteSize(bytes);
        if packed && bytes / MOST_FROM_ONE > length {
            let length = ByteSize(length);
            return wrong(format!("claims {size} of data, more than {length} of gzip can hold"));
        }
        if packed && bytes > MOST_UNPACKED {
            let most = ByteSize(MOST_UNPACKED);
            return wrong(format!(
                "claims {size} of data, but at most {most} are read from a packed file; unpack it with gunzip"
            ));
        }
        let held = length.saturating_sub(4 * (N as u64 + 1));
        if !packed && held != bytes {
            return wrong(format!("claims {bytes} bytes of data, but holds {held}"));
        }
        Ok(Self { path, sizes: sizes.map(|size| size as usize), bytes, rest })
    }

    /// Reads the data. Fails unless the file has exactly the number of bytes in its header.
    fn read(self) -> Result<Vec<u8>, DataError> {
        let Self { path, bytes, rest, .. } = self;
        let mut data = Vec::new();
        let room = usize::try_from(bytes).is_ok_and(|n| data.try_reserve_exact(n).is_ok());
        if !room {
            let message =
                format!("this machine does not have the memory for {} of data", ByteSize(bytes));
            return Err(DataError::Format { path, message });
        }
        // Read one byte more than expected, to detect a file with too many bytes.
        if let Err(error) = rest.take(bytes + 1).read_to_end(&mut data) {
            return Err(DataError::Io { path, error });
        }
        match data.len() as u64 {
            held if held == bytes => Ok(data),
            held => {
                let held = if held > bytes { "more".to_owned() } else { held.to_string() };
                let message = format!("claims {bytes} bytes of data, but holds {held}");
                Err(DataError::Format { path, message })
            }
        }
    }
}

fn word(bytes: &mut impl Read) -> io::Result<u32> {
    let mut word = [0; 4];
    bytes.read_exact(&mut word)?;
    Ok(u32::from_be_bytes(word))
}

#[cfg(test)]
mod tests;
