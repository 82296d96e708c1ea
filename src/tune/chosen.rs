//! A chosen budget: its size, the reason for the choice, and warnings.

use super::default_budget::{Needs, Reason, USUAL};
use super::{OptionNames, Rehearsed, TuneError};
use remat_memory::ByteSize;
use std::fmt;

/// A budget that passes in a rehearsal, with the eviction threshold of the run.
///
/// `Display` writes a line with the size of the budget and the reason for the choice.
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
/// assert!(tuned.chosen().to_string().starts_with("budget 4.00 MiB"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct ChosenBudget {
    pub(super) needs: Needs,
    pub(super) budget: u64,
    pub(super) reason: Reason,
    /// The rehearsal under this budget.
    pub(super) rehearsed: Rehearsed,
    /// Whether the run thrashes with the threshold, and does not thrash without it.
    pub(super) threshold_thrashes: bool,
    /// Free memory of the device in bytes, less a margin; `None` if unknown.
    pub(super) free: Option<u64>,
    pub(super) names: OptionNames,
}

impl ChosenBudget {
    /// Makes the error for a default budget that is larger than the free memory. In such a budget,
    /// the system would swap, or kill the process.
    pub(super) fn too_large(&self) -> Option<TuneError> {
        let is_default = !matches!(self.reason, Reason::Asked | Reason::Auto);
        let free = self.free.filter(|&free| is_default && free < self.budget)?;
        Some(TuneError::AboveFree { budget: self.budget, free, names: self.names })
    }

    /// Full budget (100 %), in bytes: the smallest budget found under which nothing is evicted.
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
    /// let chosen = tuned.chosen();
    /// assert!(chosen.unbudgeted_peak() <= chosen.full_budget());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn full_budget(&self) -> u64 {
        self.needs.full_budget
    }

    /// Most bytes in use at once without a limit.
    #[must_use]
    pub const fn unbudgeted_peak(&self) -> u64 {
        self.needs.peak
    }

    /// Bytes of parameters, buffers and the optimizer's state, which are held between steps and
    /// never evicted.
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
    /// let chosen = tuned.chosen();
    /// assert!(0 < chosen.state() && chosen.state() <= chosen.unbudgeted_peak());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn state(&self) -> u64 {
        self.needs.state
    }

    /// The budget, in bytes.
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
    /// assert_eq!(tuned.chosen().budget(), 4 << 20);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn budget(&self) -> u64 {
        self.budget
    }

    /// The rehearsal under the budget, without forecasts.
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
    /// assert!(tuned.chosen().rehearsed().peak_bytes <= 4 << 20);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn rehearsed(&self) -> &Rehearsed {
        &self.rehearsed
    }

    /// Whether the rehearsal evicted anything.
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
    /// // The budget is larger than the program needs.
    /// assert!(!tuned.chosen().evicts());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn evicts(&self) -> bool {
        self.rehearsed.evictions > 0
    }

    /// The eviction threshold, in bytes.
    #[must_use]
    pub const fn threshold(&self) -> Option<u64> {
        self.needs.threshold
    }

    /// Warnings, if the run will be slow, cannot meet its threshold, or takes more than the free
    /// memory.
    #[must_use]
    pub fn warnings(&self) -> Vec<Warning> {
        let mut warnings = Vec::new();
        let OptionNames { budget, threshold: name, batch, .. } = self.names;
        let Rehearsed { peak_bytes: peak, unevictable_bytes: least, .. } = self.rehearsed;
        if let Some(threshold) = self.needs.threshold.filter(|&threshold| threshold < least) {
            let enough = self.needs.percent(least).ceil() as u32;
            let cure = match self.needs.bytes(enough) <= self.budget {
                true => format!("raise {name} to {enough}%"),
                false => format!("raise {budget} and {name}"),
            };
            let state = self.needs.state;
            warnings.push(Warning::ThresholdNotMet { threshold, least, state, cure });
        }
        if let Some(free) = self.free.filter(|&free| free < peak) {
            let cure = format!("lower {budget} or {batch}");
            warnings.push(Warning::AboveFree { peak, free, cure });
        }
        if self.rehearsed.thrashes {
            let (ratio, cure) = (self.rehearsed.step_ratio, self.cure());
            warnings.push(Warning::Thrashes { ratio, cure });
        }
        warnings
    }

    /// Advice to the user on how to make the run recompute less.
    #[must_use]
    pub fn cure(&self) -> String {
        let OptionNames { budget, threshold, .. } = self.names;
        match self.needs.threshold {
            Some(_) if self.threshold_thrashes => format!("raise {threshold}, or drop it"),
            Some(_) => format!("raise {budget} and {threshold}"),
            None => format!("raise {budget}"),
        }
    }
}

/// A warning before the first step, with the text of a remedy.
///
/// ```
/// use remat::tune::Warning;
///
/// let warning = Warning::Thrashes { ratio: 5.0, cure: "raise the budget".to_owned() };
/// let text = "a step will recompute 5.0 times its own work; raise the budget";
/// assert_eq!(warning.to_string(), text);
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Warning {
    /// The eviction threshold is smaller than the number of bytes that cannot be evicted.
    ThresholdNotMet {
        /// The threshold in bytes.
        threshold: u64,
        /// Largest number of bytes that are unevictable at the same time.
        least: u64,
        /// Bytes of parameters, buffers and the optimizer's state.
        state: u64,
        /// The remedy.
        cure: String,
    },
    /// The run takes more than the free memory.
    AboveFree {
        /// Most bytes in use at once.
        peak: u64,
        /// Free memory in bytes, less a margin.
        free: u64,
        /// The remedy.
        cure: String,
    },
    /// A step recomputes several times its own work.
    Thrashes {
        /// Cost of recomputation, as a multiple of the step's own work.
        ratio: f64,
        /// The remedy.
        cure: String,
    },
    /// Forecasts could not be kept for later runs. The text is the reason.
    NotKept(String),
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ThresholdNotMet { threshold, least, state, cure } => write!(
                f,
                "the eviction threshold of {} cannot be met, because up to {} cannot be evicted \
                 (parameters and optimizer state take {}); {cure}, or drop it",
                ByteSize(*threshold),
                ByteSize(*least),
                ByteSize(*state)
            ),
            Self::AboveFree { peak, free, cure } => {
                let [peak, free] = ByteSize::apart(*peak, *free);
                write!(f, "the run takes {peak}, but only {free} are free; {cure}")
            }
            Self::Thrashes { ratio, cure } => {
                write!(f, "a step will recompute {ratio:.1} times its own work; {cure}")
            }
            Self::NotKept(error) => write!(f, "{error}; the forecasts are not kept for later runs"),
        }
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
            write!(f, "; the run needs {full_budget}")?;
            f.write_str(if fits { ", so nothing is evicted" } else { "" })?;
        } else {
            let percent = (10.0 * self.needs.percent(self.budget)).round() / 10.0;
            write!(f, ", {percent} % of the {full_budget} needed without evictions")?;
            f.write_str(if fits { "; nothing is evicted" } else { "" })?;
        }
        if let Some(threshold) = self.needs.threshold.filter(|_| !fits) {
            write!(f, "; evicts above {}", ByteSize(threshold))?;
        }
        match self.reason {
            Reason::Passes => write!(
                f,
                "\n  the default of {USUAL} % is too small; parameters and optimizer state take {state}"
            )?,
            Reason::Threshold => {
                write!(f, "\n  above the default of {USUAL} %, because of the eviction threshold")?;
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
