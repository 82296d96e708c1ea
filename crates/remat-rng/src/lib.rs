//! Small random number generator, and hashes of 64-bit words. The numbers of a seed are the same on
//! every machine and in every version, so they may be part of recordings and goldens.
//!
//! ```
//! use remat_rng::SplitMix64;
//!
//! let mut rng = SplitMix64::new(7);
//! let dice: Vec<usize> = (0..5).map(|_| 1 + rng.below(6)).collect();
//! assert_eq!(dice, [3, 1, 6, 4, 3]);
//! ```

#![no_std]
#![forbid(unsafe_code)]

/// Adds one word to a hash of words. The result is the same on every machine and in every version.
#[inline]
#[must_use]
pub const fn mix(hash: u64, word: u64) -> u64 {
    SplitMix64(hash.rotate_left(5) ^ word).next()
}

/// Spreads the bits of a word over all bits of the result. Different words give different results.
#[inline]
#[must_use]
pub const fn spread(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Increment of the state for each number: 2^64 over the golden ratio.
    pub const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

    /// Generator with this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Generator for one of many independent draws: number `draw` of the draws with this seed.
    #[must_use]
    pub const fn of(seed: u64, draw: u64) -> Self {
        Self(seed ^ Self(!draw).next())
    }

    /// Next number, evenly distributed over all 64-bit numbers.
    #[inline]
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(Self::STEP);
        spread(self.0)
    }

    /// Skips `count` numbers. [`SplitMix64::unit`] and [`SplitMix64::below`] use up one number per
    /// call.
    #[inline]
    pub const fn skip(&mut self, count: usize) {
        self.0 = self.0.wrapping_add(Self::STEP.wrapping_mul(count as u64));
    }

    /// Number from 0 up to 1, evenly distributed.
    #[inline]
    pub const fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Roughly normal number with mean 0 and deviation 1, from a sum of six evenly distributed
    /// numbers.
    pub fn normal(&mut self) -> f64 {
        let sum: f64 = (0..6).map(|_| self.unit()).sum();
        (sum - 3.0) * core::f64::consts::SQRT_2
    }

    /// Number from `0..n`, evenly distributed, for `n > 0`.
    #[inline]
    pub const fn below(&mut self, n: usize) -> usize {
        ((self.next() as u128 * n as u128) >> 64) as usize
    }

    /// True once in `n` times on average.
    #[inline]
    pub const fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}
