//! The file format of MNIST: a magic number, big-endian sizes, then bytes.

use super::{DataError, Dataset, Images};
use flate2::read::MultiGzDecoder;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// More bytes than any set of this kind has: a guard against a header gone wrong.
const MOST_BYTES: u64 = 4 << 30;

pub(super) fn load(folder: &Path) -> Result<Dataset, DataError> {
    let (shape, pixels, labels) = part(folder, "train")?;
    let (test_shape, test_pixels, test_labels) = part(folder, "t10k")?;
    if test_shape != shape {
        let message = format!("images are {test_shape:?}, but those to learn from {shape:?}");
        return Err(DataError::Format { path: folder.to_owned(), message });
    }
    let classes =
        labels.iter().chain(&test_labels).max().map_or(0, |&largest| usize::from(largest) + 1);
    let train = Images::stored(shape, classes, pixels, labels, None);
    let test = Images::stored(shape, classes, test_pixels, test_labels, Some(&train));
    Ok(Dataset { train, test })
}

/// Image shape, pixels and labels.
type Part = ([usize; 3], Vec<u8>, Vec<u8>);

/// One half of the set.
fn part(folder: &Path, name: &str) -> Result<Part, DataError> {
    let (images_path, image_sizes, pixels) =
        read::<3>(folder, &format!("{name}-images-idx3-ubyte"))?;
    let (labels_path, [count], labels) = read::<1>(folder, &format!("{name}-labels-idx1-ubyte"))?;
    let [images, height, width] = image_sizes;
    if images != count || images == 0 || height * width == 0 {
        let message = format!(
            "{count} labels for {images} images of {height}x{width} in {}",
            images_path.display()
        );
        return Err(DataError::Format { path: labels_path, message });
    }
    Ok(([1, height, width], pixels, labels))
}

/// One file with `N` dimensions, plain or with `.gz` behind its name.
fn read<const N: usize>(
    folder: &Path,
    name: &str,
) -> Result<(PathBuf, [usize; N], Vec<u8>), DataError> {
    let plain = folder.join(name);
    let packed = folder.join(format!("{name}.gz"));
    let path = if plain.exists() || !packed.exists() { plain } else { packed };
    let io = |error| DataError::Io { path: path.clone(), error };
    let file = BufReader::new(File::open(&path).map_err(io)?);
    let mut bytes: Box<dyn Read> = if path.extension().is_some_and(|e| e == "gz") {
        Box::new(MultiGzDecoder::new(file))
    } else {
        Box::new(file)
    };
    let wrong = |message: String| DataError::Format { path: path.clone(), message };

    let magic = word(&mut bytes).map_err(io)?;
    let expected = 0x0800 | N as u32;
    if magic != expected {
        return Err(wrong(format!(
            "starts with {magic:#010x}, not {expected:#010x}: not such an idx file"
        )));
    }
    let mut sizes = [0; N];
    for size in &mut sizes {
        *size = word(&mut bytes).map_err(io)? as usize;
    }
    let total =
        sizes.iter().try_fold(1u64, |n, &d| n.checked_mul(d as u64)).filter(|&n| n <= MOST_BYTES);
    let total = total
        .ok_or_else(|| wrong(format!("claims {sizes:?} entries, above {MOST_BYTES} bytes")))?;
    let mut data = Vec::new();
    bytes.take(total + 1).read_to_end(&mut data).map_err(io)?;
    if data.len() as u64 != total {
        let found =
            if data.len() as u64 > total { "more".to_owned() } else { data.len().to_string() };
        return Err(wrong(format!("claims {total} bytes of data, but holds {found}")));
    }
    Ok((path, sizes, data))
}

fn word(bytes: &mut impl Read) -> std::io::Result<u32> {
    let mut word = [0; 4];
    bytes.read_exact(&mut word)?;
    Ok(u32::from_be_bytes(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn file(magic: u32, sizes: &[u32], data: &[u8]) -> Vec<u8> {
        let words = std::iter::once(magic).chain(sizes.iter().copied());
        words.flat_map(u32::to_be_bytes).chain(data.iter().copied()).collect()
    }

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("remat-idx-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for part in ["train", "t10k"] {
            std::fs::write(
                folder.join(format!("{part}-images-idx3-ubyte")),
                file(0x803, &[3, 2, 2], &[7; 12]),
            )
            .unwrap();
            let labels = file(0x801, &[3], &[0, 4, 1]);
            let packed = File::create(folder.join(format!("{part}-labels-idx1-ubyte.gz"))).unwrap();
            let mut packed = flate2::write::GzEncoder::new(packed, flate2::Compression::fast());
            packed.write_all(&labels).unwrap();
            packed.finish().unwrap();
        }
        folder
    }

    #[test]
    fn plain_and_packed_files_are_read() {
        let set = load(&folder("good")).unwrap();
        assert_eq!((set.train.len(), set.train.shape, set.train.classes), (3, [1, 2, 2], 5));
        assert_eq!(set.test.batch(&[1]).1.as_i32(), Some(&[4][..]));
    }

    #[test]
    fn files_gone_wrong_are_told_apart() {
        let folder = folder("bad");
        let images = folder.join("train-images-idx3-ubyte");
        for (bytes, message) in [
            (file(0x803, &[3, 2, 2], &[7; 11]), "claims 12 bytes of data, but holds 11"),
            (file(0x803, &[3, 2, 2], &[7; 13]), "claims 12 bytes of data, but holds more"),
            (file(0x803, &[u32::MAX; 3], &[]), "claims"),
            (file(0x801, &[12], &[7; 12]), "starts with 0x00000801, not 0x00000803"),
            (file(0x803, &[2, 2, 2], &[7; 8]), "3 labels for 2 images of 2x2"),
            (vec![0, 0], "failed to fill whole buffer"),
        ] {
            std::fs::write(&images, bytes).unwrap();
            let error = load(&folder).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
        std::fs::remove_file(&images).unwrap();
        assert!(load(&folder).unwrap_err().to_string().contains("train-images-idx3-ubyte"));
    }
}
