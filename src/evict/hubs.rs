//! Storages that many others hang on are spared.

use super::formula::Ranking;
use super::{Evictor, Formula, Policy, PolicyKind, Victim, View, Want};
use crate::event::{Event, Hears};
use crate::graph::{Graph, StorageKey};
use ordered_float::OrderedFloat;

/// `dtr-eq`, but hubs are locked: the tenth of the candidates through which the most pairs of a source and a dependent
/// are connected goes only when nothing else is left.
///
/// After T-Control (ASPLOS 2026), which locks storages of high betweenness so that chains of recomputing stay short. Its
/// source is not public: this takes betweenness over shortest paths of two edges, and a fixed share. Scores of all
/// candidates are computed at each choice.
#[derive(Debug)]
pub struct LockHubs {
    ranking: Ranking,
    /// How much of a hub each candidate is, and its score.
    candidates: Vec<(usize, f64, StorageKey)>,
    score_evaluations: u64,
}

/// One of so many candidates is locked.
const LOCKED: usize = 10;

impl Default for LockHubs {
    fn default() -> Self {
        Self { ranking: Formula::DTR_EQ.policy(), candidates: Vec::new(), score_evaluations: 0 }
    }
}

/// Pairs of a storage that it is made from and one that is made from it.
fn pairs(key: StorageKey, graph: &Graph) -> usize {
    graph.sources(key).count() * graph.dependents(key).count()
}

impl Evictor for LockHubs {
    fn next(&mut self, want: Want, view: View<'_>) -> Option<Victim> {
        self.candidates.clear();
        for key in view.evictable(want) {
            let score = self.ranking.score(key, view);
            self.candidates.push((pairs(key, view.graph), score, key));
        }
        self.score_evaluations += self.candidates.len() as u64;
        // Those at the end are locked.
        self.candidates.sort_by_key(|&(pairs, ..)| pairs);
        let open = self.candidates.len() - self.candidates.len() / LOCKED;
        let lowest =
            self.candidates[..open].iter().min_by_key(|(_, score, _)| OrderedFloat(*score));
        lowest.map(|&(_, score, storage)| Victim { storage, score: Some(score) })
    }

    fn on(&mut self, event: &Event, view: View<'_>) {
        self.ranking.on(event, view);
    }

    fn hears(&self) -> Hears {
        self.ranking.hears()
    }

    fn kind(&self) -> Option<PolicyKind> {
        Some(PolicyKind::LockHubs)
    }

    fn score_evaluations(&self) -> u64 {
        self.score_evaluations
    }
}
