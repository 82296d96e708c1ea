//! Choice of a budget that passes, before the run. The budget is the requested budget or the free
//! memory. The default is 40 % ([`USUAL`]) of the smallest budget that evicts nothing.

use super::rehearsal::Verdict;
use super::{
    Budget, ChosenBudget, Progress, Refusal, Rehearsal, Rehearsed, Share, Trainable, TuneError,
};
use crate::cost::CostModelKind;
use crate::error::Error;
use crate::lab::smallest;
use remat_memory::{ALIGNMENT, ByteSize};

/// The default budget in percent of the full budget. If the default budget does not pass, a larger
/// budget is chosen.
pub const USUAL: u32 = 40;

/// Limit on the recomputation in a default budget, as a multiple of the work itself. Recomputation
/// that the eviction threshold alone causes is allowed in addition.
pub const CHOSEN_RATIO: f64 = 1.0;

/// Limit on the recomputation in a budget that an error message names, as a multiple of the work
/// itself. A rehearsal that fails takes as long as the limit allows.
pub const NAMED_RATIO: f64 = 4.0;

/// Limit on the recomputation that a threshold alone may cause, as a multiple of the work itself.
const THRESHOLD_RATIO: f64 = 10.0;

/// Margin for measured costs, as a share of the budget. With measured costs, evictions differ from
/// run to run, so a budget passes only if the budget less the margin passes, too.
const MARGIN: f64 = 0.05;

/// The memory that a run needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needs {
    /// Full budget (100 %), in bytes: the smallest budget found under which nothing is evicted.
    pub full_budget: u64,
    /// Most bytes in use at once without a limit.
    pub peak: u64,
    /// Bytes held between steps, and never evicted.
    pub state: u64,
    pub threshold: Option<u64>,
    /// Whether costs are measured. With measured costs, evictions differ from run to run.
    pub is_measured: bool,
}

/// The reason why a budget was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// The user requested the budget.
    Asked,
    /// The budget is the free memory.
    Auto,
    /// No budget was given, and the default budget passes.
    Usual,
    /// No budget was given, and the default budget does not pass.
    Passes,
    /// Only a threshold was given, and the threshold is not below the default budget.
    Threshold,
}

impl<P: Trainable> Rehearsal<'_, '_, P> {
    /// Chooses a budget that passes.
    ///
    /// # Errors
    /// [`TuneError::Refused`] if the requested budget does not pass, [`TuneError::AboveFree`] if
    /// the default budget is larger than the free memory.
    pub fn choose(&self) -> Result<ChosenBudget, TuneError> {
        let needs = Needs::of(self)?;
        let chooser = Chooser { rehearsal: self, needs };
        let (names, free) = (self.tuner.names, self.tuner.stand_in.free_bytes);
        let (reason, budget, rehearsed) = match self.tuner.budget {
            Some(Budget::Share(share)) => {
                let budget = share.of(needs.full_budget);
                let asked = match share {
                    Share::Percent(_) => format!("{share} ({})", ByteSize(budget)),
                    Share::Bytes(_) => share.to_string(),
                };
                (Reason::Asked, budget, chooser.asked(budget, &asked)?)
            }
            Some(Budget::Auto) => {
                let budget = free.ok_or(TuneError::FreeUnknown(names.budget))?;
                let asked = format!("{} (auto: the free memory)", ByteSize(budget));
                (Reason::Auto, budget, chooser.asked(budget, &asked)?)
            }
            None => chooser.choose()?,
        };
        let threshold_thrashes = rehearsed.thrashes
            && needs.threshold.is_some()
            && chooser.rehearse(budget, None, None)?.is_ok_and(|without| !without.thrashes);
        let chosen =
            ChosenBudget { needs, budget, reason, rehearsed, threshold_thrashes, free, names };
        chosen.too_large().map_or(Ok(chosen), Err)
    }

