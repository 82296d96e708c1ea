//! The table from tensor numbers to the engine's keys. The sender of commands assigns the numbers.
//! A runtime assigns numbers with `new_ids`, in `runtime.rs`.

use crate::command::TensorId;
use crate::graph::TensorKey;
use rustc_hash::FxHashMap;
use slotmap::Key as _;
use std::collections::VecDeque;

/// Maps numbers to keys. The keys of recent numbers are in a vector (the *row*), which is indexed
/// without hashing. A vector suffices because numbers count up, and most tensors are deleted soon.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    /// Number of the first entry of the row.
    first: u64,
    /// Keys of consecutive numbers, beginning with `first`; null for a number that is not in use.
    row: VecDeque<TensorKey>,
    /// Number of entries of the row that are not null.
    in_row: usize,
    /// Keys of numbers below `first`.
    early: FxHashMap<TensorId, TensorKey>,
    /// Log of changes, if planning is on.
    changes: Option<Box<Changes>>,
}

/// Numbers that were inserted or removed since the last call of `take_changes`, in order.
///
/// A number that was inserted and then removed is regularly deleted from the log. The deletions
/// keep the log's length close to the present number of tensors plus their number at the last call
/// of `take_changes`.
#[derive(Debug, Default)]
struct Changes {
    /// Changed numbers, with `true` for an insertion and `false` for a removal.
    all: Vec<(TensorId, bool)>,
    /// Length of `all` above which numbers that were inserted and removed again are deleted from
    /// it.
    most: usize,
}

/// Number of last changes that are searched for the insertion of a removed number. Most numbers are
/// removed soon after they were made, and then leave nothing in the log.
const RECENT: usize = 4;

impl Changes {
    #[inline]
    fn note_removed(&mut self, tensor: TensorId) {
        let older = self.all.len().saturating_sub(RECENT);
        match self.all[older..].iter().rposition(|change| *change == (tensor, true)) {
            Some(recent) => _ = self.all.remove(older + recent),
            None => self.all.push((tensor, false)),
        }
    }
}

