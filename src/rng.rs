//! A tiny generator for choices that are not worth a dependency: sampling candidates, the random policy, tests.
//!
//! There is no other: tests, benches and `remat-burn`, which cannot import it, have this file by its path.

#![allow(dead_code)] // Each of them uses a part of it, and so does the library without some features.

/// One step of a hash of words that is the same everywhere and always.
pub const fn mix(hash: u64, word: u64) -> u64 {
    SplitMix64(hash.rotate_left(5) ^ word).next()
}

/// The bits of a word spread over all of another, which no other word has.
pub const fn spread(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// What the state grows by for each number: 2^64 over the golden ratio.
    pub const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The numbers of one draw of many with the same seed.
    pub const fn of(seed: u64, draw: u64) -> Self {
        Self(seed ^ Self(!draw).next())
    }

    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(Self::STEP);
        spread(self.0)
    }

    /// Leaves out so many numbers: [`SplitMix64::unit`] and [`SplitMix64::below`] take one each.
    pub const fn skip(&mut self, count: usize) {
        self.0 = self.0.wrapping_add(Self::STEP.wrapping_mul(count as u64));
    }

    /// Evenly from 0 up to 1.
    pub const fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// About 0 with a deviation of 1: a sum of six even numbers.
    pub fn normal(&mut self) -> f64 {
        let sum: f64 = (0..6).map(|_| self.unit()).sum();
        (sum - 3.0) * std::f64::consts::SQRT_2
    }

    /// Evenly from `0..n`, for `n > 0`.
    pub const fn below(&mut self, n: usize) -> usize {
        ((self.next() as u128 * n as u128) >> 64) as usize
    }

    /// True once in `n` times.
    pub const fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}
