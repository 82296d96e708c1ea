//! Eviction of windows: sets of storages at neighbouring addresses (Coop).

use super::formula::Ranking;
use super::{
    Around, Evictor, Exponents, Formula, Need, Policy, PolicyKind, Tier, Victim, View, Want,
};
use crate::event::{Event, Hears};
use crate::graph::{Owner, StorageKey};
use remat_memory::Content;
use std::collections::VecDeque;

/// Evicts the cheapest set of neighbouring storages that together free enough contiguous bytes
/// (Coop: Zhang, Ma, Liu, Yuan, NeurIPS 2023, algorithm 1). The algorithm slides a window over the
/// addresses.
///
/// The score of a storage is `(own cost + cost of its evicted neighbourhood) / staleness`. The size
/// of a storage is not part of its score, because each window has the requested size. Free bytes in
/// a window cost nothing. A window never spans a block that cannot be evicted.
///
/// If no window is wide enough, the storage with the lowest score per byte is evicted. On devices
/// that only count bytes, storages have no addresses, so the storage with the lowest score per byte
/// is always evicted. `Coop` leaves out the paper's arena with cheap storages at one end. The
/// paper's updates in place are also left out, because the engine does them.
#[derive(Debug)]
pub struct Coop {
    ranking: Ranking,
    /// Storages of the chosen window that are still to be evicted.
    window: VecDeque<StorageKey>,
    /// Required width of the window in bytes.
    bytes: u64,
    chunks: Vec<Chunk>,
    score_evaluations: u64,
}

#[derive(Clone, Copy, Debug)]
struct Chunk {
    bytes: u64,
    score: f64,
    /// Storage in the block; `None` if the block is free.
    storage: Option<StorageKey>,
}

impl Coop {
    /// Score of a storage in a window.
    pub const SCORE: Formula = Formula {
        own_cost: true,
        around: Around::Classes,
        free_neighbours: false,
        exponents: Exponents { cost: 1.0, bytes: 0.0, staleness: 1.0 },
    };

    /// Finds the window with the lowest sum of scores among all windows of at least `self.bytes`
    /// bytes.
    fn slide(&mut self, want: Want, view: View<'_>) {
        self.window.clear();
        let Some(arena) = view.space.arena() else { return };
        let Some(tier) = view.evictable(want).next().and_then(|key| view.tier(key)) else { return };
        let (mut bytes, mut sum) = (0, 0.0);
        let mut best: Option<(f64, Vec<StorageKey>)> = None;
        self.chunks.clear();
        let mut start = 0;
        for chunk in arena.chunks() {
            let storage = match chunk.content {
                Content::Free => None,
                Content::Used { owner, .. } => Owner::storage(owner),
            };
            let goes = match (chunk.content, storage) {
                (Content::Free, _) => true,
                (_, Some(key)) => {
                    view.graph.contains(key) && view.tier(key).is_some_and(|of| of <= tier)
                }
                _ => false,
            };
            if !goes {
                // A window cannot span this block, so the next window begins after it.
                self.chunks.clear();
                (start, bytes, sum) = (0, 0, 0.0);
                continue;
            }
            let score = storage.map_or(0.0, |key| {
                self.score_evaluations += 1;
                self.ranking.score(key, view)
            });
            self.chunks.push(Chunk { bytes: chunk.size, score, storage });
            bytes += chunk.size;
            sum += score;
            while bytes - self.chunks[start].bytes >= self.bytes {
                bytes -= self.chunks[start].bytes;
                sum -= self.chunks[start].score;
                start += 1;
            }
            if bytes >= self.bytes && best.as_ref().is_none_or(|(lowest, _)| sum < *lowest) {
                let window = self.chunks[start..].iter().filter_map(|chunk| chunk.storage);
                best = Some((sum, window.collect()));
            }
        }
        self.window = best.map(|(_, window)| window.into()).unwrap_or_default();
    }

    /// Takes the next storage of the window that can still be evicted.
    fn next_of_window(&mut self, view: View<'_>) -> Option<Victim> {
        while let Some(storage) = self.window.pop_front() {
            if view.graph.contains(storage)
                && view.tier(storage).is_some_and(|of| of <= Tier::Awaited)
            {
                return Some(Victim::new(storage));
            }
        }
        None
    }
}

impl Default for Coop {
    fn default() -> Self {
        Self {
            ranking: Self::SCORE.policy(),
            window: VecDeque::new(),
            bytes: 0,
            chunks: Vec::new(),
            score_evaluations: 0,
        }
    }
}

impl Evictor for Coop {
    fn next(&mut self, want: Want, view: View<'_>) -> Option<Victim> {
        // For `Must`, `want.bytes` is only the number of missing bytes. The window must be as wide
        // as the missing bytes and all free bytes together.
        let bytes = match want.need {
            Need::Must => want.bytes + view.space.free_bytes(),
            Need::Wish => want.bytes,
        };
        if bytes.max(1) == self.bytes
            && let Some(victim) = self.next_of_window(view)
        {
            return Some(victim);
        }
        self.bytes = bytes.max(1);
        self.slide(want, view);
        if let Some(victim) = self.next_of_window(view) {
            return Some(victim);
        }
        let mut lowest: Option<(f64, StorageKey)> = None;
        for key in view.evictable(want) {
            self.score_evaluations += 1;
            let score = self.ranking.score(key, view) / view.mebibytes(key);
            if lowest.is_none_or(|(least, _)| score < least) {
                lowest = Some((score, key));
            }
        }
        lowest.map(|(score, storage)| Victim { storage, score: Some(score) })
    }

    fn on(&mut self, event: &Event, view: View<'_>) {
        // A run begins, so the allocation for which the window was chosen is over.
        if matches!(event, Event::DidUse { .. }) {
            self.window.clear();
        }
        self.ranking.on(event, view);
    }

    fn hears(&self) -> Hears {
        self.ranking.hears().and(Hears::USES)
    }

    fn kind(&self) -> Option<PolicyKind> {
        Some(PolicyKind::Coop)
    }

    fn score_evaluations(&self) -> u64 {
        self.score_evaluations
    }
}
