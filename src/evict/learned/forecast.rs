//! Forecasts. A forecast is the best way that a search has found to run a step, in a form that can
//! be stored. A [`Foresight`] is a forecast prepared for scoring.

use crate::evict::Formula;
use crate::evict::formula::TWO_THIRDS;
use crate::step::{NEVER, StepFuture};
use std::sync::Arc;

/// Effort that [`Learned`](super::Learned) spends on finding a forecast of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Learn {
    /// No search: uses the setting that is best on average.
    #[default]
    Ahead,
    /// Uses the best of a portfolio of about 70 settings.
    Portfolio,
    /// Searches for a forecast by simulated runs. The runs of the portfolio count.
    Search {
        /// Number of simulated runs.
        runs: u64,
    },
}

impl Learn {
    /// Default number of simulated runs of a search.
    pub const RUNS: u64 = 2000;

    /// Limit on a search for one budget, in turns of the step.
    ///
    /// If a turn without recomputation has `n` ops, the search simulates at most `n * turns()` ops.
    /// If most of the simulated work is recomputation, the limit ends a search before all its runs
    /// are done.
    #[must_use]
    pub const fn turns(self) -> u64 {
        match self {
            Self::Ahead => 16,
            Self::Portfolio => 512,
            Self::Search { runs } => runs.saturating_mul(2).saturating_add(512),
        }
    }
}

/// Weights and exponents of a score; see [the formula](crate::evict::learned).
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Setting {
    /// Weight of the cost of an evicted ancestor that a later command uses itself. At least 0.
    pub live: f64,
    /// Weight of an evicted ancestor that no later command uses itself, although a later command
    /// uses an evicted storage made from it. At least 0.
    pub shared: f64,
    /// Exponent of the distance to the next use. At least 0; values below 0.1 count as 0.
    pub time: f64,
}

impl Default for Setting {
    /// Default setting for the clock of [`Clock::default`].
    ///
    /// The default was measured on traces of the DTR paper and on recordings of training by this
    /// crate and by Burn. Of all settings, the default comes closest to the best setting of each
    /// program.
    fn default() -> Self {
        Self { live: 1.0, shared: 0.2, time: TWO_THIRDS }
    }
}

/// Measure of the distance to a use.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case", deny_unknown_fields))]
pub enum Clock {
    /// Cost of the commands from now to the use.
    Time {
        /// Weight of commands at which all bytes fit in the budget without eviction. Commands at
        /// which memory is short have weight 1.
        slack: f64,
    },
    /// Prices of a byte at the positions where memory is short, added up from now to the use.
    Prices {
        /// Pairs of a position and a price. The pairs are in the order of rising positions, and
        /// prices are at least 0. Only ratios of prices matter.
        prices: Vec<(u32, f64)>,
        /// Weight of the total cost of the step's commands, relative to the sum of all prices,
        /// which has weight 1.
        slack: f64,
    },
    /// No measure: the time since the last use stands for the distance to the next use, as without
    /// a known step. For some programs, `Age` is the best clock.
    Age,
    /// No measure: the step runs with the evictions of [`Formula::DTR`].
    Dtr,
    /// No measure: the step runs with the evictions of [`Formula::DTR_EQ`].
    DtrEq,
}

impl Default for Clock {
    /// [`Clock::Time`] with slack 1: commands count by their cost, whether or not memory is short.
    fn default() -> Self {
        Self::Time { slack: 1.0 }
    }
}

impl Clock {
    /// Clocks that do not measure the distance to a use. With a clock that measures no distance, a
    /// policy that does not use the known step chooses evictions.
    pub const UNKNOWING: [Self; 3] = [Self::Age, Self::Dtr, Self::DtrEq];

    /// Formula of the policy that chooses evictions; `None` if the clock has a measure.
    #[must_use]
    pub const fn formula(&self) -> Option<Formula> {
        match self {
            Self::Time { .. } | Self::Prices { .. } => None,
            Self::Age => Some(Formula::ANCESTORS),
            Self::Dtr => Some(Formula::DTR),
            Self::DtrEq => Some(Formula::DTR_EQ),
        }
    }
}

/// Best way found to run a known step in a budget. A forecast is found by a search, or made by
/// [`Forecast::plain`].
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Forecast {
    /// [`StepFuture::key`] of the step.
    pub step: u64,
    /// Budget in bytes for which the forecast was found. In a larger budget, the step succeeds too,
    /// if it is limited to `budget` bytes.
    pub budget: u64,
    /// Measure of the distance to a use.
    pub clock: Clock,
    /// Weights and exponents of a score.
    pub setting: Setting,
    /// Factor of a value's score in each gap between two of the value's uses ([`StepFuture::gap`]);
    /// empty if all factors are 1.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub factors: Vec<f32>,
    /// Size in bytes below which storages are evicted only when no larger candidate is left. If
    /// `None`, the size in [`Settings`] is used.
    ///
    /// [`Settings`]: crate::Settings
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub min_evict_bytes: Option<u64>,
    /// Cost of recomputation divided by the cost of the step, as simulated; `None` if not
    /// simulated.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub excess: Option<f64>,
    /// Lower bound on the recomputation cost of any run in program order ([`bound`](crate::bound)),
    /// divided by the cost of the step; `None` if not computed.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub least: Option<f64>,
}

