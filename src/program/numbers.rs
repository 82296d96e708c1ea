//! Which tensor a number means.

use super::TensorId;
use crate::graph::TensorKey;
use rustc_hash::FxHashMap;
use slotmap::Key as _;
use std::collections::VecDeque;

/// Number -> key. Numbers are counted up, and most tensors go soon: those of late are in a row, without a hash.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    /// The number of the first in the row.
    first: u64,
    /// Keys of the numbers from there on; null where one means nothing.
    row: VecDeque<TensorKey>,
    /// How many in the row are not null.
    in_row: usize,
    /// Those with lower numbers.
    early: FxHashMap<TensorId, TensorKey>,
}

/// A row that is shorter than this is kept whatever is in it.
const SHORT: usize = 1 << 12;

impl Numbers {
    pub fn reserve(&mut self, tensors: usize) {
        self.row.reserve(tensors);
    }

    #[inline]
    pub fn get(&self, tensor: TensorId) -> Option<TensorKey> {
        match tensor.0.checked_sub(self.first) {
            Some(at) => self.row.get(at as usize).copied().filter(|key| !key.is_null()),
            None => self.early.get(&tensor).copied(),
        }
    }

    #[inline]
    pub fn insert(&mut self, tensor: TensorId, key: TensorKey) {
        let Some(at) = tensor.0.checked_sub(self.first) else {
            self.early.insert(tensor, key);
            return;
        };
        if at == self.row.len() as u64 {
            self.row.push_back(key);
            self.in_row += 1;
            if self.row.len() > SHORT {
                self.shorten();
            }
        } else {
            self.insert_beside(at, tensor, key);
        }
    }

    #[cold]
    fn insert_beside(&mut self, at: u64, tensor: TensorId, key: TensorKey) {
        if at > (self.row.len() + SHORT) as u64 {
            // Others have counted on meanwhile: a new row.
            self.retire(self.row.len());
            self.first = tensor.0;
            self.row.push_back(key);
            self.in_row = 1;
            return;
        }
        let at = at as usize;
        while self.row.len() <= at {
            self.row.push_back(TensorKey::null());
        }
        let before = std::mem::replace(&mut self.row[at], key);
        self.in_row += usize::from(before.is_null());
    }

    #[inline]
    pub fn remove(&mut self, tensor: TensorId) -> Option<TensorKey> {
        let Some(at) = tensor.0.checked_sub(self.first) else { return self.early.remove(&tensor) };
        let place = self.row.get_mut(at as usize)?;
        let key = std::mem::replace(place, TensorKey::null());
        if key.is_null() {
            return None;
        }
        self.in_row -= 1;
        Some(key)
    }

    /// All that mean something, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (TensorId, TensorKey)> {
        let row = (self.first..).map(TensorId).zip(self.row.iter().copied());
        let early = self.early.iter().map(|(&tensor, &key)| (tensor, key));
        row.filter(|(_, key)| !key.is_null()).chain(early)
    }

    pub fn extend(&mut self, tensors: impl IntoIterator<Item = (TensorId, TensorKey)>) {
        tensors.into_iter().for_each(|(tensor, key)| self.insert(tensor, key));
    }

    /// Keeps a row that is mostly nulls from growing on.
    #[cold]
    fn shorten(&mut self) {
        // Half of it, so that each number is moved once at the most.
        if self.in_row * 4 < self.row.len() {
            self.retire(self.row.len() / 2);
        }
    }

    /// Takes so many from the start of the row.
    fn retire(&mut self, count: usize) {
        for (tensor, key) in (self.first..).zip(self.row.drain(..count)) {
            if !key.is_null() {
                self.early.insert(TensorId(tensor), key);
                self.in_row -= 1;
            }
        }
        self.first += count as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;
    use slotmap::SlotMap;

    #[test]
    fn numbers_mean_what_they_were_given_whatever_the_order() {
        let mut keys = SlotMap::<TensorKey, u64>::with_key();
        for seed in 0..20 {
            let mut draw = SplitMix64::new(seed);
            let (mut numbers, mut expected) = (Numbers::default(), FxHashMap::default());
            let mut next = seed * 1_000_000;
            for step in 0..60_000 {
                match draw.below(10) {
                    // Now and then others count on, by little or by much.
                    0 if draw.below(50) == 0 => next += draw.below(20_000) as u64,
                    0..=4 => {
                        let tensor = TensorId(next);
                        next += 1;
                        let key = keys.insert(step);
                        numbers.insert(tensor, key);
                        expected.insert(tensor, key);
                    }
                    // Threads send what they number in any order.
                    5 => {
                        let back = draw.below(6000) as u64;
                        let (tensor, key) =
                            (TensorId(next.saturating_sub(back)), keys.insert(step));
                        numbers.insert(tensor, key);
                        expected.insert(tensor, key);
                    }
                    _ => {
                        let far = if draw.below(4) == 0 { 8000 } else { 20 };
                        let tensor = TensorId(next.saturating_sub(draw.below(far) as u64));
                        assert_eq!(numbers.get(tensor), expected.get(&tensor).copied());
                        assert_eq!(numbers.remove(tensor), expected.remove(&tensor));
                        assert_eq!(numbers.get(tensor), None);
                    }
                }
            }
            for (tensor, key) in expected {
                assert_eq!(numbers.remove(tensor), Some(key));
            }
            assert_eq!((numbers.in_row, numbers.early.len()), (0, 0));
        }
    }

    #[test]
    fn the_row_does_not_grow_with_the_numbers() {
        let mut keys = SlotMap::<TensorKey, ()>::with_key();
        let mut numbers = Numbers::default();
        for number in 0..1_000_000 {
            numbers.insert(TensorId(number), keys.insert(()));
            if number % 1000 != 0 {
                numbers.remove(TensorId(number));
            }
        }
        assert!(numbers.row.len() <= 2 * SHORT && numbers.early.len() <= 1000);
        assert!((0..1000).all(|n| numbers.get(TensorId(n * 1000)).is_some()));
    }
}
