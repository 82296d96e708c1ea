//! The storages that an evictor may choose among: facts that the store keeps, side by side.

use crate::graph::{Graph, Storage, StorageKey};
use crate::memory::Held;
use std::cell::Cell;

/// How long a candidate is spared: an evictor chooses of a tier only when nothing is left in those before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// Goes first.
    Free,
    /// Smaller than `min_evict_bytes`.
    Small,
    /// About to be read by the regeneration at hand.
    Awaited,
    /// Evicting it would give nothing back.
    Worthless,
    /// Never goes.
    Pinned,
}

/// The note on a candidate that no evictor made one on.
pub(super) const UNKNOWN: f64 = f64::NEG_INFINITY;

/// In place of the note on a candidate that is passed over: no number compares to it.
pub(super) const SPARED: f64 = f64::NAN;

/// Parallel lists; a candidate's position changes when another one goes.
///
/// Exactly the storages that are resident and have a producer, pinned or not.
#[derive(Debug, Default)]
pub(crate) struct Candidates {
    keys: Vec<StorageKey>,
    /// Clock when an op last read or made each.
    since: Vec<Cell<f64>>,
    tiers: Vec<Tier>,
    /// Counts up: when each became one that may be chosen, to tell equals apart.
    order: Vec<u64>,
    /// A number of the evictor's own for each. It moves with the candidate, and begins as [`UNKNOWN`].
    notes: Vec<Cell<f64>>,
    /// Another one, which means nothing where there is no note.
    due: Vec<Cell<f64>>,
    /// The notes, but [`SPARED`] outside of [`Tier::Free`]: all that most searches look at.
    open: Vec<Cell<f64>>,
    unpinned: u64,
    /// Bytes that those take up that are not pinned.
    evictable_bytes: u64,
    /// Smaller storages are [`Tier::Small`].
    min_evict_bytes: u64,
    /// Smaller storages are [`Tier::Small`] where no forecast says otherwise.
    usual_min_evict_bytes: u64,
}

impl Candidates {
    pub fn new(min_evict_bytes: u64) -> Self {
        Self { min_evict_bytes, usual_min_evict_bytes: min_evict_bytes, ..Self::default() }
    }

    pub fn keys(&self) -> &[StorageKey] {
        &self.keys
    }

    /// Clock when each was last used.
    pub fn since(&self) -> &[Cell<f64>] {
        &self.since
    }

    /// When each will be used, by the evictor's own clock.
    pub fn due(&self) -> &[Cell<f64>] {
        &self.due
    }

    pub fn tier(&self, position: usize) -> Tier {
        self.tiers[position]
    }

    /// Tells equals apart: the one with the highest goes.
    pub fn order(&self, position: usize) -> u64 {
        self.order[position]
    }

    pub fn notes(&self) -> &[Cell<f64>] {
        &self.notes
    }

    /// The notes, [`SPARED`] for those that go after [`Tier::Free`].
    pub fn open(&self) -> &[Cell<f64>] {
        &self.open
    }

    /// The same for those that go after `tier`, written to `open`.
    pub fn open_up_to(&self, tier: Tier, open: &mut Vec<Cell<f64>>) {
        let of = |(note, &tier_of): (&Cell<f64>, &Tier)| {
            Cell::new(if tier_of <= tier { note.get() } else { SPARED })
        };
        open.clear();
        open.extend(self.notes.iter().zip(&self.tiers).map(of));
    }

    /// Makes a note.
    #[inline]
    pub fn note(&self, position: usize, note: f64) {
        self.notes[position].set(note);
        if self.tiers[position] == Tier::Free {
            self.open[position].set(note);
        }
    }

    /// Forgets all notes.
    pub fn forget_notes(&self) {
        (0..self.keys.len()).for_each(|position| self.note(position, UNKNOWN));
    }

    pub fn evictable_bytes(&self) -> u64 {
        self.evictable_bytes
    }

    /// `storage` became resident, and has a producer.
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

    /// `storage` is about to go, or to lose its producer. Returns the candidate that takes its position, if another
    /// one does, which is to be told.
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

    /// An op reads or makes the candidate now.
    #[inline]
    pub fn touch(&mut self, position: u32, now: f64) {
        self.since[position as usize].set(now);
    }

    /// It was pinned for the first time.
    #[inline]
    pub fn pinned(&mut self, position: u32, held: Held) {
        self.evictable_bytes -= held.bytes;
        self.set_tier(position, Tier::Pinned);
    }

    /// Its last pin was taken back.
    #[inline]
    pub fn unpinned(&mut self, position: u32, storage: &Storage, held: Held) {
        self.evictable_bytes += held.bytes;
        self.order[position as usize] = self.unpinned;
        self.unpinned += 1;
        self.set_tier(position, self.tier_of(storage, held.bytes));
    }

    /// It is awaited by more or fewer runs.
    #[inline]
    pub fn awaited(&mut self, position: u32, storage: &Storage, held: Held) {
        self.set_tier(position, self.tier_of(storage, held.bytes));
    }

    /// Sets below how many bytes storages are [`Tier::Small`]; `None`: as usual. O(candidates) where that changes.
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
