use super::*;
use flate2::{Compression, write::GzEncoder};
use std::io::Write as _;

fn file(magic: u32, sizes: &[u32], data: &[u8]) -> Vec<u8> {
    let words = std::iter::once(magic).chain(sizes.iter().copied());
    words.flat_map(u32::to_be_bytes).chain(data.iter().copied()).collect()
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

/// An empty folder for a test.
fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("remat-idx-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn write(folder: &Path, name: &str, bytes: &[u8]) {
    std::fs::write(folder.join(name), bytes).unwrap();
}

/// Training and test set of three 2x2 images each. Image files are uncompressed, label files are
/// compressed by gzip.
fn small(name: &str) -> PathBuf {
    let folder = folder(name);
    for part in ["train", "t10k"] {
        let (images, labels) = (file(0x803, &[3, 2, 2], &[7; 12]), file(0x801, &[3], &[0, 4, 1]));
        write(&folder, &format!("{part}-images-idx3-ubyte"), &images);
        write(&folder, &format!("{part}-labels-idx1-ubyte.gz"), &packed(&labels));
    }
    folder
}

fn error(folder: &Path) -> String {
    load(folder).unwrap_err().to_string()
}

#[test]
fn plain_and_packed_files_are_read() {
    let set = load(&small("good")).unwrap();
    assert_eq!((set.train.len(), set.train.shape, set.train.classes), (3, [1, 2, 2], 5));
    assert_eq!(set.test.batch(&[1]).1.as_i32(), Some(&[4][..]));
}

#[test]
fn every_usual_spelling_is_found() {
    let (images, labels) = (file(0x803, &[1, 1, 1], &[7]), file(0x801, &[1], &[2]));
    for separator in ["-", "."] {
        for (end, pack) in [("", false), (".gz", true), (".gz", false), ("", true)] {
            let folder = folder(&format!("spelling{separator}{end}{pack}"));
            for part in ["train", "t10k"] {
                for (what, bytes) in [("images{}idx3", &images), ("labels{}idx1", &labels)] {
                    let name = what.replace("{}", separator);
                    let bytes = if pack { packed(bytes) } else { bytes.clone() };
                    write(&folder, &format!("{part}-{name}-ubyte{end}"), &bytes);
                }
            }
            assert_eq!(load(&folder).unwrap().train.classes, 3, "{separator} {end} {pack}");
        }
    }
}

#[test]
fn missing_files_are_named_with_all_names_looked_for() {
    let folder = small("missing");
    for name in ["t10k-labels-idx1-ubyte.gz", "train-images-idx3-ubyte"] {
        std::fs::remove_file(folder.join(name)).unwrap();
        let plain = name.trim_end_matches(".gz");
        let other = plain.replacen("-idx", ".idx", 1);
        let said = error(&folder);
        let wanted =
            format!("there is no {plain} in this folder, nor {other}, nor one of them with .gz");
        assert!(said.contains(&wanted) && said.contains("remat-idx-"), "{said}");
    }
    let nowhere = folder.join("nowhere");
    let said = error(&nowhere);
    assert!(said.contains("nowhere: there is no such folder"), "{said}");
    for name in ["train-images", "train-labels", "t10k-images", "t10k-labels"] {
        assert!(said.contains(name), "{said}");
    }
    write(&folder, "a-file", b"x");
    assert!(error(&folder.join("a-file")).contains("this is a file"));
}

#[test]
fn files_gone_wrong_are_told_apart() {
    let folder = small("bad");
    let max = u32::MAX;
    for (bytes, plain, gz) in [
        (file(0x803, &[3, 2, 2], &[7; 11]), "claims 12 bytes of data, but holds 11", ""),
        (
            file(0x803, &[3, 2, 2], &[7; 13]),
            "claims 12 bytes of data, but holds 13",
            "but holds more",
        ),
        (file(0x803, &[max, max, 2], &[]), "more than any file has", ""),
        (file(0x803, &[max, 1, 1], &[]), "claims 4294967295 bytes", "of gzip can hold"),
        (file(0x801, &[12], &[7; 12]), "starts with 0x00000801, expected 0x00000803", ""),
        (file(0x803, &[2, 2, 2], &[7; 8]), "3 labels for 2 images of 2x2", ""),
        (file(0x803, &[3, 0, 2], &[]), "3 labels for 3 images of 0x2", ""),
        (file(0x803, &[0, 2, 2], &[]), "3 labels for 0 images of 2x2", ""),
        (vec![0, 0], "ends within its header", ""),
        (vec![], "ends within its header", ""),
    ] {
        for (bytes, message) in
            [(packed(&bytes), if gz.is_empty() { plain } else { gz }), (bytes, plain)]
        {
            write(&folder, "train-images-idx3-ubyte", &bytes);
            let said = error(&folder);
            assert!(said.contains(message), "{said}");
        }
    }
}

/// A complete and consistent data set, whose images take 4 MiB on disk and unpack to 4 GiB.
#[test]
fn a_bomb_is_refused_by_its_header() {
    let folder = small("bomb");
    let mut images = packed(&file(0x803, &[1 << 20, 64, 64], &[]));
    // Concatenated gzip files form a valid gzip file.
    let piece = packed(&vec![0; 1 << 22]);
    (0..1 << 10).for_each(|_| images.extend(&piece));
    write(&folder, "train-images-idx3-ubyte", &images);
    std::fs::remove_file(folder.join("train-labels-idx1-ubyte.gz")).unwrap();
    write(&folder, "train-labels-idx1-ubyte", &file(0x801, &[1 << 20], &vec![1; 1 << 20]));
    let said = error(&folder);
    assert!(said.contains("claims 4.00 GiB of data") && said.contains("gunzip"), "{said}");
}

/// The data set has two faults: too few labels, and pixels that cannot be unpacked. The error must
/// be about the labels, because labels are counted before pixels are read.
#[test]
fn nothing_is_unpacked_before_all_headers_fit() {
    let folder = small("order");
    let mut images = packed(&file(0x803, &[1000, 64, 64], &[0; 64 * 64 * 1000]));
    let end = images.len();
    images[end - 8..].fill(0);
    write(&folder, "train-images-idx3-ubyte", &images);
    let said = error(&folder);
    assert!(said.contains("3 labels for 1000 images of 64x64"), "{said}");
    // With as many labels as images, the next check compares the shapes of training and test
    // images.
    std::fs::remove_file(folder.join("train-labels-idx1-ubyte.gz")).unwrap();
    write(&folder, "train-labels-idx1-ubyte", &file(0x801, &[1000], &[1; 1000]));
    let said = error(&folder);
    assert!(
        said.contains("test images have the shape [1, 2, 2], but training images have [1, 64, 64]"),
        "{said}"
    );
    let other = file(0x803, &[3, 64, 64], &[7; 3 * 64 * 64]);
    write(&folder, "t10k-images-idx3-ubyte", &other);
    let said = error(&folder);
    assert!(said.contains("train-images-idx3-ubyte: corrupt"), "{said}");
}

#[test]
fn a_path_that_is_no_regular_file_is_refused() {
    let folder = small("irregular");
    let path = folder.join("train-labels-idx1-ubyte.gz");
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    let error = error(&folder);
    assert!(error.ends_with("train-labels-idx1-ubyte.gz: not a regular file"), "{error}");
    std::fs::remove_dir_all(folder).unwrap();
}
