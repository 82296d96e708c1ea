//! Choosing a budget that passes, before anything is computed.

use super::failure::Failure;
use super::rehearsal::{Rehearsal, Rehearsed, Verdict};
use super::search::{self, USUAL};
use super::target::Target;
use super::terminal::Shows;
use super::values::{Budget, Share};
use super::waiting::Waiting;
use super::words::Counted;
use remat::{ByteSize, CostModelKind, Error};
use std::fmt;

/// A default budget may recompute at most as much as the work itself, besides what the eviction threshold
/// alone makes it recompute.
const CHOSEN_RATIO: f64 = 1.0;

/// A budget named in an error message may recompute more, but not without end.
const NAMED_RATIO: f64 = 10.0;

/// Where costs are measured, evictions differ from run to run. A budget then counts as passing only if one
/// smaller by this part passes, too.
const MARGIN: f64 = 0.05;

/// The memory that a run takes.
#[derive(Clone, Copy, Debug)]
struct Needs {
    /// 100 %: the smallest budget found under which nothing is evicted.
    full_budget: u64,
    /// Most bytes in use at once where nothing limits them.
    peak: u64,
    /// What is held between steps, and never evicted.
    state: u64,
    threshold: Option<u64>,
    /// Whether costs are measured, so that evictions differ from run to run.
    is_measured: bool,
}

/// Why this budget was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    /// The command line gives it.
    Asked,
    /// It is the free memory.
    Auto,
    /// None was given, and the default passes.
    Usual,
    /// None was given, and the default is too small.
    Passes,
    /// Only a threshold was given, and it does not fit below the default.
    Threshold,
}

/// The budget and threshold of a run, in bytes.
#[derive(Debug)]
pub struct ChosenBudget {
    needs: Needs,
    budget: u64,
    reason: Reason,
    /// The rehearsal under this budget.
    rehearsed: Rehearsed,
    /// Whether it thrashes with the threshold, but not without it.
    threshold_thrashes: bool,
    /// What the device has free, less a margin; `None`: unknown.
    free: Option<u64>,
}

impl ChosenBudget {
    /// Settles on a budget that passes in a rehearsal.
    pub fn new(rehearsal: &Rehearsal<'_>, target: &Target, shows: Shows) -> Result<Self, Failure> {
        let waiting = Waiting::new(shows);
        let needs = Needs::of(rehearsal, &waiting)?;
        let chooser = Chooser { rehearsal, waiting, needs };
        let (reason, budget, rehearsed) = match rehearsal.memory.budget {
            Some(Budget::Share(share)) => {
                let budget = share.of(needs.full_budget);
                let asked = match share {
                    Share::Percent(_) => format!("{share} ({})", ByteSize(budget)),
                    Share::Bytes(_) => share.to_string(),
                };
                (Reason::Asked, budget, chooser.asked(budget, &asked)?)
            }
            Some(Budget::Auto) => {
                let budget = target.available_bytes()?;
                let asked = format!("{} (auto: what is free)", ByteSize(budget));
                (Reason::Auto, budget, chooser.asked(budget, &asked)?)
            }
            None => chooser.choose()?,
        };
        let threshold_thrashes = rehearsed.thrashes
            && needs.threshold.is_some()
            && chooser.rehearse(budget, None, None)?.is_ok_and(|without| !without.thrashes);
        let free = target.available_bytes().ok();
        let chosen = Self { needs, budget, reason, rehearsed, threshold_thrashes, free };
        chosen.too_large().map_or(Ok(chosen), Err)
    }

    /// A default budget above what is free would end in swapping, or in a killed process.
    fn too_large(&self) -> Option<Failure> {
        let is_default = !matches!(self.reason, Reason::Asked | Reason::Auto);
        let free = self.free.filter(|&free| is_default && free < self.budget)?;
        let [budget, free] = ByteSize::apart(self.budget, free);
        Some(Failure::usage(format!(
            "the default budget would be {budget}, but only {free} are free; lower --batch, or try \
             --budget auto"
        )))
    }

