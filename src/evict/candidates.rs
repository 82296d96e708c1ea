//! Candidates for eviction. The store keeps the data of candidates in parallel lists, with one
//! entry for each candidate.

use crate::graph::{Graph, Storage, StorageKey};
use remat_memory::Held;
use std::cell::Cell;

/// Order of eviction: an evictor chooses from a tier only when all tiers before it are empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// Storages that are evicted first.
    Free,
    /// Storages smaller than `min_evict_bytes`.
    Small,
    /// Inputs of a waiting run of the current regeneration.
    Awaited,
    /// Storages of 0 bytes, whose eviction would free no memory. No storage in this tier is ever
    /// evicted.
    Worthless,
    /// Pinned storages. No storage in this tier is ever evicted.
    Pinned,
}

/// Note (number kept for the evictor) of a candidate for which the evictor has computed no number
/// yet.
pub(super) const UNKNOWN: f64 = f64::NEG_INFINITY;

/// Note of a candidate that a search skips: NaN, which is never lower than another note.
pub(super) const SPARED: f64 = f64::NAN;

/// All storages that are resident and have a producer, including pinned storages, as parallel
/// lists.
///
/// When a candidate is removed, the last candidate takes its position.
#[derive(Debug, Default)]
pub(crate) struct Candidates {
    keys: Vec<StorageKey>,
    /// Clock time when an op last read or made each candidate.
    since: Vec<Cell<f64>>,
    tiers: Vec<Tier>,
    /// Serial number of each candidate's addition or last unpin. On a tie of scores, the candidate
    /// with the highest number is evicted.
    order: Vec<u64>,
    /// Number that the evictor keeps for each candidate: its *note*. A note begins as [`UNKNOWN`],
    /// and moves when the candidate's position changes.
    notes: Vec<Cell<f64>>,
    /// Second number that the evictor keeps for each candidate: the time of the candidate's next
    /// use. The time is meaningless while the candidate's note is [`UNKNOWN`].
    due: Vec<Cell<f64>>,
    /// Copy of `notes` in which candidates outside [`Tier::Free`] have [`SPARED`]. Most searches
    /// read only `open`.
    open: Vec<Cell<f64>>,
    unpinned: u64,
    /// Total bytes of the candidates that can be evicted, because they are not pinned.
    evictable_bytes: u64,
    /// Size in bytes below which a storage is in [`Tier::Small`].
    min_evict_bytes: u64,
    /// Value of `min_evict_bytes` when no forecast sets another value.
    usual_min_evict_bytes: u64,
}

impl Candidates {
    pub fn new(min_evict_bytes: u64) -> Self {
        Self { min_evict_bytes, usual_min_evict_bytes: min_evict_bytes, ..Self::default() }
    }

    pub fn keys(&self) -> &[StorageKey] {
        &self.keys
    }

    /// Clock times of each candidate's last use.
    pub fn since(&self) -> &[Cell<f64>] {
        &self.since
    }

    /// Time of each candidate's next use, on the evictor's own clock.
    pub fn due(&self) -> &[Cell<f64>] {
        &self.due
    }

    pub fn tier(&self, position: usize) -> Tier {
        self.tiers[position]
    }

    /// Serial number of a candidate. On a tie of scores, the candidate with the highest number is
    /// evicted.
    pub fn order(&self, position: usize) -> u64 {
        self.order[position]
    }

    pub fn notes(&self) -> &[Cell<f64>] {
        &self.notes
    }

    /// Notes (numbers kept for the evictor) of the candidates in [`Tier::Free`], and [`SPARED`] for
    /// all other candidates.
    pub fn open(&self) -> &[Cell<f64>] {
        &self.open
    }

    /// Writes to `open` the notes (numbers kept for the evictor) of the candidates up to `tier`,
    /// and [`SPARED`] for all other candidates.
    pub fn open_up_to(&self, tier: Tier, open: &mut Vec<Cell<f64>>) {
        let of = |(note, &tier_of): (&Cell<f64>, &Tier)| {
            Cell::new(if tier_of <= tier { note.get() } else { SPARED })
        };
        open.clear();
        open.extend(self.notes.iter().zip(&self.tiers).map(of));
    }

    /// Sets the note of a candidate, a number kept for the evictor.
    #[inline]
    pub fn note(&self, position: usize, note: f64) {
        self.notes[position].set(note);
        if self.tiers[position] == Tier::Free {
            self.open[position].set(note);
        }
    }

