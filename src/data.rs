//! Training data: labelled images (from files or synthetic), texts, synthetic trees, and synthetic
//! points in a plane.
//!
//! ```
//! use remat::data::{Batches, Dataset};
//!
//! // 8x8 handwritten digits, which come with the crate.
//! let digits = Dataset::digits().train;
//! let mut batches = Batches::new(digits.len(), 128, 0);
//! let (images, labels) = digits.batch(batches.next_batch());
//! assert_eq!(&**images.shape(), [128, 1, 8, 8]);
//! assert!(labels.as_i32().unwrap().iter().all(|&label| (0..10).contains(&label)));
//! ```

mod augment;
mod batches;
mod digits;
mod folder;
mod idx;
mod ring;
mod synthetic;
mod text;
mod trees;

pub use augment::Augment;
pub use batches::Batches;
use synthetic::Synthetic;
pub use text::{Text, Windows};

// Documented in `unstable`.
#[doc(hidden)]
pub use {
    ring::Ring,
    trees::{Tree, TreeBatch, Trees},
};

use crate::host::HostTensor;
use rayon::prelude::*;
use remat_rng::SplitMix64;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Minimum number of values per thread. A thread makes 65,536 values in about 100 us. For fewer
/// values, starting another thread is not worthwhile.
const PIECE: usize = 1 << 16;

/// Random numbers of a synthetic batch. [`SplitMix64::of`] must not replace this function, because
/// recordings and reference values depend on its numbers.
const fn numbers(seed: u64, batch: u64) -> SplitMix64 {
    let key = seed.wrapping_add(1).wrapping_mul(SplitMix64::STEP);
    SplitMix64::new(key ^ batch.wrapping_mul(0xd134_2543_de82_ef95))
}

/// Labelled images for training and for testing.
///
/// ```
/// use remat::data::Dataset;
///
/// let digits = Dataset::digits();
/// assert_eq!((digits.train.shape, digits.train.classes), ([1, 8, 8], 10));
/// ```
#[derive(Debug)]
pub struct Dataset {
    /// Images that the model learns from.
    pub train: Images,
    /// Images that the model is tested on.
    pub test: Images,
}

/// Labelled images of one shape.
///
/// ```
/// use remat::data::Dataset;
///
/// let images = Dataset::digits().test;
/// let (values, labels) = images.batch(&[0, 1, 2]);
/// assert_eq!(&**values.shape(), [3, 1, 8, 8]);
/// assert_eq!(&**labels.shape(), [3]);
/// ```
#[derive(Debug)]
pub struct Images {
    /// Channels, height and width.
    pub shape: [usize; 3],
    /// Number of classes; every label is below it.
    pub classes: usize,
    pixels: Pixels,
    remarks: Vec<String>,
}

#[derive(Debug)]
enum Pixels {
    /// Images stored as bytes, with `value = (pixel - mean) / deviation`
    Stored {
        pixels: Vec<u8>,
        labels: Vec<u8>,
        mean: f32,
        deviation: f32,
    },
    Made(Synthetic),
}

/// Error while reading data.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// A file cannot be opened or read.
    #[error("{path}: {error}")]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        error: std::io::Error,
    },
    /// The contents of a file are not in the expected format.
    #[error("{path}: {message}")]
    Format {
        /// Path of the file.
        path: PathBuf,
        /// Description of the problem.
        message: String,
    },
    /// A size is 0 or too large.
    #[error("{0}")]
    Description(String),
}

/// Opens a regular file, and returns its size in bytes. Other files are refused: opening a pipe may
/// block forever, and a device may be endless.
fn regular(path: &Path) -> Result<(File, u64), DataError> {
    let io = |error| DataError::Io { path: path.to_owned(), error };
    if !path.metadata().map_err(io)?.is_file() {
        let message = "not a regular file".to_owned();
        return Err(DataError::Format { path: path.to_owned(), message });
    }
    let file = File::open(path).map_err(io)?;
    let length = file.metadata().map_err(io)?.len();
    Ok((file, length))
}

impl Dataset {
    /// UCI handwritten digits that come with the crate: 8x8, 1,437 for training and 360 for
    /// testing.
    ///
    /// ```
    /// use remat::data::Dataset;
    ///
    /// let digits = Dataset::digits();
    /// assert_eq!((digits.train.len(), digits.test.len()), (1437, 360));
    /// ```
    ///
    /// # Panics
    /// Never panics: the data is part of the crate, and tested.
    #[must_use]
    pub fn digits() -> Self {
        digits::load()
    }

    /// Reads a folder with four files in the format of MNIST, plain or compressed with gzip, named
    /// for example `train-images-idx3-ubyte` or `train-images.idx3-ubyte`.
    ///
    /// ```
    /// use remat::data::{DataError, Dataset};
    /// use std::path::Path;
    ///
    /// // There is no such folder.
    /// let error = Dataset::idx(Path::new("no-such-folder")).unwrap_err();
    /// assert!(matches!(error, DataError::Format { .. }));
    /// ```
    ///
    /// # Errors
    /// Fails if a file is missing or malformed, or if the header of a compressed file claims more
    /// than 1 GiB of data.
    pub fn idx(folder: &Path) -> Result<Self, DataError> {
        idx::load(folder)
    }

