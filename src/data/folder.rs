//! Folders of images, with a folder for each class.

use super::{DataError, Dataset, Images, regular};
use image::imageops::FilterType;
use image::{DynamicImage, ImageReader};
use rayon::prelude::*;
use remat_memory::ByteSize;
use std::fs;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

/// Limit on the bytes of the pixels of all images, which are held in memory.
const MOST_BYTES: u64 = 4 << 30;

/// Index within its class of the first test image. The first test image and every fifth image after
/// it are test images. The constant is unused if the data has separate folders of training and test
/// images.
const FIRST_TEST: usize = 1;

/// Names of folders of test images.
const TEST: [&str; 3] = ["test", "val", "validation"];

pub(super) fn load(folder: &Path, size: Option<[usize; 2]>) -> Result<Dataset, DataError> {
    // Use separate folders of training and test images, if they exist. Without separate folders,
    // every fifth image of a class is a test image.
    let whole = folder.join("train");
    let split = TEST.iter().map(|name| folder.join(name)).find(|test| test.is_dir());
    let mut empty = Vec::new();
    let (train, test) = match split {
        Some(test) if whole.is_dir() => {
            let (classes, train) = files(&whole, &mut empty)?;
            let (others, test) = files(&test, &mut empty)?;
            if let Some(other) = others.iter().find(|other| !classes.contains(other)) {
                let message =
                    format!("the folder has no class `{other}`, but the test images have it");
                return Err(DataError::Format { path: whole, message });
            }
            // Classes are matched by name, because a class may have no test images.
            let known = |class: usize| classes.iter().position(|name| *name == others[class]);
            let test = test.into_iter().map(|(path, class)| (path, known(class).unwrap_or(class)));
            let test = test.collect();
            ((classes, train), test)
        }
        _ => {
            let (classes, all) = files(folder, &mut empty)?;
            let mut count = vec![0; classes.len()];
            let (test, train) = all.into_iter().partition(|(_, class)| {
                count[*class] += 1;
                (count[*class] - 1) % 5 == FIRST_TEST
            });
            ((classes, train), test)
        }
    };
    let ((classes, train), test): ((Vec<String>, Vec<File>), Vec<File>) = (train, test);
    // All images get the same size, and must fit in memory together.
    let size = match size {
        Some(size) => size,
        None => {
            let first = decode(&train[0].0)?;
            [first.height() as usize, first.width() as usize]
        }
    };
    let bytes = (train.len() + test.len()) as u64 * (3 * size[0] * size[1]) as u64;
    if bytes > MOST_BYTES {
        let message = format!(
            "{} images of {}x{} pixels take {}, more than {}; choose a smaller size",
            train.len() + test.len(),
            size[0],
            size[1],
            ByteSize(bytes),
            ByteSize(MOST_BYTES)
        );
        return Err(DataError::Format { path: folder.to_owned(), message });
    }
    let shape = [3, size[0], size[1]];
    let (pixels, labels) = read(folder, &train, size)?;
    let mut train = Images::stored(shape, classes.len(), pixels, labels, None);
    train.remarks.extend(
        empty
            .iter()
            .map(|path| format!("{} has no PNG or JPEG files, and is not a class", path.display())),
    );
    let (pixels, labels) = read(folder, &test, size)?;
    let test = Images::stored(shape, classes.len(), pixels, labels, Some(&train));
    Ok(Dataset { train, test })
}

/// Path of an image, and the number of its class.
type File = (PathBuf, usize);

/// Reads the names of the classes in alphabetical order, and the paths of their images. The result
/// has at least one class, and each class has an image. Folders without images are added to
/// `empty`.
fn files(folder: &Path, empty: &mut Vec<PathBuf>) -> Result<(Vec<String>, Vec<File>), DataError> {
    let mut classes = Vec::new();
    let mut files = Vec::new();
    for class in sorted(folder)?.into_iter().filter(|path| path.is_dir()) {
        let name = class.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let images = sorted(&class)?.into_iter().filter(|path| is_image(path));
        let before = files.len();
        files.extend(images.map(|path| (path, classes.len())));
        match files.len() > before {
            true => classes.push(name),
            false => empty.push(class),
        }
    }
    let message = match classes.len() {
        0 => "no folder of PNG or JPEG files was found; make one for each class",
        257.. => "more than 256 folders of images, the limit on classes",
        _ => return Ok((classes, files)),
    };
    Err(DataError::Format { path: folder.to_owned(), message: message.to_owned() })
}

fn sorted(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    let io = |error: io::Error| DataError::Io { path: folder.to_owned(), error };
    let entries = fs::read_dir(folder).map_err(io)?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let mut paths = paths.collect::<Result<Vec<_>, _>>().map_err(io)?;
    paths.sort_unstable();
    Ok(paths)
}

