//! The result of a tuning.

use super::{ChosenBudget, Forecasts, Warning};
use crate::runtime::Builder;
use crate::step::KnownSteps;
use std::fmt;
use std::sync::Arc;

/// A tuned run: its budget, and forecasts of its steps.
///
/// ```
/// use remat::prelude::*;
/// use remat::tune::Tuner;
///
/// # let start = |runtime: &Runtime| -> Result<_, Error> {
/// #     let (runtime, mut x) = (runtime.clone(), runtime.ones(&[1 << 16])?);
/// #     Ok(move || {
/// #         x = x.sin()?;
/// #         runtime.step()
/// #     })
/// # };
/// // `start` starts a program on a runtime: see `Trainable`.
/// let tuned = Tuner::new(Runtime::builder).budget("4MiB").steps(4).tune(&start)?;
/// let runtime = tuned.builder().cpu()?;
/// assert_eq!(runtime.budget(), tuned.budget());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Tuned<'a> {
    pub(super) make: Arc<dyn Fn() -> Builder + Send + Sync + 'a>,
    pub(super) chosen: ChosenBudget,
    pub(super) found: Option<Forecasts>,
    pub(super) known: Option<KnownSteps>,
    /// A warning about a file of forecasts that could not be written.
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
    /// The budget that was chosen.
    ///
    /// ```
    /// use remat::prelude::*;
    /// use remat::tune::Tuner;
    ///
    /// # let start = |runtime: &Runtime| -> Result<_, Error> {
    /// #     let (runtime, mut x) = (runtime.clone(), runtime.ones(&[1 << 16])?);
    /// #     Ok(move || {
    /// #         x = x.sin()?;
    /// #         runtime.step()
    /// #     })
    /// # };
    /// // `start` starts a program on a runtime: see `Trainable`.
    /// let tuned = Tuner::new(Runtime::builder).budget("200%").steps(4).tune(&start)?;
    /// assert_eq!(tuned.chosen().budget(), 2 * tuned.chosen().full_budget());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn chosen(&self) -> &ChosenBudget {
        &self.chosen
    }

    /// Limit on the run's bytes: the part of the chosen budget with the least recomputation.
    #[must_use]
    pub fn budget(&self) -> u64 {
        self.found.as_ref().map_or(self.chosen.budget(), |found| found.budget)
    }

    /// Forecasts of the steps. `None` without a search, or if the search found no forecasts.
    ///
    /// ```
    /// use remat::prelude::*;
    /// use remat::tune::Tuner;
    ///
    /// # let start = |runtime: &Runtime| -> Result<_, Error> {
    /// #     let (runtime, mut x) = (runtime.clone(), runtime.ones(&[1 << 16])?);
    /// #     Ok(move || {
    /// #         x = x.sin()?;
    /// #         runtime.step()
    /// #     })
    /// # };
    /// // `start` starts a program on a runtime: see `Trainable`.
    /// let tuned = Tuner::new(Runtime::builder).budget("4MiB").steps(4).tune(&start)?;
    /// // Nothing is evicted, so the tuner does not search for forecasts.
    /// assert!(tuned.forecasts().is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn forecasts(&self) -> Option<&Forecasts> {
        self.found.as_ref()
    }

    /// Warnings of the [budget](ChosenBudget::warnings), and a warning if forecasts could not be
    /// kept.
    ///
    /// ```
    /// use remat::prelude::*;
    /// use remat::tune::Tuner;
    ///
    /// # let start = |runtime: &Runtime| -> Result<_, Error> {
    /// #     let (runtime, mut x) = (runtime.clone(), runtime.ones(&[1 << 16])?);
    /// #     Ok(move || {
    /// #         x = x.sin()?;
    /// #         runtime.step()
    /// #     })
    /// # };
    /// // `start` starts a program on a runtime: see `Trainable`.
    /// let tuned = Tuner::new(Runtime::builder).budget("4MiB").steps(4).tune(&start)?;
    /// for warning in tuned.warnings() {
    ///     println!("{warning}");
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn warnings(&self) -> Vec<Warning> {
        self.chosen.warnings().into_iter().chain(self.not_kept.clone()).collect()
    }

    /// Options of the runtime to train on. The runtime can predict even the first step and uses the
    /// best forecasts. The runtime's budget is the part of the chosen budget with the least
    /// recomputation.
    ///
    /// ```
    /// use remat::prelude::*;
    /// use remat::tune::Tuner;
    ///
    /// # let start = |runtime: &Runtime| -> Result<_, Error> {
    /// #     let (runtime, mut x) = (runtime.clone(), runtime.ones(&[1 << 16])?);
    /// #     Ok(move || {
    /// #         x = x.sin()?;
    /// #         runtime.step()
    /// #     })
    /// # };
    /// // `start` starts a program on a runtime: see `Trainable`.
    /// let tuned = Tuner::new(Runtime::builder).budget("4MiB").steps(4).tune(&start)?;
    /// // Same options as `Runtime::builder`, plus the chosen budget.
    /// let runtime = tuned.builder().cpu()?;
    /// assert_eq!(runtime.budget(), tuned.budget());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn builder(&self) -> Builder {
        let mut builder = (self.make)().budget(self.budget());
        if let Some(threshold) = self.chosen.threshold() {
            builder = builder.eviction_threshold(threshold);
        }
        // If nothing is evicted, recognizing steps would only cost time.
        if let Some(known) = self.known.as_ref().filter(|_| self.chosen.evicts()) {
            builder = builder.known_steps(known.clone());
        }
        match (&self.found, self.chosen.rehearsed().policy) {
            (Some(found), _) => {
                // At run time, the portfolio handles kinds of steps that the rehearsal does not
                // have.
                builder.searched().forecasts(found.forecasts.iter().cloned())
            }
            // The policy of the run does not pass, so another policy replaces it.
            (None, Some(policy)) => builder.policy(policy),
            (None, None) => builder,
        }
    }
}