    /// 100 %: the smallest budget found under which nothing is evicted.
    pub const fn full_budget(&self) -> u64 {
        self.needs.full_budget
    }

    /// Most bytes in use at once where nothing limits them.
    pub const fn unbudgeted_peak(&self) -> u64 {
        self.needs.peak
    }

    /// Parameters, buffers and the optimizer's state: what is held between steps, and never evicted.
    pub const fn state(&self) -> u64 {
        self.needs.state
    }

    pub const fn budget(&self) -> u64 {
        self.budget
    }

    /// The rehearsal under it, without a forecast.
    pub const fn rehearsed(&self) -> &Rehearsed {
        &self.rehearsed
    }

    /// Whether the rehearsal evicted anything.
    pub const fn evicts(&self) -> bool {
        self.rehearsed.evictions > 0
    }

    pub const fn threshold(&self) -> Option<u64> {
        self.needs.threshold
    }

    /// Warnings about a run that will be slow, whose threshold cannot be met, or that takes more than is free.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let Rehearsed { peak_bytes: peak, unevictable_bytes: least, .. } = self.rehearsed;
        if let Some(threshold) = self.needs.threshold.filter(|&threshold| threshold < least) {
            let enough = self.needs.percent(least).ceil() as u32;
            let cure = match self.needs.bytes(enough) <= self.budget {
                true => format!("raise --eviction-threshold to {enough}%"),
                false => "raise --budget and --eviction-threshold".to_owned(),
            };
            warnings.push(format!(
                "the eviction threshold of {} cannot be met, as up to {} cannot be evicted \
                 (parameters and optimizer state take {}); {cure}, or drop it",
                ByteSize(threshold),
                ByteSize(least),
                ByteSize(self.needs.state)
            ));
        }
        if let Some(free) = self.free.filter(|&free| free < peak) {
            let [peak, free] = ByteSize::apart(peak, free);
            warnings.push(format!(
                "the run takes {peak}, but only {free} are free; lower --budget or --batch"
            ));
        }
        if self.rehearsed.thrashes {
            warnings.push(format!(
                "a step will recompute {:.1} times its own work; {}",
                self.rehearsed.step_ratio,
                self.remedy()
            ));
        }
        warnings
    }

    /// A warning after a run in which this many steps thrashed, unless the rehearsal warned already.
    pub fn late_warning(&self, thrashed_steps: u64) -> Option<String> {
        (thrashed_steps > 0 && !self.rehearsed.thrashes).then(|| {
            let steps = Counted(thrashed_steps, "step");
            format!("{steps} recomputed several times the work of a step; {}", self.remedy())
        })
    }

    /// How to recompute less.
    fn remedy(&self) -> &'static str {
        match self.needs.threshold {
            Some(_) if self.threshold_thrashes => "raise --eviction-threshold, or drop it",
            Some(_) => "raise --budget and --eviction-threshold",
            None => "raise --budget",
        }
    }

    /// The error of a run that passed its rehearsal but ran out of memory in so much of the budget, with a larger one that passes.
    pub fn too_small(
        &self,
        budget: u64,
        rehearsal: &Rehearsal<'_>,
        shows: Shows,
        error: &Error,
    ) -> Failure {
        if budget < self.budget {
            let [part, all] = ByteSize::apart(budget, self.budget);
            return Failure::usage(format!(
                "{part} of the budget of {all} passed the rehearsal, and is too small; --learn ahead takes all of it\n  {error}"
            ));
        }
        let chooser = Chooser { rehearsal, waiting: Waiting::new(shows), needs: self.needs };
        let refusal = chooser.refusal(budget, &ByteSize(budget).to_string(), Some(error));
        refusal.unwrap_or_else(|failure| failure)
    }
}

