//! Synthetic points in a plane.

use super::numbers;
use crate::host::HostTensor;

/// Points around the corners of a regular polygon: a mixture of Gaussians on a ring (Metz et al.,
/// ICLR 2017). The data tests whether a generative network generates points of all Gaussians.
///
/// ```
/// use remat::data::Ring;
///
/// let ring = Ring { modes: 4, radius: 1.0, deviation: 0.0, seed: 0 };
/// let points = ring.batch(0, 10);
/// for point in points.as_f32().unwrap().chunks(2) {
///     assert!((point[0].hypot(point[1]) - 1.0).abs() < 1e-6);
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ring {
    /// Number of Gaussians: 8 in the paper.
    pub modes: usize,
    /// Distance of the means from the origin: 2 in the paper.
    pub radius: f32,
    /// Standard deviation of each Gaussian: .02 in the paper.
    pub deviation: f32,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Ring {
    /// Ring of the paper.
    ///
    /// ```
    /// use remat::data::Ring;
    ///
    /// let ring = Ring::new(1);
    /// assert_eq!((ring.modes, ring.radius), (8, 2.0));
    /// ```
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { modes: 8, radius: 2.0, deviation: 0.02, seed }
    }

    /// Batch `number` of points, `[n, 2]`. The same number and seed always give the same points.
    ///
    /// ```
    /// use remat::data::Ring;
    ///
    /// let ring = Ring::new(1);
    /// assert_eq!(&**ring.batch(3, 64).shape(), [64, 2]);
    /// assert_eq!(ring.batch(3, 64), ring.batch(3, 64));
    /// ```
    ///
    /// # Panics
    /// Panics if there are no modes, or more than `isize::MAX / 8` points.
    #[must_use]
    pub fn batch(&self, number: u64, n: usize) -> HostTensor {
        self.batch_from(0, number, n)
    }

    /// Part of batch `number`: `n` points from point `first` on.
    ///
    /// ```
    /// use remat::data::Ring;
    ///
    /// let ring = Ring::new(1);
    /// let (whole, second) = (ring.batch(0, 4), ring.batch_from(2, 0, 2));
    /// assert_eq!(whole.as_f32().unwrap()[4..], *second.as_f32().unwrap());
    /// ```
    ///
    /// # Panics
    /// Panics if there are no modes, or more than `isize::MAX / 8` points.
    #[must_use]
    pub fn batch_from(&self, first: usize, number: u64, n: usize) -> HostTensor {
        /// Number of random numbers drawn for a point.
        const EACH: usize = 3;
        let mut numbers = numbers(self.seed, number);
        numbers.skip(EACH * first);
        let mut points = Vec::with_capacity(2 * n);
        for _ in 0..n {
            let [x, y] = self.mean(numbers.below(self.modes));
            // Method of Box and Muller (1958).
            let [a, b] = [(); 2].map(|()| numbers.unit());
            let distance = f64::from(self.deviation) * (-2.0 * (1.0 - a).ln()).sqrt();
            let angle = std::f64::consts::TAU * b;
            points.push((x + distance * angle.cos()) as f32);
            points.push((y + distance * angle.sin()) as f32);
        }
        HostTensor::f32([n, 2], points).expect("two for each point")
    }

    fn mean(&self, mode: usize) -> [f64; 2] {
        let angle = std::f64::consts::TAU * mode as f64 / self.modes as f64;
        [angle.cos(), angle.sin()].map(|x| f64::from(self.radius) * x)
    }

    /// Number of the Gaussian whose mean is nearest to the point, and the distance to this mean. A
    /// distance that is NaN counts as infinite.
    ///
    /// ```
    /// use remat::data::Ring;
    ///
    /// let (mode, distance) = Ring::new(1).nearest([3.0, 0.0]);
    /// assert_eq!(mode, 0);
    /// assert!((distance - 1.0).abs() < 1e-9);
    /// ```
    ///
    /// # Panics
    /// Panics if there are no modes.
    #[must_use]
    pub fn nearest(&self, point: [f32; 2]) -> (usize, f64) {
        let distance = |mode: usize| {
            let mean = self.mean(mode);
            let [dx, dy] = [0, 1].map(|i| f64::from(point[i]) - mean[i]);
            let distance = dx.hypot(dy);
            (mode, if distance.is_nan() { f64::INFINITY } else { distance })
        };
        let all = (0..self.modes).map(distance);
        all.min_by(|a, b| a.1.total_cmp(&b.1)).expect("at least one mode")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_near_the_means_of_all_modes() {
        let ring = Ring::new(3);
        let points = ring.batch(0, 1000);
        let points = points.as_f32().unwrap();
        let (points, rest) = points.as_chunks::<2>();
        assert!(points.len() == 1000 && rest.is_empty());
        let mut of_mode = [0; 8];
        for &point in points {
            let (mode, distance) = ring.nearest(point);
            of_mode[mode] += usize::from(distance <= 0.06);
        }
        assert!(of_mode.iter().all(|n| (80..170).contains(n)), "{of_mode:?}");
        // In a plane, 1.1 % of a Gaussian's points are further away than three standard deviations.
        let near: usize = of_mode.iter().sum();
        assert!((970..1000).contains(&near), "{near}");
        let points = points.as_flattened();
        assert_eq!(ring.batch(0, 1000).as_f32().unwrap(), points);
        assert_ne!(ring.batch(1, 1000).as_f32().unwrap(), points);
        assert_eq!(ring.batch_from(300, 0, 50).as_f32().unwrap(), &points[600..700]);
        let (mode, distance) = ring.nearest([-2.0, 0.5]);
        assert!(mode == 4 && (distance - 0.5).abs() < 1e-9, "{mode} {distance}");
        assert_eq!(ring.nearest([f32::NAN, 0.0]).1, f64::INFINITY);
    }
}
