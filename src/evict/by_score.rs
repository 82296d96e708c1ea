//! Evictor that finds the candidate with the lowest score, for policies of the crate and of users.
//!
//! Scores are computed elsewhere: `formula.rs` computes the scores of `ancestors`, `dtr`, `lru` and
//! formulas. Each other policy has a file of its own name.

use super::candidates::{SPARED, Tier, UNKNOWN};
use super::cover::{Cover, Item, MOST};
use super::search::{Field, Question, Search};
use super::{Aging, ByStep, Evictor, Need, Policy, PolicyKind, Victim, View, Want};
use crate::event::{Event, Hears};
use crate::graph::StorageKey;
use ordered_float::OrderedFloat;
use remat_rng::SplitMix64;
use std::cell::Cell;
use std::cmp::Reverse;

/// Evicts the candidate to which a [`Policy`] gives the lowest score. On a tie, evicts the
/// candidate that was in use most recently.
#[derive(Debug)]
pub struct ByScore {
    policy: Box<dyn Policy>,
    /// Kind of the policy, if the policy is one of the crate's.
    kind: Option<PolicyKind>,
    /// Random numbers that choose a sample of candidates. If `None`, all candidates are scored.
    sampling: Option<SplitMix64>,
    score_evaluations: u64,
    /// Whether the notes of all candidates must be reset. A note is a number that the store keeps
    /// for the evictor. `ByScore` uses notes as floors: lower bounds of scores. The flag is true at
    /// first, because an earlier evictor may have left notes with another meaning.
    all_lowered: bool,
    search: Search,
    /// Buffer for notes, used when a search includes more than the first tier.
    open: Vec<Cell<f64>>,
    /// Candidates that the next search leaves out; empty between two choices.
    cover: Cover,
}

impl ByScore {
    /// Builds an evictor that compares the scores of all candidates.
    #[must_use]
    pub fn new(policy: impl Policy + 'static) -> Self {
        Self::boxed(Box::new(policy), None)
    }

    /// Builds an evictor that compares all scores, or the scores of a sample chosen by the seed.
    pub(crate) fn boxed(policy: Box<dyn Policy>, sampling: Option<u64>) -> Self {
        Self {
            policy,
            kind: None,
            sampling: sampling.map(SplitMix64::new),
            score_evaluations: 0,
            all_lowered: true,
            search: Search::default(),
            open: Vec::new(),
            cover: Cover::default(),
        }
    }

    /// Sets the kind of the policy, for a policy of the crate.
    pub(super) const fn of_kind(mut self, kind: PolicyKind) -> Self {
        self.kind = Some(kind);
        self
    }

    /// Compares the scores of about `2 * sqrt(n)` of `n` candidates, which `seed` chooses.
    #[must_use]
    pub fn sampled(mut self, seed: u64) -> Self {
        self.sampling = Some(SplitMix64::new(seed));
        self
    }

    /// Score and position of the candidate with the lowest score among all tiers up to `tier`,
    /// found with the lower bounds of scores.
    fn lowest(&mut self, tier: Tier, view: View<'_>) -> Option<(f64, usize)> {
        let Self { policy, score_evaluations, all_lowered, search, open, cover, .. } = self;
        let floors = policy.floors().expect("only asked where there are floors");
        let (aging, exact) = (floors.aging(), floors.floors_are_scores());
        let candidates = view.candidates;
        // `all_lowered` stays true while the search runs. If the policy panics, the next search
        // then resets all notes.
        if std::mem::replace(all_lowered, true) {
            candidates.forget_notes();
        }
        let (times, now) = match aging {
            Aging::Distance => (candidates.due(), floors.now(view)),
            Aging::Steady | Aging::Staleness => (candidates.since(), view.now),
        };
        let field = Field {
            known: candidates.notes(),
            // A search of later tiers needs a separate list, which is made only when the first tier
            // is empty.
            floors: if tier == Tier::Free {
                candidates.open()
            } else {
                candidates.open_up_to(tier, open);
                open
            },
            times,
            now,
        };
        cover.positions().for_each(|at| field.floors[at].set(SPARED));
        let order = |at| candidates.order(at);
        let found = search.lowest(field, aging, exact, order, |at, question| {
            let key = candidates.keys()[at];
            let answer = match question {
                Question::Floor => floors.floor(key, view),
                Question::Score { enough } => {
                    *score_evaluations += 1;
                    floors.score_up_to(key, enough, view)
                }
            };
            if aging == Aging::Distance {
                candidates.due()[at].set(floors.due());
            }
            answer
        });
        *all_lowered = false;
        found.map(|(score, at)| (floors.as_score(score), at))
    }