impl Needs {
    /// Finds them by rehearsals, first without a limit, then with one.
    fn of(rehearsal: &Rehearsal<'_>, waiting: &Waiting) -> Result<Self, Failure> {
        waiting.at("rehearsing without a limit");
        let Rehearsed { peak_bytes: peak, state_bytes: state, .. } = rehearsal.unlimited()?;
        // What is in use leaves holes, so more is needed than is ever in use.
        let mut full_budget = peak;
        let mut more = (peak / 400).max(remat::memory::ALIGNMENT);
        loop {
            waiting.at(format!("rehearsing without evictions in {}", ByteSize(full_budget)));
            if rehearsal.fits(full_budget)? {
                break;
            }
            // By a quarter of a percent at first, then ever faster, so that it ends.
            full_budget = full_budget.saturating_add(more);
            more += more / 8;
        }
        let threshold = rehearsal.memory.eviction_threshold.map(|share| share.of(full_budget));
        let is_measured = rehearsal.memory.cost == CostModelKind::Measured;
        Ok(Self { full_budget, peak, state, threshold, is_measured })
    }

    /// A note on the margin of a budget that the program chose or named.
    fn margin(&self) -> String {
        match self.is_measured {
            true => format!(
                "\n  costs are measured and vary; a budget {:.0} % smaller passes the rehearsal, too",
                100.0 * MARGIN
            ),
            false => String::new(),
        }
    }

    fn bytes(&self, percent: u32) -> u64 {
        Share::Percent(percent.into()).of(self.full_budget)
    }

    fn percent(&self, bytes: u64) -> f64 {
        100.0 * bytes as f64 / self.full_budget as f64
    }
}

/// Looks for budgets that pass.
struct Chooser<'a> {
    rehearsal: &'a Rehearsal<'a>,
    waiting: Waiting,
    needs: Needs,
}

