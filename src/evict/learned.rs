//! Evicting by what is known to come.
//!
//! A training step repeats, and a recording is known as a whole; so it is known when each value will be wanted. The
//! candidate goes with the lowest
//!
//! ```text
//! (own cost + sum over evicted ancestors a of weight(a) * cost(a)) * factor / (bytes * distance(need)^t)
//! ```
//!
//! - `need` is the earliest next use of the candidate or of any evicted storage that is made from it: it will be wanted
//!   to bring that back. Without any need it goes first, with a score below 0; what nobody holds, at once.
//! - `weight(a)` is [`Setting::live`] if `a` will be used itself, for then it comes back anyway. Otherwise it is 1; but
//!   [`Setting::shared`] if another evicted storage is made from it that will be used.
//! - `distance` is measured on a [`Clock`], `t` is [`Setting::time`], and `factor` is 1 unless a search found better.
//!
//! All of it only scores: it decides how much is recomputed, never what comes out or how much memory is held.
//!
//! # What is known, and from where
//!
//! Three values, one made of the other:
//!
//! | value | what it says | made by |
//! |---|---|---|
//! | [`StepFuture`] | which value is used when; the time and the memory that the step takes when nothing is evicted | [`StepTeller`], from commands |
//! | [`Forecast`] | how that counts in scores, found for one budget; can be kept in a file | the setting that is best on the average, or a search |
//! | [`Foresight`] | both, ready to be used | [`Forecast::foresight`] |
//!
//! [`Driver::foresee`] gives a foresight to an engine just before the first command of the step. From then on the driver
//! counts commands, and tells [`Graph::future`] for each storage that is made which value of the step it holds: values have
//! *ordinals*, in the order in which the commands of a step make them, so nothing depends on handles or numbers of
//! tensors, and a forecast that was found in one turn of a loop, or in another process, fits the next. What a step
//! carries over from before has the first ordinals, in an order that is up to whoever tells the step; they are bound by
//! [`Driver::bind`]. Whoever recognizes steps does the rest: [`Driver::seek`] where commands are left out or come in
//! between, [`Driver::foresee`] with the next step where one ends, and with `None` where nothing is known.
//!
//! A forecast may say that a policy decides which knows nothing of the step ([`Clock::UNKNOWING`]), where that recomputes least.
//! Then it evicts as that policy does.
//!
//! Without a known step, what the *queue* shows is used: commands that are admitted and have not run
//! ([`Future::next_read`]). What is read within that window counts as used as soon as that, if it looks staler; all
//! else goes by [`Formula::ANCESTORS`](crate::evict::Formula::ANCESTORS). The same holds, in a known step, for storages that the step does not know.
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

/// Scores by what is known to come; see the [module](self).
#[derive(Debug, Default)]
pub struct Learned {
    /// Of the step that is running, if that is known.
    known: Option<Known>,
    /// Decides where no step is known, or where the forecast of the known one says so.
    guess: Guess,
}

impl Learned {
    /// Nothing is known yet.
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
        // One that decided until now goes on. What any other kept of evicted storages is not what is.
        if self.known.is_some() || formula != Some(self.guess.formula()) {
            self.guess = Guess::by(formula.unwrap_or(Formula::ANCESTORS));
        }
        self.known = foresight.filter(|_| formula.is_none()).map(Known::new);
        self.lowered().all();
    }

    fn keeps_unheld(&mut self) -> bool {
        // Where memory suffices, what is not needed is not to take any.
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
