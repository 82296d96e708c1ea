//! Random images of any size. An image is generated when it is read, so the set takes no memory.

use super::{DataError, Dataset, Images, Pixels};
use remat_rng::SplitMix64;

/// Images of noise plus a weak pattern that all images of a class share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Synthetic {
    pub(super) len: usize,
    seed: u64,
}

const CLASSES: usize = 10;
const TRAIN: usize = 4096;
const TEST: usize = 512;

/// Limit on the values of an image.
const LARGEST: usize = 1 << 32;

pub(super) fn load(shape: [usize; 3], seed: u64) -> Result<Dataset, DataError> {
    let [c, h, w] = shape;
    let problem = match shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d)) {
        Some(0) => Some("are empty".to_owned()),
        Some(..=LARGEST) => None,
        _ => Some(format!("have more than {LARGEST} values")),
    };
    if let Some(problem) = problem {
        return Err(DataError::Description(format!(
            "images of {c}x{h}x{w} {problem}; try 3x32x32"
        )));
    }
    let images = |len, seed| Images {
        shape,
        classes: CLASSES,
        pixels: Pixels::Made(Synthetic { len, seed }),
        remarks: Vec::new(),
    };
    Ok(Dataset { train: images(TRAIN, seed), test: images(TEST, !seed) })
}

impl Synthetic {
    /// Writes image `index` to `values`, and returns its label.
    pub(super) fn draw(&self, index: usize, classes: usize, values: &mut [f32]) -> i32 {
        assert!(index < self.len, "image {index} of {}", self.len);
        let class = index % classes;
        let mut pattern = SplitMix64::new(class as u64);
        let mut noise = SplitMix64::new(
            self.seed.wrapping_add(1).wrapping_mul(0x1_0000_0001).wrapping_add(index as u64),
        );
        values.fill_with(|| 0.5 * unit(&mut pattern) + unit(&mut noise));
        class as i32
    }
}

/// Random number, uniform from -1 to 1.
fn unit(numbers: &mut SplitMix64) -> f32 {
    (numbers.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
}