    /// Sets the notes of all candidates to [`UNKNOWN`].
    pub fn forget_notes(&self) {
        (0..self.keys.len()).for_each(|position| self.note(position, UNKNOWN));
    }

    pub fn evictable_bytes(&self) -> u64 {
        self.evictable_bytes
    }

    /// Adds a storage that became resident and has a producer.
    #[inline]
    pub fn add(&mut self, key: StorageKey, storage: &mut Storage, held: Held) {
        let tier = self.tier_of(storage, held.bytes);
        storage.candidate = Some(self.keys.len() as u32);
        self.keys.push(key);
        self.since.push(Cell::new(storage.last_used));
        self.tiers.push(tier);
        self.order.push(self.unpinned);
        self.notes.push(Cell::new(UNKNOWN));
        self.due.push(Cell::new(0.0));
        self.open.push(Cell::new(if tier == Tier::Free { UNKNOWN } else { SPARED }));
        self.unpinned += 1;
        if storage.pins == 0 {
            self.evictable_bytes += held.bytes;
        }
    }

    /// Removes a storage that is about to be evicted or to lose its producer.
    ///
    /// Returns the last candidate and its new position, if it moves to the free position. The caller
    /// must store the position in the moved candidate's storage.
    #[inline]
    pub fn remove(&mut self, storage: &mut Storage, held: Held) -> Option<(StorageKey, u32)> {
        let position = storage.candidate.take()?;
        if storage.pins == 0 {
            self.evictable_bytes -= held.bytes;
        }
        let at = position as usize;
        self.keys.swap_remove(at);
        self.since.swap_remove(at);
        self.tiers.swap_remove(at);
        self.order.swap_remove(at);
        self.notes.swap_remove(at);
        self.due.swap_remove(at);
        self.open.swap_remove(at);
        Some((*self.keys.get(at)?, position))
    }

    /// Records that an op reads or makes the candidate now.
    #[inline]
    pub fn touch(&mut self, position: u32, now: f64) {
        self.since[position as usize].set(now);
    }

    /// Records that the number of the candidate's pins rose from 0.
    #[inline]
    pub fn pinned(&mut self, position: u32, held: Held) {
        self.evictable_bytes -= held.bytes;
        self.set_tier(position, Tier::Pinned);
    }

    /// Records that the number of the candidate's pins fell to 0.
    #[inline]
    pub fn unpinned(&mut self, position: u32, storage: &Storage, held: Held) {
        self.evictable_bytes += held.bytes;
        self.order[position as usize] = self.unpinned;
        self.unpinned += 1;
        self.set_tier(position, self.tier_of(storage, held.bytes));
    }

    /// Records a change of the number of runs waiting for the candidate.
    #[inline]
    pub fn awaited(&mut self, position: u32, storage: &Storage, held: Held) {
        self.set_tier(position, self.tier_of(storage, held.bytes));
    }

    /// Sets the size below which storages are in [`Tier::Small`]; `None` means the size without a
    /// forecast. O(candidates) if the size changes.
    pub fn set_min_evict_bytes(&mut self, bytes: Option<u64>, graph: &Graph) {
        let bytes = bytes.unwrap_or(self.usual_min_evict_bytes);
        if std::mem::replace(&mut self.min_evict_bytes, bytes) == bytes {
            return;
        }
        for position in 0..self.keys.len() {
            let key = self.keys[position];
            let held = graph.held(key).expect("a candidate is resident");
            let tier = self.tier_of(graph.storage(key), held.bytes);
            self.set_tier(position as u32, tier);
        }
    }

    #[inline]
    fn set_tier(&mut self, position: u32, tier: Tier) {
        let at = position as usize;
        self.tiers[at] = tier;
        self.open[at].set(if tier == Tier::Free { self.notes[at].get() } else { SPARED });
    }

    #[inline]
    fn tier_of(&self, storage: &Storage, held: u64) -> Tier {
        if storage.pins > 0 {
            Tier::Pinned
        } else if held == 0 {
            Tier::Worthless
        } else if storage.awaited > 0 {
            Tier::Awaited
        } else if storage.bytes < self.min_evict_bytes {
            Tier::Small
        } else {
            Tier::Free
        }
    }
}