fn is_image(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    ["png", "jpg", "jpeg"].iter().any(|known| ending.eq_ignore_ascii_case(known))
}

fn decode(path: &Path) -> Result<DynamicImage, DataError> {
    let io = |error| DataError::Io { path: path.to_owned(), error };
    let (file, _) = regular(path)?;
    let reader = ImageReader::new(BufReader::new(file)).with_guessed_format().map_err(io)?;
    let format = |error: image::ImageError| DataError::Format {
        path: path.to_owned(),
        message: error.to_string(),
    };
    reader.decode().map_err(format)
}

/// Pixels of all images, and their classes. The pixels of an image are stored by color: first all
/// red values, then green, then blue. Images of a different size are cropped and resized by
/// [`covering`].
fn read(
    folder: &Path,
    files: &[File],
    [height, width]: [usize; 2],
) -> Result<(Vec<u8>, Vec<u8>), DataError> {
    let area = height * width;
    let bytes = files.len() * 3 * area;
    let mut pixels = Vec::new();
    if pixels.try_reserve_exact(bytes).is_err() {
        let [count, bytes] = [files.len() as u64, bytes as u64];
        let message = format!(
            "this machine does not have the memory for {count} images of {height}x{width} pixels, {}; choose a \
             smaller size",
            ByteSize(bytes)
        );
        return Err(DataError::Format { path: folder.to_owned(), message });
    }
    pixels.resize(bytes, 0);
    let images = pixels.par_chunks_exact_mut(3 * area).zip(files);
    let images = images.map(|(pixels, (path, _))| {
        let image = covering(decode(path)?, [height, width].map(|size| size as u32));
        for (i, pixel) in image.to_rgb8().pixels().enumerate() {
            for (channel, &value) in pixel.0.iter().enumerate() {
                pixels[channel * area + i] = value;
            }
        }
        Ok(())
    });
    crate::sync::shared(|| images.collect::<Result<(), DataError>>())?;
    // A class number fits in a byte, because there are at most 256 classes.
    Ok((pixels, files.iter().map(|(_, class)| *class as u8).collect()))
}