/// Length up to which a row is never shortened, even if nearly all its entries are null.
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

    #[inline(always)]
    pub fn insert(&mut self, tensor: TensorId, key: TensorKey) {
        let before = self.put(tensor, key);
        if self.changes.is_some() {
            self.note_made(tensor, before.is_some());
        }
    }

    /// Moves the key of one number to another number. The log of changes does not contain the move.
    pub fn rename(&mut self, before: TensorId, after: TensorId) {
        if let Some(key) = self.take(before) {
            self.put(after, key);
        }
    }

    /// Sets the key of a number. Returns the previous key of the number.
    #[inline(always)]
    fn put(&mut self, tensor: TensorId, key: TensorKey) -> Option<TensorKey> {
        let Some(at) = tensor.0.checked_sub(self.first) else {
            return self.early.insert(tensor, key);
        };
        if at != self.row.len() as u64 {
            return self.insert_beside(at, tensor, key);
        }
        self.row.push_back(key);
        self.in_row += 1;
        if self.row.len() > SHORT {
            self.shorten();
        }
        None
    }

    #[cold]
    fn insert_beside(&mut self, at: u64, tensor: TensorId, key: TensorKey) -> Option<TensorKey> {
        if at > (self.row.len() + SHORT) as u64 {
            // The number is far beyond the row, because other senders took the numbers in between.
            // Start a new row.
            self.retire(self.row.len());
            self.first = tensor.0;
            self.row.push_back(key);
            self.in_row = 1;
            return None;
        }
        let at = at as usize;
        while self.row.len() <= at {
            self.row.push_back(TensorKey::null());
        }
        let before = std::mem::replace(&mut self.row[at], key);
        self.in_row += usize::from(before.is_null());
        if self.row.len() > SHORT {
            self.shorten();
        }
        (!before.is_null()).then_some(before)
    }

    #[inline]
    pub fn remove(&mut self, tensor: TensorId) -> Option<TensorKey> {
        let key = self.take(tensor)?;
        if let Some(changes) = &mut self.changes {
            changes.note_removed(tensor);
        }
        Some(key)
    }

    #[inline]
    fn take(&mut self, tensor: TensorId) -> Option<TensorKey> {
        let Some(at) = tensor.0.checked_sub(self.first) else { return self.take_early(tensor) };
        let place = self.row.get_mut(at as usize)?;
        let key = std::mem::replace(place, TensorKey::null());
        if key.is_null() {
            return None;
        }
        self.in_row -= 1;
        Some(key)
    }

    fn take_early(&mut self, tensor: TensorId) -> Option<TensorKey> {
        let key = self.early.remove(&tensor)?;
        let (len, capacity) = (self.early.len(), self.early.capacity());
        if capacity > SHORT && len * 8 < capacity {
            self.early.shrink_to(2 * len);
        }
        Some(key)
    }

    /// Starts or stops the log of changes. A new log begins with an insertion of every number in
    /// use.
    pub fn note_changes(&mut self, wanted: bool) {
        let all = self.iter().map(|(tensor, _)| (tensor, true)).collect();
        self.changes = wanted.then(|| Box::new(Changes { all, most: SHORT }));
    }

    /// Takes the numbers that were inserted or removed since the last call, in ascending order,
    /// each once.
    pub fn take_changes(&mut self) -> Vec<TensorId> {
        let Some(changes) = &mut self.changes else { return Vec::new() };
        changes.most = SHORT;
        let mut all: Vec<_> = changes.all.drain(..).map(|(tensor, _)| tensor).collect();
        changes.all.shrink_to(2 * SHORT);
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Whether nothing changed since the last [`take_changes`](Self::take_changes).
    pub fn is_unchanged(&self) -> bool {
        self.changes.as_ref().is_none_or(|changes| changes.all.is_empty())
    }

    #[inline]
    fn note_made(&mut self, tensor: TensorId, meant_something: bool) {
        let Some(changes) = &mut self.changes else { return };
        if meant_something {
            std::hint::cold_path();
            changes.all.push((tensor, false));
        }
        changes.all.push((tensor, true));
        if changes.all.len() > changes.most {
            self.note_less();
        }
    }

    /// Removes numbers from the log that were inserted and removed again since the last
    /// [`take_changes`](Self::take_changes).
    #[cold]
    fn note_less(&mut self) {
        let Some(mut changes) = self.changes.take() else { return };
        // A stable sort keeps the first event of each number first. The first event shows whether
        // the number was in use before.
        changes.all.sort_by_key(|(tensor, _)| *tensor);
        changes.all.dedup_by_key(|(tensor, _)| *tensor);
        changes.all.retain(|&(tensor, was_new)| !was_new || self.get(tensor).is_some());
        changes.most = 2 * changes.all.len() + SHORT;
        self.changes = Some(changes);
    }

    /// All numbers in use with their keys, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (TensorId, TensorKey)> {
        let row = (self.first..).map(TensorId).zip(self.row.iter().copied());
        let early = self.early.iter().map(|(&tensor, &key)| (tensor, key));
        row.filter(|(_, key)| !key.is_null()).chain(early)
    }

    pub fn extend(&mut self, tensors: impl IntoIterator<Item = (TensorId, TensorKey)>) {
        tensors.into_iter().for_each(|(tensor, key)| self.insert(tensor, key));
    }

    /// Shortens a row that is mostly nulls.
    #[cold]
    fn shorten(&mut self) {
        // Move the older half of the row to `early`. A moved number never returns to the row, so
        // each number is moved at most once.
        if self.in_row * 4 < self.row.len() {
            self.retire(self.row.len() / 2);
            if self.row.capacity() > 4 * self.row.len().max(SHORT) {
                self.row.shrink_to(2 * self.row.len());
            }
        }
    }

    /// Moves the first `count` entries of the row to `early`.
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
    use remat_rng::SplitMix64;
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
                    // Sometimes skip a few or many numbers, as if other senders had taken the
                    // skipped numbers.
                    0 if draw.below(50) == 0 => next += draw.below(20_000) as u64,
                    0..=4 => {
                        let tensor = TensorId(next);
                        next += 1;
                        let key = keys.insert(step);
                        numbers.insert(tensor, key);
                        expected.insert(tensor, key);
                    }
                    // Threads send their numbers in any order.
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
