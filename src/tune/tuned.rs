//! What a tuning comes to.

use super::{ChosenBudget, Forecasts, Warning};
use crate::evict::{Learn, PolicyKind};
use crate::runtime::Builder;
use crate::step::KnownSteps;
use std::fmt;
use std::sync::Arc;

/// A run that was tuned: its budget, and how its steps are run in it.
pub struct Tuned<'a> {
    pub(super) make: Arc<dyn Fn() -> Builder + Send + Sync + 'a>,
    pub(super) chosen: ChosenBudget,
    pub(super) found: Option<Forecasts>,
    pub(super) known: Option<KnownSteps>,
    /// A file of forecasts that could not be written.
    pub(super) not_kept: Option<Warning>,
}

impl fmt::Debug for Tuned<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { chosen, found, .. } = self;
        f.debug_struct("Tuned")
            .field("chosen", chosen)
            .field("found", found)
            .finish_non_exhaustive()
    }
}

impl Tuned<'_> {
    /// The budget that was settled on.
    #[must_use]
    pub const fn chosen(&self) -> &ChosenBudget {
        &self.chosen
    }

    /// Bytes that the run holds at most: of the budget, as much as it recomputes least in.
    #[must_use]
    pub fn budget(&self) -> u64 {
        self.found.as_ref().map_or(self.chosen.budget(), |found| found.budget)
    }

    /// How steps are best run, if that was looked for, and found.
    #[must_use]
    pub const fn forecasts(&self) -> Option<&Forecasts> {
        self.found.as_ref()
    }

    /// Warnings: those of the [budget](ChosenBudget::warnings), and one if forecasts could not be kept.
    #[must_use]
    pub fn warnings(&self) -> Vec<Warning> {
        self.chosen.warnings().into_iter().chain(self.not_kept.clone()).collect()
    }

    /// A description of the runtime to train on, which knows the first step, goes by the best forecasts, and holds the best
    /// part of the budget.
    #[must_use]
    pub fn builder(&self) -> Builder {
        let builder = (self.make)();
        let policy = builder.policy.kind();
        let mut builder = builder.budget(self.budget());
        if let Some(threshold) = self.chosen.threshold() {
            builder = builder.eviction_threshold(threshold);
        }
        // Where nothing is evicted, to recognize steps would cost a little.
        if let Some(known) = self.known.as_ref().filter(|_| self.chosen.evicts()) {
            builder = builder.known_steps(known.clone());
        }
        match (&self.found, self.chosen.rehearsed().policy) {
            (Some(found), _) => {
                if policy.is_some_and(PolicyKind::searches) {
                    // It was searched for. What is found beside the steps is for kinds that the rehearsal does not have.
                    builder = builder.policy(PolicyKind::Learned(Learn::Portfolio));
                }
                builder.forecasts(found.forecasts.iter().cloned())
            }
            // What is known does not pass.
            (None, Some(policy)) => builder.policy(policy),
            (None, None) => builder,
        }
    }
}
