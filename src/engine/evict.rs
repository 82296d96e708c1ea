//! Choosing a storage and letting its bytes go.

use super::candidates::{Question, Tier};
use super::guard::caught;
use super::{Engine, Error, Residence, StorageKey, TensorKey};
use crate::device::Device;
use crate::policy::{Aging, Lowered, Policy, View};
use ordered_float::OrderedFloat;
use std::cmp::Reverse;
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

/// Who panicked.
const POLICY: fn() -> String = || "the policy".to_owned();

impl<D: Device> Engine<D> {
    /// With an eviction threshold: evicts until no more bytes than that are used, or nothing is left.
    pub(super) fn meet_threshold(&mut self) -> Result<(), Error> {
        let Some(threshold) = self.settings.eviction_threshold else { return Ok(()) };
        while self.space.used() > threshold && self.evict_one(Need::Wish)? {
            self.work.did_evict(true);
        }
        let kept = self.space.used() - self.table.evictable_bytes();
        self.stats.unevictable_bytes = self.stats.unevictable_bytes.max(kept);
        if kept > threshold && !std::mem::replace(&mut self.warned_of_threshold, true) {
            tracing::warn!(
                target: "remat", threshold, kept,
                "the eviction threshold cannot be met: what cannot be evicted is above it; raise it"
            );
        }
        Ok(())
    }

    /// Evicts what the policy would miss least. False if there is no candidate, or the policy never
    /// evicts.
    ///
    /// # Errors
    /// If the policy panics. Nothing was evicted then.
    pub(super) fn evict_one(&mut self, need: Need) -> Result<bool, Error> {
        if self.table.evictable_bytes() == 0 || !self.evicts {
            return Ok(false);
        }
        let start = Instant::now();
        let choice = self.choose(need);
        self.stats.search_seconds += start.elapsed().as_secs_f64();
        let Some((score, victim)) = choice? else { return Ok(false) };
        let bytes = self.table.storage(victim).bytes;
        tracing::debug!(
            target: "remat", op = self.op_of(victim), tensor = %self.tensor_name(victim), bytes, score,
            "will evict"
        );
        self.evict_counted(victim);
        Ok(true)
    }

    /// A wish to evict a tensor's storage now. Returns whether its bytes went: they stay if it is a
    /// leaf, or gone already.
    ///
    /// # Errors
    /// If the key is stale.
    pub fn drop_now(&mut self, key: TensorKey) -> Result<bool, Error> {
        self.working()?;
        let storage = self.tensor(key)?.storage;
        let evictable = self.table.is_evictable(storage);
        if evictable {
            self.evict_counted(storage);
        } else if self.table.is_resident(storage) {
            tracing::warn!(
                target: "remat", tensor = %self.name_of(storage), bytes = self.table.storage(storage).bytes,
                "not evicted: it is a leaf, which nothing could bring back"
            );
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
            if self.table.held(key).is_some() {
                self.let_go(key);
            }
        }
    }

    fn let_go(&mut self, key: StorageKey) {
        let held =
            self.table.set_absent(key, Residence::Evicted).expect("only resident bytes can go");
        self.space.free(held);
        self.tell(|policy, view, _| policy.did_evict(key, view));
        tracing::trace!(
            target: "remat", op = self.op_of(key), tensor = %self.tensor_name(key),
            bytes = self.table.storage(key).bytes, "did evict"
        );
    }

    /// Tells the policy what happened, and takes note of the scores that it reports as lowered.
    pub(super) fn tell(&mut self, what: impl FnOnce(&mut dyn Policy, View<'_>, &mut Lowered)) {
        if !self.evicts {
            return;
        }
        let view = View { table: &self.table, now: self.now, space: &self.space };
        let (policy, lowered) = (&mut *self.policy, &mut self.lowered);
        if let Err(error) = caught(POLICY, || what(policy, view, lowered)) {
            // What it knows does not agree with the tables any more.
            self.broken.get_or_insert(error);
        }
        if !self.lowered.keys.is_empty() {
            self.lowered.keys.drain(..).for_each(|key| self.table.lower(key));
        }
        if std::mem::take(&mut self.lowered.all) {
            self.table.candidates.lower_all();
        }
    }

    /// The candidate with the lowest score, of the first tier that has one.
    fn choose(&mut self, need: Need) -> Result<Option<(f64, StorageKey)>, Error> {
        let tiers: &[Tier] = match need {
            Need::Wish => &[Tier::Free],
            Need::Must => &[Tier::Free, Tier::Small, Tier::Awaited],
        };
        for &tier in tiers {
            if self.settings.sqrt_sampling
                && let Some(found) = self.best_of(tier, true)?
            {
                return Ok(Some(found));
            }
            let found = match self.aging {
                Aging::Any => self.best_of(tier, false)?,
                Aging::Steady => self.lowest(tier, false)?,
                Aging::Staleness => self.lowest(tier, true)?,
            };
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// The candidate with the lowest score, found by floors.
    fn lowest(&mut self, tier: Tier, aged: bool) -> Result<Option<(f64, StorageKey)>, Error> {
        // The search changes what is known of candidates, which the policy does not look at.
        let mut candidates = std::mem::take(&mut self.table.candidates);
        let view = View { table: &self.table, now: self.now, space: &self.space };
        let (policy, stats) = (&mut self.policy, &mut self.stats);
        let best = caught(POLICY, || {
            let exact = policy.floors_are_scores();
            candidates.lowest(tier, aged, exact, self.now, |key, question| match question {
                Question::Floor => policy.floor(key, view),
                Question::Score { enough } => {
                    stats.score_evaluations += 1;
                    policy.score_up_to(key, enough, view)
                }
            })
        });
        if best.is_err() {
            candidates.end_search();
        }
        self.table.candidates = candidates;
        best
    }

    /// The candidate with the lowest score, found by asking for all scores, or those of a sample.
    fn best_of(&mut self, tier: Tier, sample: bool) -> Result<Option<(f64, StorageKey)>, Error> {
        let candidates = &self.table.candidates;
        let stride = if sample { candidates.keys().len().isqrt() } else { 1 };
        let view = View { table: &self.table, now: self.now, space: &self.space };
        let aged = self.aging == Aging::Staleness;
        let mut best: Option<(OrderedFloat<f64>, Reverse<u64>, StorageKey)> = None;
        let mut position = 0;
        loop {
            // Steps of 1 to sqrt(n), all equally likely: about 2 sqrt(n) looks.
            if stride > 1 {
                position += self.sampling.below(stride);
            }
            let Some(&key) = candidates.keys().get(position) else { break };
            let spared = candidates.is_spared(position, tier);
            let order = Reverse(candidates.order(position));
            position += 1;
            if spared || self.table.storage(key).pins > 0 {
                continue;
            }
            let score = caught(POLICY, || self.policy.score(key, view))?;
            let score = OrderedFloat(if aged { score / view.staleness(key) } else { score });
            self.stats.score_evaluations += 1;
            if best.is_none_or(|(lowest, last, _)| (score, order) < (lowest, last)) {
                best = Some((score, order, key));
            }
        }
        Ok(best.map(|(score, _, key)| (score.0, key)))
    }
}
