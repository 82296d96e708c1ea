//! Choosing a storage and letting its bytes go.

use super::{Engine, Error, Residence, Storage, StorageKey, TensorKey};
use crate::device::Device;
use crate::policy::View;
use ordered_float::OrderedFloat;
use std::time::Instant;

/// How far an eviction may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Memory is above the threshold: only what is worth it.
    Wish,
    /// An allocation does not fit: whatever is left. First storages below `min_evict_bytes`, then those
    /// that the regeneration at hand is about to read; so neither filter makes a feasible program fail.
    Must,
}

impl<D: Device> Engine<D> {
    /// With an eviction threshold: evicts until no more bytes than that are used, or nothing is left.
    pub(super) fn meet_threshold(&mut self) {
        if let Some(threshold) = self.settings.eviction_threshold {
            while self.arena.used() > threshold && self.evict_one(Need::Wish) {}
        }
    }

    /// Evicts what the policy would miss least. False if there is no candidate, or the policy never
    /// evicts.
    pub(super) fn evict_one(&mut self, need: Need) -> bool {
        if self.table.evictable_bytes() == 0 || !self.policy.evicts() {
            return false;
        }
        let start = Instant::now();
        let choice = self.choose(need);
        self.stats.search_seconds += start.elapsed().as_secs_f64();
        let Some((score, victim)) = choice else { return false };
        let bytes = self.table.storage(victim).bytes;
        tracing::debug!(target: "remat", op = self.name_of(victim), bytes, score, "will evict");
        self.evict_counted(victim);
        true
    }

    /// A wish to evict a tensor's storage now. Returns whether its bytes went: they stay if it is a
    /// leaf, or gone already.
    ///
    /// # Errors
    /// If the key is stale.
    pub fn drop_now(&mut self, key: TensorKey) -> Result<bool, Error> {
        let storage = self.tensor(key)?.storage;
        let evictable = self.table.is_evictable(storage);
        if evictable {
            self.evict_counted(storage);
        }
        Ok(evictable)
    }

    fn evict_counted(&mut self, key: StorageKey) {
        self.stats.evictions += 1;
        self.stats.evicted_bytes += self.table.storage(key).bytes;
        self.evict(key);
    }

    /// Lets the bytes of an unpinned, resident storage with a producer go.
    pub(super) fn evict(&mut self, key: StorageKey) {
        debug_assert_eq!(self.table.storage(key).pins, 0, "a pinned storage is never evicted");
        self.let_go(key);
    }

    /// Lets the bytes of outputs go that a failed run may have written over in part. They can be
    /// regenerated, and whoever pinned them fails with that run.
    pub(super) fn give_up(&mut self, outputs: &[Option<StorageKey>]) {
        for &key in outputs.iter().flatten() {
            if self.table.block(key).is_some() {
                self.let_go(key);
            }
        }
    }

    fn let_go(&mut self, key: StorageKey) {
        let block = self
            .table
            .set_absent(key, Residence::Evicted, &self.arena)
            .expect("only resident bytes can go");
        self.arena.free(block);
        let view = View { table: &self.table, now: self.now, arena: &self.arena };
        self.policy.did_evict(key, view);
        tracing::trace!(target: "remat", op = self.name_of(key), bytes = self.table.storage(key).bytes, "did evict");
    }

    /// The unpinned candidate with the lowest score, the first of equals.
    fn choose(&mut self, need: Need) -> Option<(f64, StorageKey)> {
        let minimum = self.settings.min_evict_bytes;
        let worth_it = |s: &Storage| s.awaited == 0 && s.bytes >= minimum;
        let sampled = if self.settings.sqrt_sampling { self.best_of(true, worth_it) } else { None };
        let best = sampled.or_else(|| self.best_of(false, worth_it));
        if need == Need::Wish {
            return best;
        }
        best.or_else(|| self.best_of(false, |s| s.awaited == 0))
            .or_else(|| self.best_of(false, |_| true))
    }

    fn best_of(
        &mut self,
        sample: bool,
        eligible: impl Fn(&Storage) -> bool,
    ) -> Option<(f64, StorageKey)> {
        let candidates = self.table.candidates();
        let stride = if sample { candidates.len().isqrt() } else { 1 };
        let view = View { table: &self.table, now: self.now, arena: &self.arena };
        let mut best: Option<(OrderedFloat<f64>, StorageKey)> = None;
        let mut position = 0;
        loop {
            // Steps of 1 to sqrt(n), all equally likely: about 2 sqrt(n) looks.
            if stride > 1 {
                position += self.sampling.below(stride);
            }
            let Some(&key) = candidates.get(position) else { break };
            position += 1;
            let storage = self.table.storage(key);
            if storage.pins > 0 || !eligible(storage) {
                continue;
            }
            let score = OrderedFloat(self.policy.score(key, view));
            self.stats.score_evaluations += 1;
            if best.is_none_or(|(lowest, _)| score < lowest) {
                best = Some((score, key));
            }
        }
        best.map(|(score, key)| (score.0, key))
    }
}