/// Crops an image around its center to the proportions of the given size, and resizes it to this
/// size. Cropping comes first: resizing an image of 4000x1 pixels until it covers an upright
/// picture would take gigabytes.
fn covering(image: DynamicImage, [height, width]: [u32; 2]) -> DynamicImage {
    let (is, wanted) = ([image.height(), image.width()], [height, width]);
    if is == wanted {
        return image;
    }
    let [is_height, is_width] = is.map(u64::from);
    let [of_height, of_width] = wanted.map(u64::from);
    // Largest rectangle within the image that has the proportions of the wanted size.
    let cut = match is_height * of_width < of_height * is_width {
        true => [is_height, (is_height * of_width + of_height / 2) / of_height],
        false => [(is_width * of_height + of_width / 2) / of_width, is_width],
    };
    let [cut_height, cut_width] =
        [cut[0].clamp(1, is_height), cut[1].clamp(1, is_width)].map(|n| n as u32);
    let (x, y) = ((image.width() - cut_width) / 2, (image.height() - cut_height) / 2);
    let middle = image.crop_imm(x, y, cut_width, cut_height);
    middle.resize_exact(width, height, FilterType::Triangle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::{Rgb, RgbImage};

    /// An empty folder that only this test uses.
    fn empty(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("remat-folder-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        path
    }

    /// Writes an image of one color.
    fn write(path: &Path, [height, width]: [u32; 2], color: [u8; 3]) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        RgbImage::from_pixel(width, height, Rgb(color)).save(path).unwrap();
    }

    fn error(folder: &Path) -> String {
        load(folder, None).unwrap_err().to_string()
    }

    #[test]
    fn each_folder_is_a_class_and_each_fifth_image_is_for_testing() {
        let folder = empty("classes");
        for i in 0..10 {
            write(&folder.join(format!("red/{i}.png")), [4, 6], [200, 0, 0]);
            write(&folder.join(format!("blue/{i}.jpg")), [8, 12], [0, 0, 200]);
        }
        fs::write(folder.join("red/notes.txt"), "not an image").unwrap();
        fs::create_dir(folder.join("none")).unwrap();
        let data = load(&folder, None).unwrap();
        assert_eq!((data.train.len(), data.test.len()), (16, 4));
        let [remark] = data.train.remarks() else { panic!("{:?}", data.train.remarks()) };
        let none = folder.join("none").display().to_string();
        assert!(remark.starts_with(&none) && remark.contains("not a class"), "{remark}");
        // All images get the size of the first image, which is in the class `blue`, because `blue`
        // comes before `red`.
        assert_eq!((data.train.shape, data.train.classes), ([3, 8, 12], 2));
        let (images, labels) = data.train.batch(&[0, 15]);
        assert_eq!(labels.as_i32().unwrap(), [0, 1]);
        let brightest = |image: &[f32]| {
            let sum = |channel: usize| image[channel * 96..][..96].iter().sum::<f32>();
            (0..3).max_by(|&a, &b| sum(a).total_cmp(&sum(b))).unwrap()
        };
        let [blue, red] = [0, 1].map(|i| &images.as_f32().unwrap()[i * 288..][..288]);
        assert_eq!((brightest(blue), brightest(red)), (2, 0));
        assert_eq!(load(&folder, Some([5, 3])).unwrap().test.shape, [3, 5, 3]);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_folder_of_tests_is_used_as_such() {
        let folder = empty("split");
        for i in 0..3 {
            write(&folder.join(format!("train/a/{i}.png")), [2, 2], [1, 2, 3]);
            write(&folder.join(format!("train/b/{i}.png")), [2, 2], [1, 2, 3]);
        }
        write(&folder.join("val/b/0.png"), [2, 2], [1, 2, 3]);
        let data = load(&folder, None).unwrap();
        assert_eq!((data.train.len(), data.test.len()), (6, 1));
        assert_eq!(data.test.batch(&[0]).1.as_i32().unwrap(), [1]);
        write(&folder.join("val/c/0.png"), [2, 2], [1, 2, 3]);
        assert!(error(&folder).contains("the folder has no class `c`"));
        fs::remove_dir_all(folder).unwrap();
    }

    /// Regression test: when images were resized before they were cropped, one image of 4000x1
    /// among images of 1080x1920 took 14.7 GB.
    #[test]
    fn lines_among_pictures_are_cut_before_they_are_scaled() {
        for ([height, width], wanted) in
            [([1, 4000], [1920, 1080]), ([4000, 1], [40, 40]), ([3, 2], [2, 3]), ([1, 1], [7, 5])]
        {
            let image = DynamicImage::from(RgbImage::from_pixel(width, height, Rgb([9, 99, 199])));
            let covering = covering(image, wanted);
            assert_eq!([covering.height(), covering.width()], wanted);
            assert!(covering.to_rgb8().pixels().all(|pixel| pixel.0 == [9, 99, 199]));
        }
        // Only the middle third of the image remains, which has one color.
        let stripes = RgbImage::from_fn(9, 3, |x, _| Rgb([(x / 3 * 100) as u8; 3]));
        let middle = covering(stripes.into(), [6, 6]).to_rgb8();
        assert!(middle.pixels().all(|pixel| pixel.0 == [100; 3]));
    }

    #[test]
    fn a_single_class_is_told() {
        let folder = empty("single");
        for i in 0..6 {
            write(&folder.join(format!("a/{i}.png")), [2, 2], [1, 2, 3]);
        }
        let told = |folder: &Path| load(folder, None).unwrap().train.remarks().join("; ");
        assert!(told(&folder).contains("all 5 training images have the same class"));
        fs::create_dir(folder.join("b")).unwrap();
        assert!(told(&folder).contains("the same class") && told(&folder).contains("b has no PNG"));
        // The remarks are the same if there are folders `train` and `test`.
        let split = empty("single-split");
        for name in ["train/a", "train/b", "test/a", "test/b"] {
            fs::create_dir_all(split.join(name)).unwrap();
        }
        write(&split.join("train/a/0.png"), [2, 2], [1, 2, 3]);
        write(&split.join("test/a/0.png"), [2, 2], [1, 2, 3]);
        let all = told(&split);
        assert!(
            all.contains("the same class") && all.contains("train/b") && all.contains("test/b"),
            "{all}"
        );
        write(&split.join("train/b/0.png"), [2, 2], [1, 2, 3]);
        write(&split.join("test/b/0.png"), [2, 2], [1, 2, 3]);
        assert_eq!(told(&split), "");
        fs::remove_dir_all(folder).unwrap();
        fs::remove_dir_all(split).unwrap();
    }

    #[test]
    fn errors_name_the_file_that_is_no_image() {
        let folder = empty("bad");
        assert!(error(&folder.join("nowhere")).contains("nowhere"));
        assert!(error(&folder).contains("one for each class"));
        fs::create_dir(folder.join("a")).unwrap();
        fs::write(folder.join("a/0.png"), "no image").unwrap();
        assert!(error(&folder).contains("0.png"));
        fs::remove_dir_all(folder).unwrap();
    }
}