impl Chooser<'_> {
    /// Rehearses a given budget; if it fails, the error names one that passes.
    fn asked(&self, budget: u64, asked: &str) -> Result<Rehearsed, Failure> {
        if budget < self.needs.state {
            return Err(self.refusal(budget, asked, None)?);
        }
        let limit = self.rehearsal.memory.recompute_limit;
        match self.rehearse(budget, self.needs.threshold, limit)? {
            Ok(rehearsed) => Ok(rehearsed),
            Err(error) => Err(self.refusal(budget, asked, Some(&error))?),
        }
    }

    /// The message for a budget that failed with this error, or without one because the state alone exceeds it.
    fn refusal(&self, budget: u64, asked: &str, error: Option<&Error>) -> Result<Failure, Failure> {
        let above = self.needs.percent(budget.saturating_add(1)).ceil() as u32;
        let mut message = match (self.passing(above, NAMED_RATIO)?, self.needs.threshold) {
            (Some((percent, _)), _) => format!(
                "a budget of {asked} is too small; --budget {percent}% ({}) passes",
                ByteSize::apart(budget, self.needs.bytes(percent))[1]
            ),
            (None, Some(threshold)) => format!(
                "no budget passes with an eviction threshold of {}; raise --eviction-threshold, or drop it",
                ByteSize(threshold)
            ),
            (None, None) => format!("a budget of {asked} is too small; raise it"),
        };
        message += &self.needs.margin();
        if self.rehearsal.memory.budget == Some(Budget::Auto) {
            message += "\n  that is more than is free; lower --batch";
        }
        let [state, full_budget] = [self.needs.state, self.needs.full_budget].map(ByteSize);
        message += &format!(
            "\n  parameters and optimizer state take {state}; without evictions it takes {full_budget}"
        );
        let error = error.map(Error::to_string).unwrap_or_default();
        for line in error.trim_end().lines() {
            message += "\n  ";
            message += line;
        }
        Ok(Failure::usage(message))
    }

    /// The budget where none was given.
    fn choose(&self) -> Result<(Reason, u64, Rehearsed), Failure> {
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
        // The threshold alone recomputes without end. The user is warned, and gets what they asked for.
        let budget = self.needs.full_budget;
        Ok((Reason::Threshold, budget, self.asked(budget, "100%")?))
    }

    /// The smallest percentage found from `low` on that passes, and its rehearsal. It recomputes at most
    /// `ratio` times the work itself, besides what the threshold alone makes it recompute.
    fn passing(&self, low: u32, ratio: f64) -> Result<Option<(u32, Rehearsed)>, Failure> {
        // Less than the state cannot pass, and less than the threshold makes no sense.
        let least = self.needs.state.max(self.needs.threshold.unwrap_or(0));
        let low = low.max(self.needs.percent(least).ceil() as u32).min(100);
        let ratio = ratio + self.threshold_ratio()?;
        let mut passed = None;
        search::smallest(low, 100, |percent| {
            let rehearsed = self.passes(percent, ratio)?;
            passed = rehearsed.map(|rehearsed| (percent, rehearsed)).or(passed);
            Ok::<_, Failure>(rehearsed.is_some())
        })?;
        Ok(passed)
    }

    /// The rehearsal with this percentage as the budget, if it passed.
    fn passes(&self, percent: u32, ratio: f64) -> Result<Option<Rehearsed>, Failure> {
        let limit = self.rehearsal.memory.recompute_limit.map_or(ratio, |own| own.min(ratio));
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

    /// What is recomputed because of the threshold alone.
    fn threshold_ratio(&self) -> Result<f64, Failure> {
        let Needs { full_budget, threshold, .. } = self.needs;
        let Some(threshold) = threshold.filter(|&threshold| threshold < full_budget) else {
            return Ok(0.0);
        };
        let alone = self.rehearse(full_budget, Some(threshold), Some(NAMED_RATIO))?;
        Ok(alone.map_or(0.0, |rehearsed| rehearsed.recompute_ratio))
    }

    /// Under one budget.
    fn rehearse(
        &self,
        budget: u64,
        threshold: Option<u64>,
        limit: Option<f64>,
    ) -> Result<Verdict, Failure> {
        let percent = self.needs.percent(budget);
        self.waiting.at(format!("rehearsing within {} ({percent:.0} %)", ByteSize(budget)));
        self.rehearsal.under(budget, threshold, limit)
    }
}

impl fmt::Display for ChosenBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [budget, full_budget, state] =
            [self.budget, self.needs.full_budget, self.needs.state].map(ByteSize);
        let chosen = match self.reason {
            Reason::Asked => "",
            Reason::Auto => " (auto)",
            Reason::Usual | Reason::Passes | Reason::Threshold => " (default)",
        };
        write!(f, "budget {budget}{chosen}")?;
        let fits = self.rehearsed.evictions == 0;
        if self.budget >= self.needs.full_budget {
            write!(f, "; it takes {full_budget}")?;
            f.write_str(if fits { ", so nothing is evicted" } else { "" })?;
        } else {
            let percent = (10.0 * self.needs.percent(self.budget)).round() / 10.0;
            write!(f, ", {percent} % of the {full_budget} it takes without evictions")?;
            f.write_str(if fits { "; nothing is evicted" } else { "" })?;
        }
        if let Some(threshold) = self.needs.threshold.filter(|_| !fits) {
            write!(f, "; evicts above {}", ByteSize(threshold))?;
        }
        match self.reason {
            Reason::Passes => write!(
                f,
                "\n  the usual {USUAL} % is too small; parameters and optimizer state take {state}"
            )?,
            Reason::Threshold => {
                write!(f, "\n  not the usual {USUAL} %, because of the eviction threshold")?;
            }
            Reason::Asked | Reason::Auto | Reason::Usual => {}
        }
        match self.reason {
            Reason::Usual | Reason::Passes => f.write_str(&self.needs.margin()),
            Reason::Asked | Reason::Auto | Reason::Threshold => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