    /// Score and position of the candidate to evict, given the candidate with the lowest score. With
    /// predictions, candidates are left out that other victims make needless (`cover.rs`).
    fn needed(
        &mut self,
        lowest: (f64, usize),
        tier: Tier,
        want: Want,
        view: View<'_>,
    ) -> (f64, usize) {
        let bytes = |at: usize| {
            let held = view.graph.held(view.candidates.keys()[at]);
            held.map_or(0, |held| held.bytes)
        };
        if bytes(lowest.1) >= want.bytes {
            return lowest;
        }
        let mut next = Some(lowest);
        while let Some((score, at)) = next {
            self.cover.push(Item { score, bytes: bytes(at), at });
            let is_enough = self.cover.bytes() >= want.bytes || self.cover.len() == MOST;
            next = if is_enough { None } else { self.lowest(tier, view) };
        }
        let cover = std::mem::take(&mut self.cover);
        // Searches of later tiers have a list of their own, so only the first tier's list is
        // restored.
        cover
            .positions()
            .for_each(|at| view.candidates.note(at, view.candidates.notes()[at].get()));
        let Item { score, at, .. } = cover.lowest_needed(want.bytes);
        (score, at)
    }

    /// Score and position of the candidate with the lowest score among all tiers up to `tier`.
    /// Computes the scores of all candidates, or of a sample.
    fn lowest_of(&mut self, tier: Tier, sample: bool, view: View<'_>) -> Option<(f64, usize)> {
        let candidates = view.candidates;
        let count = candidates.keys().len();
        let mut sampling = self.sampling.as_mut().filter(|_| sample);
        let stride = if sampling.is_some() { count.isqrt() } else { 1 };
        let mut best: Option<(OrderedFloat<f64>, Reverse<u64>, usize)> = None;
        let mut position = 0;
        loop {
            // Advance by a random number of positions from 1 to sqrt(n), so that about 2 sqrt(n)
            // candidates are scored.
            if stride > 1
                && let Some(numbers) = &mut sampling
            {
                position += numbers.below(stride);
            }
            let Some(&key) = candidates.keys().get(position) else { break };
            let at = position;
            position += 1;
            if candidates.tier(at) > tier {
                continue;
            }
            let score = OrderedFloat(self.policy.score(key, view));
            let order = Reverse(candidates.order(at));
            self.score_evaluations += 1;
            if best.is_none_or(|(lowest, last, _)| (score, order) < (lowest, last)) {
                best = Some((score, order, at));
            }
        }
        best.map(|(score, _, at)| (score.0, at))
    }

    /// Resets the notes (lower bounds of scores) of candidates whose scores may have fallen.
    fn forget_lowered(&mut self, view: View<'_>) {
        let Some(floors) = self.policy.floors() else { return };
        let lowered = floors.lowered();
        for key in lowered.keys.drain(..) {
            lower(key, view);
        }
        self.all_lowered |= std::mem::take(&mut lowered.all);
    }
}

/// Resets the note (lower bound of the score) of `key`, if `key` is a candidate.
fn lower(key: StorageKey, view: View<'_>) {
    let position = view.graph.storages.get(key).and_then(|storage| storage.candidate);
    if let Some(position) = position {
        view.candidates.note(position as usize, UNKNOWN);
    }
}

impl Evictor for ByScore {
    fn next(&mut self, want: Want, view: View<'_>) -> Option<Victim> {
        self.forget_lowered(view);
        let aging = self.policy.floors().map(|floors| floors.aging());
        let has_floors = aging.is_some();
        // A wish, such as for a larger hole, is not met by a number of bytes.
        let is_met_by_bytes = aging == Some(Aging::Distance) && want.need == Need::Must;
        let found = want.need.tiers().iter().find_map(|&tier| {
            let sampled = match self.sampling {
                Some(_) => self.lowest_of(tier, true, view),
                None => None,
            };
            sampled.or_else(|| match has_floors {
                true => {
                    let lowest = self.lowest(tier, view)?;
                    Some(match is_met_by_bytes {
                        true => self.needed(lowest, tier, want, view),
                        false => lowest,
                    })
                }
                false => self.lowest_of(tier, false, view),
            })
        });
        found.map(|(score, at)| Victim { storage: view.candidates.keys()[at], score: Some(score) })
    }

    fn on(&mut self, event: &Event, view: View<'_>) {
        self.policy.on(event, view);
        if let Event::DidChangeCost { path } = *event {
            for &key in view.graph.path(path).outputs.iter().flatten() {
                lower(key, view);
            }
        }
    }

    fn by_step(&mut self) -> Option<&mut dyn ByStep> {
        self.policy.by_step()
    }

    fn hears(&self) -> Hears {
        // Also hear the rare events: they include `DidChangeCost`, after which the cost of a
        // candidate may have fallen.
        self.policy.hears().and(Hears::RARE)
    }

    fn kind(&self) -> Option<PolicyKind> {
        self.kind
    }

    fn score_evaluations(&self) -> u64 {
        self.score_evaluations
    }
}
