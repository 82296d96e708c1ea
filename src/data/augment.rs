use super::Images;
use remat_rng::SplitMix64;

/// Random shifts and reflections of training images. Each step draws new shifts and reflections.
///
/// ```
/// use remat::data::{Augment, Dataset};
///
/// let images = Dataset::digits().train;
/// let (batch, _) = images.batch(&[0, 1]);
/// let mut values = batch.as_f32().unwrap().to_vec();
/// Augment { crop: 1, flip: true }.apply(&images, &mut values, 0, 1);
/// assert_eq!(values.len(), 2 * 64);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Augment {
    /// Largest shift in pixels, up, down, left or right. Pixels from outside the image become 0,
    /// the mean of all images.
    pub crop: usize,
    /// Whether to mirror images left to right, each with probability 1/2.
    pub flip: bool,
}

/// Random shift and reflection of one image.
struct Change {
    down: isize,
    right: isize,
    flip: bool,
}

impl Augment {
    /// Changes the values `[n, channels, height, width]` of a batch of `images`. `seed` and `step`
    /// determine the changes.
    ///
    /// ```
    /// use remat::data::{Augment, Dataset};
    ///
    /// let images = Dataset::digits().train;
    /// let mut values = vec![1.0; 3 * 64];
    /// Augment::default().apply(&images, &mut values, 0, 0);
    /// assert_eq!(values, vec![1.0; 3 * 64]);
    /// ```
    pub fn apply(self, images: &Images, values: &mut [f32], seed: u64, step: u64) {
        self.apply_from(0, images, values, seed, step);
    }

    /// [`apply`](Self::apply) for a part of a batch that begins with image `first` of the batch.
    /// Each image gets the same changes as in a call for the whole batch.
    ///
    /// ```
    /// use remat::data::{Augment, Dataset};
    ///
    /// let images = Dataset::digits().train;
    /// let augment = Augment { crop: 2, flip: true };
    /// let mut whole = images.batch(&[0, 1]).0.as_f32().unwrap().to_vec();
    /// let mut second = whole[64..].to_vec();
    /// augment.apply(&images, &mut whole, 7, 1);
    /// augment.apply_from(1, &images, &mut second, 7, 1);
    /// assert_eq!(second, whole[64..]);
    /// ```
    pub fn apply_from(
        self,
        first: usize,
        images: &Images,
        values: &mut [f32],
        seed: u64,
        step: u64,
    ) {
        if self == Self::default() {
            return;
        }
        let [channels, height, width] = images.shape;
        let mut numbers = SplitMix64::of(seed, step);
        numbers.skip(first * self.numbers());
        let mut before = vec![0.0; height * width];
        for image in values.chunks_exact_mut(channels * height * width) {
            let change = self.draw(&mut numbers);
            for plane in image.chunks_exact_mut(height * width) {
                before.copy_from_slice(plane);
                change.apply(plane, &before, width);
            }
        }
    }

    /// Number of random numbers drawn for an image.
    const fn numbers(self) -> usize {
        if self.flip { 3 } else { 2 }
    }

    fn draw(self, numbers: &mut SplitMix64) -> Change {
        let mut shift = || numbers.below(2 * self.crop + 1) as isize - self.crop as isize;
        let [down, right] = [shift(), shift()];
        Change { down, right, flip: self.flip && numbers.below(2) == 1 }
    }
}

impl Change {
    fn apply(&self, plane: &mut [f32], before: &[f32], width: usize) {
        for (y, row) in plane.chunks_exact_mut(width).enumerate() {
            let from = y.checked_add_signed(self.down).and_then(|y| before.chunks(width).nth(y));
            for (x, value) in row.iter_mut().enumerate() {
                let x = if self.flip { width - 1 - x } else { x };
                let inside = x.checked_add_signed(self.right);
                let pixel = from.zip(inside).and_then(|(row, x)| row.get(x));
                *value = pixel.copied().unwrap_or(0.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Dataset;
    use std::collections::BTreeSet;

    #[test]
    fn images_are_moved_and_mirrored_and_the_same_again() {
        let images = Dataset::digits().train;
        let (batch, _) = images.batch(&[3; 200]);
        let original = batch.as_f32().unwrap().to_vec();
        let with = |augment: Augment, seed, step| {
            let mut values = original.clone();
            augment.apply(&images, &mut values, seed, step);
            values
        };
        let none = Augment::default();
        let both = Augment { crop: 2, flip: true };
        assert_eq!(with(none, 1, 2), original);
        assert_eq!(with(both, 1, 2), with(both, 1, 2));
        assert_ne!(with(both, 1, 2), with(both, 1, 3));
        assert_ne!(with(both, 1, 2), with(both, 2, 2));
        for (augment, kinds) in [
            (Augment { crop: 0, flip: true }, 2),
            (Augment { crop: 1, flip: false }, 9),
            (Augment { crop: 1, flip: true }, 18),
        ] {
            let values = with(augment, 5, 0);
            let bits = |image: &[f32]| image.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            let found: BTreeSet<_> = values.chunks(64).map(bits).collect();
            assert_eq!(found.len(), kinds, "{augment:?}");
            assert!(found.contains(&bits(&original[..64])), "{augment:?}");
        }
    }

    #[test]
    fn parts_of_a_batch_are_changed_as_the_whole_is() {
        let images = Dataset::digits().train;
        let (batch, _) = images.batch(&[5; 12]);
        for augment in [
            Augment { crop: 2, flip: true },
            Augment { crop: 0, flip: true },
            Augment { crop: 3, flip: false },
        ] {
            let mut whole = batch.as_f32().unwrap().to_vec();
            let mut parts = whole.clone();
            augment.apply(&images, &mut whole, 1, 2);
            for (part, values) in parts.chunks_mut(4 * 64).enumerate() {
                augment.apply_from(4 * part, &images, values, 1, 2);
            }
            assert_eq!(parts, whole, "{augment:?}");
        }
    }

    #[test]
    fn shifted_pixels_are_lost_and_zeros_come_in() {
        let change = Change { down: 1, right: -1, flip: false };
        let before: Vec<f32> = (1..=6).map(|i| i as f32).collect();
        let mut plane = before.clone();
        change.apply(&mut plane, &before, 3);
        assert_eq!(plane, [0.0, 4.0, 5.0, 0.0, 0.0, 0.0]);
        Change { down: 0, right: 0, flip: true }.apply(&mut plane, &before, 3);
        assert_eq!(plane, [3.0, 2.0, 1.0, 6.0, 5.0, 4.0]);
    }
}
