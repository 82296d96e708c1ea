//! What goes where no step is known: by age, and by what the queue shows.

use crate::event::Event;
use crate::evict::{Aging, Floors, Formula, Lowered, Policy, Ranking, View};
use crate::graph::StorageKey;

/// [`Formula::ANCESTORS`]: what was used as long ago will be used as long from now. But where a waiting command is known
/// to read it sooner, it will be used then.
#[derive(Debug)]
pub(super) struct Guess {
    ranking: Ranking,
}

impl Default for Guess {
    fn default() -> Self {
        Self { ranking: Formula::ANCESTORS.policy() }
    }
}

impl Guess {
    pub fn score(&mut self, candidate: StorageKey, view: View<'_>) -> f64 {
        let rank = self.score_up_to(candidate, f64::INFINITY, view) / view.staleness(candidate);
        self.as_score(rank)
    }

    pub fn on(&mut self, event: &Event, view: View<'_>) {
        if let Event::DidUse { storage } = *event {
            // What was to come of it is past.
            if view.graph.future().commands() > 0 {
                self.ranking.lowered().push(storage);
            }
            return;
        }
        self.ranking.on(event, view);
    }

    pub fn aging(&self) -> Aging {
        Floors::aging(&self.ranking)
    }

    pub fn floor(&mut self, candidate: StorageKey, view: View<'_>) -> f64 {
        self.ranking.floor(candidate, view)
    }

    pub fn score_up_to(&mut self, candidate: StorageKey, enough: f64, view: View<'_>) -> f64 {
        let sooner = sooner(candidate, view);
        self.ranking.score_up_to(candidate, enough / sooner, view) * sooner
    }

    pub fn as_score(&self, aged: f64) -> f64 {
        self.ranking.as_score(aged)
    }

    pub fn lowered(&mut self) -> &mut Lowered {
        self.ranking.lowered()
    }
}

/// How many times sooner than by its age it will be used, for all that is known; at least 1. So scores only rise
/// while nobody uses it, as floors want.
fn sooner(candidate: StorageKey, view: View<'_>) -> f64 {
    let future = view.graph.future();
    let Some(commands) = future.next_read(candidate) else { return 1.0 };
    let each = view.now / future.now().max(1) as f64;
    let distance = (commands as f64 * each).max(f64::MIN_POSITIVE);
    (view.staleness(candidate) / distance).max(1.0)
}
