//! A tiny generator for choices that are not worth a dependency: sampling candidates, the random policy, tests.

/// One step of a hash of words that is the same everywhere and always.
pub const fn mix(hash: u64, word: u64) -> u64 {
    SplitMix64(hash.rotate_left(5) ^ word).next()
}

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The numbers of one draw of many with the same seed.
    #[cfg(feature = "data")]
    pub const fn of(seed: u64, draw: u64) -> Self {
        Self(seed ^ Self(!draw).next())
    }

    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Evenly from 0 up to 1.
    #[cfg(feature = "lab")]
    pub const fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// About 0 with a deviation of 1: a sum of six even numbers.
    #[cfg(feature = "lab")]
    pub fn normal(&mut self) -> f64 {
        let sum: f64 = (0..6).map(|_| self.unit()).sum();
        (sum - 3.0) * std::f64::consts::SQRT_2
    }

    /// Evenly from `0..n`, for `n > 0`.
    pub const fn below(&mut self, n: usize) -> usize {
        ((self.next() as u128 * n as u128) >> 64) as usize
    }
}