/// Reason why a forecast cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ForecastError {
    /// The forecast is of another step.
    #[error("the forecast is for step {found:016x}, but this is step {expected:016x}")]
    Foreign {
        /// Key of the step in the forecast.
        found: u64,
        /// Key of the current step.
        expected: u64,
    },
    /// A number is negative or not finite.
    #[error("{what} of the forecast is {value}, expected a finite number from 0 up")]
    Number {
        /// Name of the number.
        what: &'static str,
        /// Value of the number.
        value: f64,
    },
    /// The number of factors is neither 0 nor the number of gaps.
    #[error("the forecast has {found} factors, but the step has {expected} gaps")]
    Factors {
        /// Number of factors.
        found: usize,
        /// Number of gaps.
        expected: usize,
    },
    /// Positions do not rise, or lie outside the step.
    #[error("the forecast has a price at position {0}, which is out of order or beyond the step")]
    Position(u32),
}

impl Forecast {
    /// Forecast by the default setting, without a search.
    #[must_use]
    pub fn plain(step: &StepFuture, budget: u64) -> Self {
        Self::by(Clock::default(), step, budget)
    }

    /// Forecast by the default setting on another clock.
    pub(crate) fn by(clock: Clock, step: &StepFuture, budget: u64) -> Self {
        Self {
            step: step.key(),
            budget,
            clock,
            setting: Setting::default(),
            factors: Vec::new(),
            min_evict_bytes: None,
            excess: None,
            least: None,
        }
    }

    /// Prepares the forecast for its step.
    ///
    /// # Errors
    /// [`ForecastError`] if the forecast is of another step, or if a number is invalid. A forecast
    /// from a file may have invalid numbers.
    pub fn foresight(&self, step: &Arc<StepFuture>) -> Result<Foresight, ForecastError> {
        let expected = step.key();
        if self.step != expected {
            return Err(ForecastError::Foreign { found: self.step, expected });
        }
        self.check(step)?;
        Ok(self.for_step(Arc::clone(step)))
    }

    /// Prepares the forecast without checks.
    pub(crate) fn for_step(&self, step: Arc<StepFuture>) -> Foresight {
        let clock = self.clock.over(&step, self.budget);
        let is_short = step.usage().iter().any(|&used| used > self.budget);
        Foresight {
            step,
            clock,
            formula: self.clock.formula(),
            is_short,
            setting: self.setting,
            factors: self.factors.clone(),
            min_evict_bytes: self.min_evict_bytes,
        }
    }

    fn check(&self, step: &StepFuture) -> Result<(), ForecastError> {
        let Setting { live, shared, time } = self.setting;
        let from_zero = |what, value: f64| match value.is_finite() && value >= 0.0 {
            true => Ok(()),
            false => Err(ForecastError::Number { what, value }),
        };
        from_zero("the weight of live ancestors", live)?;
        from_zero("the weight of shared ancestors", shared)?;
        from_zero("the exponent of time", time)?;
        let (prices, slack) = match &self.clock {
            Clock::Time { slack } => (&[][..], *slack),
            Clock::Prices { prices, slack } => (&prices[..], *slack),
            Clock::Age | Clock::Dtr | Clock::DtrEq => (&[][..], 0.0),
        };
        from_zero("the slack", slack)?;
        let mut first = 0;
        for &(at, price) in prices {
            from_zero("a price", price)?;
            if at < first || at as usize >= step.len() {
                return Err(ForecastError::Position(at));
            }
            first = at + 1;
        }
        self.factors.iter().try_for_each(|&factor| from_zero("a factor", factor.into()))?;
        let (found, expected) = (self.factors.len(), step.gaps());
        match found == 0 || found == expected {
            true => Ok(()),
            false => Err(ForecastError::Factors { found, expected }),
        }
    }
}