    /// Reads a folder with a subfolder of PNG or JPEG images for each class, as color images.
    /// Classes are numbered in the alphabetical order of their folders. At most 256 classes are
    /// allowed.
    ///
    /// All images are resized to `size` (height and width), or to the size of the first image if
    /// `size` is `None`. An image with other proportions is first cropped around its center. A
    /// folder without images is not a class; [`Images::remarks`] names such folders.
    ///
    /// Every fifth image of a class is a test image. If the folder has subfolders `train` and
    /// `test` (or `val`, or `validation`), each with a folder per class, the images of `train` are
    /// training images, and the images of the other subfolder are test images.
    ///
    /// ```
    /// use remat::data::{DataError, Dataset};
    /// use std::path::Path;
    ///
    /// let error = Dataset::folder(Path::new("no-such-folder"), Some([64, 64])).unwrap_err();
    /// assert!(matches!(error, DataError::Io { .. }));
    /// ```
    ///
    /// # Errors
    /// Fails if a file cannot be read, or if there is no training image. Also fails if all pixels
    /// take more than 4 GiB, with a byte for each of the three colors.
    pub fn folder(folder: &Path, size: Option<[usize; 2]>) -> Result<Self, DataError> {
        folder::load(folder, size)
    }

    /// Random images of any size for benchmarks, in ten classes that a model can learn to
    /// distinguish.
    ///
    /// ```
    /// use remat::data::Dataset;
    ///
    /// let images = Dataset::synthetic([3, 32, 32], 0)?.train;
    /// let (values, labels) = images.batch(&[0, 11]);
    /// assert_eq!(&**values.shape(), [2, 3, 32, 32]);
    /// assert_eq!(labels.as_i32(), Some(&[0, 1][..]));
    /// # Ok::<(), remat::data::DataError>(())
    /// ```
    ///
    /// # Errors
    /// [`DataError::Description`] if a size is 0, or an image has more than 2^32 values.
    pub fn synthetic(shape: [usize; 3], seed: u64) -> Result<Self, DataError> {
        synthetic::load(shape, seed)
    }
}

impl Images {
    /// Number of images.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.pixels {
            Pixels::Stored { labels, .. } => labels.len(),
            Pixels::Made(synthetic) => synthetic.len,
        }
    }

    /// Whether there are no images.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Warnings about the data: class folders without images, or a single class.
    ///
    /// ```
    /// assert!(remat::data::Dataset::digits().train.remarks().is_empty());
    /// ```
    #[must_use]
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// Images `[n, channels, height, width]` with the given indices, and their labels `[n]`.
    ///
    /// ```
    /// use remat::data::Dataset;
    ///
    /// let images = Dataset::digits().train;
    /// let (values, labels) = images.batch(&[5, 5]);
    /// let labels = labels.as_i32().unwrap();
    /// assert_eq!((labels.len(), labels[0]), (2, labels[1]));
    /// ```
    ///
    /// # Panics
    /// Panics if an index is out of range.
    #[must_use]
    pub fn batch(&self, indices: &[usize]) -> (HostTensor, HostTensor) {
        let [channels, height, width] = self.shape;
        let size = channels * height * width;
        let mut values = vec![0.0; indices.len() * size];
        // A single thread generates large images too slowly to keep a GPU busy, so the work is
        // split among threads.
        let images = values.par_chunks_exact_mut(size).zip(indices);
        let images = images.with_min_len((PIECE / size).max(1));
        let classes = images.map(|(image, &index)| self.image(index, image));
        let classes = crate::sync::shared(|| classes.collect());
        let shape = [indices.len(), channels, height, width];
        let images = HostTensor::f32(shape, values).expect("one value for each pixel");
        (images, HostTensor::i32([indices.len()], classes).expect("one label for each image"))
    }

    /// Writes image `index` to `values`, and returns its label.
    fn image(&self, index: usize, values: &mut [f32]) -> i32 {
        match &self.pixels {
            Pixels::Stored { pixels, labels, mean, deviation } => {
                let image = &pixels[index * values.len()..][..values.len()];
                for (value, &pixel) in values.iter_mut().zip(image) {
                    *value = (f32::from(pixel) - mean) / deviation;
                }
                i32::from(labels[index])
            }
            Pixels::Made(synthetic) => synthetic.draw(index, self.classes, values),
        }
    }

    /// Images stored as bytes. The pixels are normalized by the mean and standard deviation of the
    /// images `like`. If `like` is `None`, the pixels are normalized by their own mean and standard
    /// deviation.
    fn stored(
        shape: [usize; 3],
        classes: usize,
        pixels: Vec<u8>,
        labels: Vec<u8>,
        like: Option<&Self>,
    ) -> Self {
        let (mean, deviation) = match like.map(|images| &images.pixels) {
            Some(Pixels::Stored { mean, deviation, .. }) => (*mean, *deviation),
            _ => moments(&pixels),
        };
        let mut remarks = Vec::new();
        if like.is_none() && labels.iter().all(|label| *label == labels[0]) {
            let count = labels.len();
            remarks.push(format!(
                "all {count} training images have the same class, so there is nothing to learn"
            ));
        }
        Self { shape, classes, pixels: Pixels::Stored { pixels, labels, mean, deviation }, remarks }
    }
}

/// Mean and standard deviation of the pixels. The standard deviation is raised to at least 1e-3,
/// because pixels are divided by it.
fn moments(pixels: &[u8]) -> (f32, f32) {
    let n = pixels.len().max(1) as f64;
    let mean = pixels.iter().map(|&p| f64::from(p)).sum::<f64>() / n;
    let variance = pixels.iter().map(|&p| (f64::from(p) - mean).powi(2)).sum::<f64>() / n;
    (mean as f32, variance.sqrt().max(1e-3) as f32)
}
