//! Scores that do not use a known step. A guess scores candidates if no step is known, or if a
//! forecast names a policy that does not use the step.

use crate::event::{Cause, Event};
use crate::evict::{Aging, Floors, Formula, Lowered, Policy, Ranking, View};
use crate::graph::StorageKey;

/// Scores by a formula.
///
/// With [`Formula::ANCESTORS`], the time since the last use stands for the distance to the next
/// use, unless a queued command reads the storage sooner. With any other formula, the formula's
/// policy chooses all evictions.
#[derive(Debug)]
pub(super) struct Guess {
    formula: Formula,
    ranking: Ranking,
    /// Whether `ranking` has received an event for each evicted storage. False when the guess
    /// begins to choose evictions.
    is_told: bool,
}

impl Default for Guess {
    fn default() -> Self {
        Self::by(Formula::ANCESTORS)
    }
}

impl Guess {
    /// Builds a guess that begins to choose evictions when storages may already be evicted.
    pub fn by(formula: Formula) -> Self {
        Self { formula, ranking: formula.policy(), is_told: false }
    }

    pub const fn formula(&self) -> Formula {
        self.formula
    }

    /// Sends `ranking` an event for each evicted storage, as an engine does for a new policy.
    fn tell(&mut self, view: View<'_>) {
        if std::mem::replace(&mut self.is_told, true) {
            return;
        }
        let evicted = view.graph.storages().filter(|(key, _)| view.graph.is_evicted(*key));
        for (storage, of) in evicted {
            let event = Event::DidEvict { storage, bytes: of.bytes, cause: Cause::Before };
            self.ranking.on(&event, view);
        }
    }

    fn looks_ahead(&self) -> bool {
        self.formula == Formula::ANCESTORS
    }

    pub fn score(&mut self, candidate: StorageKey, view: View<'_>) -> f64 {
        let rank = self.score_up_to(candidate, f64::INFINITY, view) / view.staleness(candidate);
        self.as_score(rank)
    }

    pub fn on(&mut self, event: &Event, view: View<'_>) {
        if let Event::DidUse { storage } = *event {
            // The candidate was just used, so the queued read that raised its score may be over,
            // and its score may have fallen.
            if self.looks_ahead() && view.graph.future().commands() > 0 {
                self.ranking.lowered().push(storage);
            }
            return;
        }
        let was_told = self.is_told;
        self.tell(view);
        // If the first event is an eviction, `tell` has just sent that event, so do not send it
        // twice.
        if was_told || !matches!(event, Event::DidEvict { .. }) {
            self.ranking.on(event, view);
        }
    }

    pub fn aging(&self) -> Aging {
        Floors::aging(&self.ranking)
    }

    pub fn floor(&mut self, candidate: StorageKey, view: View<'_>) -> f64 {
        self.tell(view);
        self.ranking.floor(candidate, view)
    }

    pub fn score_up_to(&mut self, candidate: StorageKey, enough: f64, view: View<'_>) -> f64 {
        self.tell(view);
        let sooner = if self.looks_ahead() { sooner(candidate, view) } else { 1.0 };
        self.ranking.score_up_to(candidate, enough / sooner, view) * sooner
    }

    pub fn as_score(&self, aged: f64) -> f64 {
        self.ranking.as_score(aged)
    }

    pub fn lowered(&mut self) -> &mut Lowered {
        self.ranking.lowered()
    }
}

/// Staleness divided by the distance to the next queued read; at least 1. Until a command uses the
/// storage, the factor only rises, as lower bounds of scores require.
fn sooner(candidate: StorageKey, view: View<'_>) -> f64 {
    let future = view.graph.future();
    let Some(commands) = future.next_read(candidate) else { return 1.0 };
    let each = view.now / future.now().max(1) as f64;
    let distance = (commands as f64 * each).max(f64::MIN_POSITIVE);
    (view.staleness(candidate) / distance).max(1.0)
}
