//! Memory of the failed states of a search.

use super::scatter;

/// Hash table with the keys of failed states. A new key replaces the old key at the same index.
///
/// A key is a hash of a state: the buffers that are not placed, their lowest possible addresses,
/// and the buffers that were passed over. A key has 128 bits, so a collision between two states of
/// one search is less likely than a hardware fault.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Keys of failed states. The lowest bits of a key are its index; 0 stands for an empty entry.
    keys: Vec<u128>,
    filled: usize,
}

impl Memory {
    /// Limit on the length of `keys`, which then take 16 MiB.
    const MOST: usize = 1 << 20;

    /// Hash of a buffer and its lowest possible address. The key of a state is the sum of these
    /// hashes.
    pub fn word(rank: u32, least: u64) -> u128 {
        let seed = (u64::from(rank) << 40 ^ u64::from(rank)).wrapping_add(least);
        u128::from(scatter(seed)) << 64 | u128::from(scatter(seed ^ 0x5851_f42d_4c95_7f2d))
    }

    pub fn has(&self, key: u128) -> bool {
        !self.keys.is_empty() && self.keys[key as usize & (self.keys.len() - 1)] == key
    }

    pub fn insert(&mut self, key: u128) {
        if self.filled * 2 >= self.keys.len() && self.keys.len() < Self::MOST {
            let keys = std::mem::take(&mut self.keys);
            self.keys = vec![0; (keys.len() * 4).clamp(1 << 10, Self::MOST)];
            self.filled = 0;
            keys.into_iter().filter(|&key| key != 0).for_each(|key| self.set(key));
        }
        self.set(key);
    }

    pub fn clear(&mut self) {
        self.keys.clear();
        self.filled = 0;
    }

    fn set(&mut self, key: u128) {
        let at = key as usize & (self.keys.len() - 1);
        self.filled += usize::from(self.keys[at] == 0);
        self.keys[at] = key;
    }
}
