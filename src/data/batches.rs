use remat_rng::SplitMix64;

/// Order of training images. Each epoch has a new random order, cut into full batches.
///
/// ```
/// use remat::data::Batches;
///
/// let mut batches = Batches::new(6, 3, 0);
/// let mut epoch = batches.next_batch().to_vec();
/// epoch.extend_from_slice(batches.next_batch());
/// epoch.sort();
/// assert_eq!(epoch, [0, 1, 2, 3, 4, 5]);
/// ```
#[derive(Debug)]
pub struct Batches {
    order: Vec<usize>,
    /// Number of images in the batches of this epoch so far.
    used: usize,
    batch: usize,
    numbers: SplitMix64,
}

impl Batches {
    /// Creates batches of `batch` indices below `images`. If `batch` is larger than `images`, a
    /// batch repeats images.
    ///
    /// ```
    /// use remat::data::Batches;
    ///
    /// // A batch larger than the set.
    /// let mut batches = Batches::new(2, 4, 0);
    /// let mut batch = batches.next_batch().to_vec();
    /// batch.sort();
    /// assert_eq!(batch, [0, 0, 1, 1]);
    /// ```
    ///
    /// # Panics
    /// Panics if `images` or `batch` is 0.
    #[must_use]
    pub fn new(images: usize, batch: usize, seed: u64) -> Self {
        assert!(images > 0 && batch > 0, "{images} images in batches of {batch}");
        let order = (0..images.max(batch)).map(|i| i % images).collect();
        let mut batches = Self { order, used: 0, batch, numbers: SplitMix64::new(seed) };
        batches.shuffle();
        batches
    }

    /// Number of full batches in an epoch of `images` images; at least 1.
    ///
    /// ```
    /// use remat::data::Batches;
    ///
    /// assert_eq!(Batches::per_epoch(1000, 128), 7);
    /// ```
    ///
    /// # Panics
    /// Panics if `batch` is 0.
    #[must_use]
    pub fn per_epoch(images: usize, batch: usize) -> usize {
        images.max(batch) / batch
    }

    /// Indices of the next batch. At the end of an epoch, remaining images that do not fill a batch
    /// are skipped.
    ///
    /// ```
    /// use remat::data::Batches;
    ///
    /// let mut batches = Batches::new(100, 8, 0);
    /// assert_eq!(batches.next_batch().len(), 8);
    /// ```
    pub fn next_batch(&mut self) -> &[usize] {
        if self.used + self.batch > self.order.len() {
            self.shuffle();
        }
        let start = self.used;
        self.used += self.batch;
        &self.order[start..self.used]
    }

    /// Shuffles the order (by the method of Fisher and Yates), and begins an epoch.
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
