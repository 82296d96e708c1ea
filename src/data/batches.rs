use crate::rng::SplitMix64;

/// The order in which images are learned from: shuffled anew for each epoch, in full batches.
#[derive(Debug)]
pub struct Batches {
    order: Vec<usize>,
    /// Number of images of this epoch that were handed out.
    used: usize,
    batch: usize,
    numbers: SplitMix64,
}

impl Batches {
    /// Batches of `batch` images out of `images`. A batch larger than the set repeats images.
    ///
    /// # Panics
    /// If one of them is 0.
    #[must_use]
    pub fn new(images: usize, batch: usize, seed: u64) -> Self {
        assert!(images > 0 && batch > 0, "{images} images in batches of {batch}");
        let order = (0..images.max(batch)).map(|i| i % images).collect();
        let mut batches = Self { order, used: 0, batch, numbers: SplitMix64::new(seed) };
        batches.shuffle();
        batches
    }

    /// Full batches in an epoch of so many images; at least one.
    ///
    /// # Panics
    /// If `batch` is 0.
    #[must_use]
    pub fn per_epoch(images: usize, batch: usize) -> usize {
        images.max(batch) / batch
    }

    /// The next batch. The images that do not fill one at the end of an epoch are left out of it.
    pub fn next_batch(&mut self) -> &[usize] {
        if self.used + self.batch > self.order.len() {
            self.shuffle();
        }
        let start = self.used;
        self.used += self.batch;
        &self.order[start..self.used]
    }

    /// Fisher and Yates.
    fn shuffle(&mut self) {
        self.used = 0;
        for i in (1..self.order.len()).rev() {
            self.order.swap(i, self.numbers.below(i + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_shows_each_image_once_and_the_next_in_another_order() {
        let mut batches = Batches::new(10, 3, 1);
        assert_eq!(Batches::per_epoch(10, 3), 3);
        assert_eq!(Batches::per_epoch(3, 10), 1);
        let mut epoch =
            || -> Vec<usize> { (0..3).flat_map(|_| batches.next_batch().to_vec()).collect() };
        let (first, second) = (epoch(), epoch());
        assert_ne!(first, second);
        for mut epoch in [first, second] {
            epoch.sort_unstable();
            epoch.dedup();
            assert_eq!(epoch.len(), 9);
        }
    }

    #[test]
    fn a_small_set_fills_a_large_batch() {
        let mut batches = Batches::new(3, 8, 0);
        assert!((0..3).all(|image| batches.next_batch().contains(&image)));
    }
}
