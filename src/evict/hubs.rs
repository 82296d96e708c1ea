//! Policy that does not evict hubs. A hub is a storage through which many other storages are
//! connected.

use super::formula::Ranking;
use super::{Evictor, Formula, Policy, PolicyKind, Victim, View, Want};
use crate::event::{Event, Hears};
use crate::graph::{Graph, StorageKey};
use ordered_float::OrderedFloat;

/// Evicts as `dtr-eq` does, but locks hubs. Hubs are storages that many other storages are
/// connected through; a locked hub is not evicted.
///
/// The hub measure of a candidate is the number of its sources times the number of its dependents.
/// The policy locks the tenth of the candidates with the highest measure. The rule follows
/// T-Control (ASPLOS 2026), which locks storages of high betweenness so that chains of
/// recomputation stay short. The source code of T-Control is not public. This policy measures
/// betweenness over shortest paths of two edges, and locks a fixed share of the candidates. Each
/// choice computes the scores of all candidates.
#[derive(Debug)]
pub struct LockHubs {
    ranking: Ranking,
    /// Hub measure, score and key of each candidate.
    candidates: Vec<(usize, f64, StorageKey)>,
    score_evaluations: u64,
}

/// One in `LOCKED` candidates is locked.
const LOCKED: usize = 10;

impl Default for LockHubs {
    fn default() -> Self {
        Self { ranking: Formula::DTR_EQ.policy(), candidates: Vec::new(), score_evaluations: 0 }
    }
}

/// Hub measure of `key`: the number of its sources times the number of its dependents.
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
        // The tenth with the highest hub measure, at the end after sorting, is locked.
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
