//! Handwritten digits that come with the crate; `digits.md` gives their source.

use super::{Dataset, Images};
use flate2::read::GzDecoder;
use std::io::Read as _;

const FILE: &[u8] = include_bytes!("digits.csv.gz");

/// Index of the first test image. The first test image and every fifth image after it are test
/// images.
const FIRST_TEST: usize = 1;

pub(super) fn load() -> Dataset {
    let mut text = String::new();
    GzDecoder::new(FILE).read_to_string(&mut text).expect("the shipped file is whole");
    let mut parts = [(Vec::new(), Vec::new()), (Vec::new(), Vec::new())];
    for (i, line) in text.lines().enumerate() {
        let (pixels, labels) = &mut parts[usize::from(i % 5 == FIRST_TEST)];
        let mut values =
            line.split(',').map(|v| v.parse::<u8>().expect("the shipped file holds small numbers"));
        pixels.extend(values.by_ref().take(64));
        labels.push(values.next().expect("a label follows the pixels"));
    }
    let [(pixels, labels), (test_pixels, test_labels)] = parts;
    let train = Images::stored([1, 8, 8], 10, pixels, labels, None);
    let test = Images::stored([1, 8, 8], 10, test_pixels, test_labels, Some(&train));
    Dataset { train, test }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_images_are_there_and_normalized() {
        let Dataset { train, test } = load();
        assert_eq!((train.len(), test.len()), (1437, 360));
        let (images, labels) = train.batch(&(0..train.len()).collect::<Vec<_>>());
        let values = images.as_f32().unwrap();
        let mean = values.iter().map(|&v| f64::from(v)).sum::<f64>() / values.len() as f64;
        assert!(mean.abs() < 1e-4, "{mean}");
        for digit in 0..10 {
            let count = labels.as_i32().unwrap().iter().filter(|&&l| l == digit).count();
            assert!((120..170).contains(&count), "{count} images of {digit}");
        }
        assert!(labels.as_i32().unwrap().iter().all(|l| (0..10).contains(l)));
    }
}