    /// A rehearsal without a limit, and the full budget in bytes.
    fn without_evictions(&self) -> Result<(Rehearsed, u64), TuneError> {
        let progress = |at| (self.tuner.progress)(at);
        progress(Progress::Unlimited);
        let (unlimited, program) = self.recorded()?;
        // `remat simulate` finds the same full budget for a recording of these steps. Later steps
        // may leave other holes, and then need a little more.
        let mut budget = self.full_budget_of(&program)?;
        let mut more = unlimited.peak_bytes / 400;
        progress(Progress::WithoutEvictions { budget });
        while !self.fits(budget)? {
            // Grow by a quarter of a percent at first, then ever faster, so that the loop ends.
            more = more.next_multiple_of(ALIGNMENT).max(ALIGNMENT);
            budget = budget.saturating_add(more);
            more += more / 8;
            progress(Progress::WithoutEvictions { budget });
        }
        Ok((unlimited, budget))
    }

    /// Makes the error for a run that passed its rehearsal, but ran out of memory in the budget.
    /// The error names a larger budget that passes.
    #[must_use]
    pub fn too_small(&self, chosen: &ChosenBudget, error: &Error) -> TuneError {
        let chooser = Chooser { rehearsal: self, needs: chosen.needs };
        let budget = chosen.budget;
        let refusal = chooser.refusal(budget, &ByteSize(budget).to_string(), Some(error));
        refusal.map_or_else(|error| error, TuneError::from)
    }
}

impl Needs {
    /// Measures the memory that the run needs: first in a rehearsal without a limit, then in
    /// rehearsals with budgets.
    fn of<P: Trainable>(rehearsal: &Rehearsal<'_, '_, P>) -> Result<Self, TuneError> {
        let tuner = rehearsal.tuner;
        let (rehearsed, full_budget) = rehearsal.without_evictions()?;
        let Rehearsed { peak_bytes: peak, state_bytes: state, .. } = rehearsed;
        let threshold = tuner.threshold.map(|share| share.of(full_budget));
        let is_measured = tuner.cost_model() == Some(CostModelKind::Measured);
        Ok(Self { full_budget, peak, state, threshold, is_measured })
    }

    /// A note on the margin of a budget that the tuner chose or named.
    pub fn margin(&self) -> String {
        match self.is_measured {
            true => format!(
                "\n  costs are measured and vary, so this budget has a margin of {:.0} %",
                100.0 * MARGIN
            ),
            false => String::new(),
        }
    }

    pub fn bytes(&self, percent: u32) -> u64 {
        Share::Percent(percent.into()).of(self.full_budget)
    }

    pub fn percent(&self, bytes: u64) -> f64 {
        100.0 * bytes as f64 / self.full_budget as f64
    }
}

/// Search for budgets that pass.
struct Chooser<'a, P> {
    rehearsal: &'a Rehearsal<'a, 'a, P>,
    needs: Needs,
}

