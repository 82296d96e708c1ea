//! Eviction by forecasts of a known step.
//!
//! Later commands are known in a repeated training step, or in a recording. The next use of each
//! value is then known, too. The candidate with the lowest score is evicted first. A score is the
//! cost to recompute, divided by bytes and by the distance to the next need:
//!
//! ```text
//! (own cost + sum over evicted ancestors a of weight(a) * cost(a)) * factor / (bytes * distance(need)^t)
//! ```
//!
//! - `need` is the earliest next use of the candidate, or of any evicted storage whose
//!   recomputation needs the candidate. A candidate without a need has a score below 0, so it is
//!   evicted first. A candidate without a need and without a handle is evicted at once.
//! - `weight(a)` is [`Setting::live`] if a later command uses `a` itself, because `a` is then
//!   restored anyway. If no later command uses `a`, the weight is 1. The weight has an additional
//!   factor [`Setting::shared`] if no later command uses `a` itself, but a later command uses an
//!   evicted storage made from `a`. The factor [`Setting::shared`] then also applies to the
//!   ancestors reached through `a`.
//! - `distance` is measured on a [`Clock`], and `t` is [`Setting::time`]. `factor` is 1 unless a
//!   search found a better factor.
//!
//! A forecast only affects scores. Scores affect how much is recomputed, but never the bits of
//! results or the limit on bytes in use.
//!
//! # Source of the knowledge
//!
//! Knowledge of a step is in three values, each made from the one before:
//!
//! | value | what it says | made by |
//! |---|---|---|
//! | [`StepFuture`] | when each value is used; the time and the memory of the step if nothing is evicted | [`StepTeller`], from commands |
//! | [`Forecast`] | weights of these uses in scores, found for one budget; can be stored in a file | the setting that is best on average, or a search |
//! | [`Foresight`] | the step and its forecast, prepared for scoring | [`Forecast::foresight`] |
//!
//! [`Driver::foresee`] gives a foresight to an engine just before the first command of the step.
//! While the step runs, the driver counts commands. For each new storage, the driver stores in
//! [`Graph::future`] which value of the step the storage holds.
//!
//! Each value of a step has an *ordinal*: its number in the order in which the step's commands make
//! values. A forecast names values by ordinals, not by handles or tensor numbers. A forecast found
//! in one turn of a loop, or in another process, thus applies to later turns. Values carried over
//! from earlier steps have the first ordinals, in an order chosen by the code that describes the
//! step. [`Driver::bind`] binds tensors to values from earlier steps.
//!
//! The code that recognizes steps calls [`Driver::seek`] when commands are missing or inserted. At
//! the end of a step, this code calls [`Driver::foresee`] with the next step, or with `None` if no
//! step is known.
//!
//! A forecast names a policy that does not use the known step ([`Clock::UNKNOWING`]), if that
//! policy recomputes least. The named policy then chooses all evictions.
//!
//! Without a known step, scores use the queue of commands that are admitted and have not run
//! ([`Future::next_read`]). A storage that a queued command reads counts as used at the time of the
//! read, if the read is sooner than the storage's staleness suggests. A storage that no queued
//! command reads is ranked by [`Formula::ANCESTORS`](crate::evict::Formula::ANCESTORS).
//!
//! While a known step runs, some storages may hold none of the step's values. Such a storage counts
//! as used next when a queued command reads it, or else at the end of the step.
//!
//! [`StepTeller`]: crate::step::StepTeller
//! [`Driver::foresee`]: crate::program::Driver::foresee
//! [`Driver::bind`]: crate::program::Driver::bind
//! [`Driver::seek`]: crate::program::Driver::seek
//! [`Graph::future`]: crate::graph::Graph::future
//! [`Future::next_read`]: crate::graph::Future::next_read
//! [`StepFuture`]: crate::step::StepFuture

mod forecast;
mod guess;
mod known;
mod needs;
#[cfg(all(test, feature = "lab"))]
mod tests;

pub use forecast::{Clock, Forecast, ForecastError, Foresight, Learn, Setting};

use super::{Aging, ByStep, Floors, Formula, Lowered, Policy, View};
use crate::event::{Event, Hears};
use crate::graph::StorageKey;
use guess::Guess;
use known::Known;
use std::sync::Arc;

/// Policy that scores by forecasts of a known step; see the [module](self).
#[derive(Debug, Default)]
pub struct Learned {
    /// Scores in the current step; `None` if the step is not known.
    known: Option<Known>,
    /// Scores that do not use a known step. The guess scores candidates if no step is known, or if
    /// the forecast names a policy that does not use the step.
    guess: Guess,
}

impl Learned {
    /// Builds the policy without a known step.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl Policy for Learned {
    fn score(&mut self, candidate: StorageKey, view: View<'_>) -> f64 {
        match &mut self.known {
            Some(known) => known.score(candidate, view),
            None => self.guess.score(candidate, view),
        }
    }

    fn on(&mut self, event: &Event, view: View<'_>) {
        match &mut self.known {
            Some(known) => known.on(event, view),
            None => self.guess.on(event, view),
        }
    }

    fn by_step(&mut self) -> Option<&mut dyn ByStep> {
        Some(self)
    }

    fn hears(&self) -> Hears {
        Hears::EVICTIONS.and(Hears::USES)
    }

    fn floors(&mut self) -> Option<&mut dyn Floors> {
        Some(self)
    }
}

impl ByStep for Learned {
    fn foresee(&mut self, foresight: Option<Arc<Foresight>>) {
        let formula = match &foresight {
            Some(foresight) => foresight.formula(),
            None => Some(Formula::ANCESTORS),
        };
        // A guess stays if its formula has chosen the evictions until now. Any other guess is
        // replaced, because its records of evicted storages are out of date.
        if self.known.is_some() || formula != Some(self.guess.formula()) {
            self.guess = Guess::by(formula.unwrap_or(Formula::ANCESTORS));
        }
        self.known = foresight.filter(|_| formula.is_none()).map(Known::new);
        self.lowered().all();
    }

    fn keeps_unheld(&mut self) -> bool {
        // If memory suffices for the step, no storage needs to be kept for recomputing others.
        self.known.as_ref().is_some_and(Known::is_short)
    }

    fn keeps(&mut self, storage: StorageKey, view: View<'_>) -> bool {
        self.known.as_mut().is_some_and(|known| known.is_needed(storage, view))
    }
}

impl Floors for Learned {
    fn aging(&self) -> Aging {
        match self.known {
            Some(_) => Aging::Distance,
            None => self.guess.aging(),
        }
    }

    fn floor(&mut self, candidate: StorageKey, view: View<'_>) -> f64 {
        match &mut self.known {
            Some(known) => known.floor(candidate, view),
            None => self.guess.floor(candidate, view),
        }
    }

    fn score_up_to(&mut self, candidate: StorageKey, enough: f64, view: View<'_>) -> f64 {
        match &mut self.known {
            Some(known) => known.rank_up_to(candidate, enough, view),
            None => self.guess.score_up_to(candidate, enough, view),
        }
    }

    fn as_score(&self, aged: f64) -> f64 {
        match &self.known {
            Some(known) => known.as_score(aged),
            None => self.guess.as_score(aged),
        }
    }

    fn due(&self) -> f64 {
        self.known.as_ref().map_or(0.0, Known::due)
    }

    fn now(&self, view: View<'_>) -> f64 {
        self.known.as_ref().map_or(0.0, |known| known.now(view))
    }

    fn lowered(&mut self) -> &mut Lowered {
        match &mut self.known {
            Some(known) => known.lowered(),
            None => self.guess.lowered(),
        }
    }
}