impl Clock {
    /// Clock time of each position of the step, and of its end. Strictly rising. Empty if the clock
    /// has no measure.
    fn over(&self, step: &StepFuture, budget: u64) -> Vec<f64> {
        let time = step.time();
        let all = time.last().copied().unwrap_or(0.0);
        let mut clock = Vec::with_capacity(time.len());
        match self {
            Self::Age | Self::Dtr | Self::DtrEq => {}
            Self::Time { slack } => {
                // Each position takes at least one tick, so that no two positions have the same
                // time.
                let tick = if all > 0.0 { all * 1e-9 } else { 1.0 };
                let mut now = 0.0;
                for at in 0..time.len() {
                    clock.push(now);
                    if let Some(&used) = step.usage().get(at) {
                        let weight = if used > budget { 1.0 } else { *slack };
                        now += weight * (time[at + 1] - time[at]) + tick;
                    }
                }
            }
            Self::Prices { prices, slack } => {
                let sum: f64 = prices.iter().map(|(_, price)| price).sum();
                let unit = if sum > 0.0 { sum.recip() } else { 0.0 };
                let slack = if all > 0.0 { slack / all } else { 0.0 };
                let (mut paid, mut next) = (0.0, prices.iter().peekable());
                for (at, time) in time.iter().enumerate() {
                    clock.push(paid + slack * time + 1e-9 * at as f64);
                    while let Some((_, price)) = next.next_if(|(due, _)| *due as usize <= at) {
                        paid += price * unit;
                    }
                }
            }
        }
        clock
    }
}

/// Lowest exponent of the distance for which roots of scores can be compared; a lower exponent
/// counts as 0.
const LEAST_TIME: f64 = 0.1;

/// A known step with a forecast's weights: the data that an evictor uses while the step runs.
#[derive(Clone, Debug)]
pub struct Foresight {
    step: Arc<StepFuture>,
    /// Clock time of each position and of the end of the step. Empty if the clock has no measure.
    clock: Vec<f64>,
    /// Formula of a policy that does not use the step. If set, the policy chooses evictions, and
    /// the other fields are not used for scores.
    formula: Option<Formula>,
    /// Whether the step needs more bytes than the budget if nothing is evicted.
    is_short: bool,
    setting: Setting,
    /// Factor of a value's score in each gap between two uses; empty if all factors are 1.
    factors: Vec<f32>,
    min_evict_bytes: Option<u64>,
}

impl Foresight {
    /// Foresight by the default setting, in a budget of `budget` bytes.
    #[must_use]
    pub fn plain(step: Arc<StepFuture>, budget: u64) -> Self {
        Forecast::plain(&step, budget).for_step(step)
    }

    /// The known step.
    #[must_use]
    pub const fn step(&self) -> &Arc<StepFuture> {
        &self.step
    }

    /// Whether the step must evict in its budget.
    #[must_use]
    pub const fn is_short(&self) -> bool {
        self.is_short
    }

    /// Formula of the policy that chooses evictions, if the forecast names a policy that does not
    /// use the known step.
    pub(super) const fn formula(&self) -> Option<Formula> {
        self.formula
    }

    /// Size below which storages are evicted only when no larger candidate is left; `None` if the
    /// forecast has none.
    pub(crate) const fn min_evict_bytes(&self) -> Option<u64> {
        self.min_evict_bytes
    }

    pub(super) const fn setting(&self) -> Setting {
        self.setting
    }

    /// Factor of a value's score at a position.
    #[inline]
    pub(super) fn factor(&self, ordinal: u32, at: u32) -> f64 {
        match self.factors.get(self.step.gap(ordinal, at)) {
            Some(&factor) => factor.into(),
            None => 1.0,
        }
    }

    /// Whether a factor of a score may differ from 1.
    #[inline]
    pub(super) const fn has_factors(&self) -> bool {
        !self.factors.is_empty()
    }

    /// Clock time of a position. A position beyond the step has the time of its end.
    #[inline]
    pub(super) fn time(&self, position: u32) -> f64 {
        self.clock[(position as usize).min(self.clock.len() - 1)]
    }

    /// Clock time at which a use at a position counts as due. The position [`NEVER`] is due at the
    /// end of the step.
    ///
    /// If the exponent counts as 0, every use is due at the end of the step, so that distances have
    /// no effect.
    #[inline]
    pub(super) fn due(&self, position: u32) -> f64 {
        self.time(if self.setting.time < LEAST_TIME { NEVER } else { position })
    }

    /// Converts a score to a rank, which is `score^(1 / t)`, where `t` is the exponent of the
    /// distance. Dividing ranks by the distance orders candidates like dividing scores by the power
    /// of the distance.
    #[inline]
    pub(super) fn rank(&self, score: f64) -> f64 {
        match self.setting.time {
            1.0 => score,
            0.5 => score * score,
            TWO_THIRDS => score * score.sqrt(),
            time if time < LEAST_TIME => score,
            time => score.powf(time.recip()),
        }
    }

    /// Converts a rank to a score.
    #[inline]
    pub(super) fn score(&self, rank: f64) -> f64 {
        match self.setting.time {
            1.0 => rank,
            0.5 => rank.sqrt(),
            TWO_THIRDS => (rank * rank).cbrt(),
            time if time < LEAST_TIME => rank,
            time => rank.powf(time),
        }
    }
}