impl<P: Trainable> Chooser<'_, P> {
    /// Rehearses a requested budget. If the rehearsal fails, the error names a budget that passes.
    fn asked(&self, budget: u64, asked: &str) -> Result<Rehearsed, TuneError> {
        if budget < self.needs.state {
            return Err(self.refusal(budget, asked, None)?.into());
        }
        let limit = self.rehearsal.recompute_limit;
        match self.rehearse(budget, self.needs.threshold, limit)? {
            Ok(rehearsed) => Ok(rehearsed),
            Err(error) => Err(self.refusal(budget, asked, Some(&error))?.into()),
        }
    }

    /// Makes the refusal of a budget. `error` is the error of the rehearsal. `error` is `None` if
    /// the state alone exceeds the budget, so that no rehearsal ran.
    fn refusal(
        &self,
        budget: u64,
        asked: &str,
        error: Option<&Error>,
    ) -> Result<Refusal, TuneError> {
        let above = self.needs.percent(budget.saturating_add(1)).ceil() as u32;
        let passing = self.passing(above, NAMED_RATIO)?;
        let tuner = self.rehearsal.tuner;
        Ok(Refusal {
            budget,
            passing: passing.map(|(percent, _)| (percent, self.needs.bytes(percent))),
            // Remove the budget that the error itself names: the message names only a budget for
            // the whole run.
            error: error.map(Error::without_passing),
            state: self.needs.state,
            full_budget: self.needs.full_budget,
            asked: asked.to_owned(),
            threshold: self.needs.threshold,
            margin: self.needs.margin(),
            is_auto: tuner.budget == Some(Budget::Auto),
            names: tuner.names,
        })
    }

    /// Chooses the budget if none was given.
    fn choose(&self) -> Result<(Reason, u64, Rehearsed), TuneError> {
        let (reason, low) = match self.needs.threshold {
            Some(threshold) if threshold >= self.needs.bytes(USUAL) => (Reason::Threshold, 100),
            _ => (Reason::Usual, USUAL),
        };
        if let Some(rehearsed) = self.passes(low, CHOSEN_RATIO + self.threshold_ratio()?)? {
            return Ok((reason, self.needs.bytes(low), rehearsed));
        }
        if let Some((percent, rehearsed)) = self.passing(low + 1, CHOSEN_RATIO)? {
            return Ok((Reason::Passes, self.needs.bytes(percent), rehearsed));
        }
        // No percentage passes, because the threshold alone causes too much recomputation. The run
        // keeps the requested threshold, and the user gets a warning.
        let budget = self.needs.full_budget;
        Ok((Reason::Threshold, budget, self.asked(budget, "100%")?))
    }

    /// Finds the smallest percentage from `low` on that passes, and returns it with its rehearsal.
    /// The run may recompute at most `ratio` times the work itself, plus the recomputation due to
    /// the threshold alone.
    fn passing(&self, low: u32, ratio: f64) -> Result<Option<(u32, Rehearsed)>, TuneError> {
        // A budget smaller than the state cannot pass, and a budget smaller than the threshold is
        // invalid.
        let least = self.needs.state.max(self.needs.threshold.unwrap_or(0));
        let low = low.max(self.needs.percent(least).ceil() as u32).min(100);
        let ratio = ratio + self.threshold_ratio()?;
        let mut passed = None;
        smallest(low, 100, |percent| {
            let rehearsed = self.passes(percent, ratio)?;
            passed = rehearsed.map(|rehearsed| (percent, rehearsed)).or(passed);
            Ok::<_, TuneError>(rehearsed.is_some())
        })?;
        Ok(passed)
    }

    /// The rehearsal with this percentage as the budget; `None` if the rehearsal does not pass.
    fn passes(&self, percent: u32, ratio: f64) -> Result<Option<Rehearsed>, TuneError> {
        let limit = self.rehearsal.recompute_limit.map_or(ratio, |own| own.min(ratio));
        let (budget, threshold) = (self.needs.bytes(percent), self.needs.threshold);
        if budget < self.needs.state {
            return Ok(None);
        }
        if self.needs.is_measured {
            let less = (budget as f64 * (1.0 - MARGIN)) as u64;
            let less = less.max(threshold.unwrap_or(0));
            if self.rehearse(less, threshold, Some(limit))?.is_err() {
                return Ok(None);
            }
        }
        Ok(self.rehearse(budget, threshold, Some(limit))?.ok())
    }

    /// Recomputation due to the threshold alone, as a multiple of the work itself.
    fn threshold_ratio(&self) -> Result<f64, TuneError> {
        let Needs { full_budget, threshold, .. } = self.needs;
        let Some(threshold) = threshold.filter(|&threshold| threshold < full_budget) else {
            return Ok(0.0);
        };
        let alone = self.rehearse(full_budget, Some(threshold), Some(THRESHOLD_RATIO))?;
        Ok(alone.map_or(0.0, |rehearsed| rehearsed.recompute_ratio))
    }

    /// Rehearses under one budget.
    fn rehearse(
        &self,
        budget: u64,
        threshold: Option<u64>,
        limit: Option<f64>,
    ) -> Result<Verdict, TuneError> {
        let percent = self.needs.percent(budget);
        (self.rehearsal.tuner.progress)(Progress::Within { budget, percent });
        self.rehearsal.under(budget, threshold, limit)
    }
}

#[cfg(test)]
mod tests;
