//! What a search found out about a step: a value that can be kept, and what is made of it to score by.

use crate::evict::Formula;
use crate::evict::formula::TWO_THIRDS;
use crate::step::{NEVER, StepFuture};
use std::sync::Arc;

/// How much is found out about a step before it is run by [`Learned`](super::Learned).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Learn {
    /// Nothing: it looks ahead, by the setting that is best on the average.
    #[default]
    Ahead,
    /// The best of a portfolio of some 70 settings.
    Portfolio,
    /// A search of so many simulated runs, the portfolio included.
    Search {
        /// How many.
        runs: u64,
    },
}

impl Learn {
    /// Simulated runs of a search, if nothing else is said.
    pub const RUNS: u64 = 2000;

    /// Turns of a step that a search about it in one budget takes at the most: as many simulated ops as these have without
    /// recomputing. Where most is recomputed, it ends by this before its runs are done.
    #[must_use]
    pub const fn turns(self) -> u64 {
        match self {
            Self::Ahead => 16,
            Self::Portfolio => 512,
            Self::Search { runs } => runs.saturating_mul(2).saturating_add(512),
        }
    }
}

/// How much what counts in a score; see [the formula](crate::evict::learned).
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Setting {
    /// Weight of the cost of an evicted ancestor that will be used itself: from 0 up.
    pub live: f64,
    /// Weight of one that will not, but that another evicted storage is made from which will: from 0 up.
    pub shared: f64,
    /// Exponent of the distance to the next use: from 0 up; below 0.1 it counts as 0.
    pub time: f64,
}

impl Default for Setting {
    /// On a clock of [`Clock::default`], the one that falls behind the best for a program least over the traces of the DTR
    /// paper and recordings of training, by this crate and by Burn.
    fn default() -> Self {
        Self { live: 1.0, shared: 0.2, time: TWO_THIRDS }
    }
}

/// What the distance to a use is measured on.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case", deny_unknown_fields))]
pub enum Clock {
    /// Cost of the commands in between.
    Time {
        /// How much those count during which all that is in use without a budget would fit into it: 1 as much as any.
        slack: f64,
    },
    /// What a byte is worth at instants where memory is short, summed up.
    Prices {
        /// Position and price, positions rising, prices from 0 up. Only their ratios matter.
        prices: Vec<(u32, f64)>,
        /// Share of the cost of the commands in between, beside all prices together.
        slack: f64,
    },
    /// None: what was used as long ago will be used as long from now, as if the step were not known. There are programs
    /// for which that is best.
    Age,
    /// None: the step is run as by [`Formula::DTR`], with the same evictions.
    Dtr,
    /// None: the step is run as by [`Formula::DTR_EQ`], with the same evictions.
    DtrEq,
}

impl Default for Clock {
    /// Time, of which all counts.
    fn default() -> Self {
        Self::Time { slack: 1.0 }
    }
}

impl Clock {
    /// Clocks that measure nothing: a policy that knows nothing of the step decides.
    pub const UNKNOWING: [Self; 3] = [Self::Age, Self::Dtr, Self::DtrEq];

    /// The policy that decides where nothing is measured.
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

/// How a step that is known is to be run in a budget. Found by a search, or [`Forecast::plain`].
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Forecast {
    /// [`StepFuture::key`] of the step.
    pub step: u64,
    /// Bytes of the budget that it was found for. In a larger one it passes as well if no more of that is used.
    pub budget: u64,
    /// What distance is measured on.
    pub clock: Clock,
    /// How much what counts.
    pub setting: Setting,
    /// For each gap between two uses ([`StepFuture::gap`]) a factor of the scores in it; empty for 1 throughout.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub factors: Vec<f32>,
    /// Smaller storages go only where nothing else is left; `None`: as [`Settings`] say.
    ///
    /// [`Settings`]: crate::Settings
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub min_evict_bytes: Option<u64>,
    /// Cost of recomputing over that of the step, as it was simulated; `None` if it was not.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub excess: Option<f64>,
    /// The least that any run in program order recomputes ([`bound`](crate::bound)), over the same; `None` if nobody asked.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub least: Option<f64>,
}

/// A forecast that cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ForecastError {
    /// It was made for another step.
    #[error("the forecast is one of step {found:016x}, and this is step {expected:016x}")]
    Foreign {
        /// The step that it was made for.
        found: u64,
        /// The step at hand.
        expected: u64,
    },
    /// A number that makes no sense.
    #[error("{what} of the forecast is {value}; a finite number from 0 up was expected")]
    Number {
        /// What it is.
        what: &'static str,
        /// What it says.
        value: f64,
    },
    /// Factors for another number of gaps.
    #[error("the forecast has {found} factors, and the step {expected} gaps")]
    Factors {
        /// How many it has.
        found: usize,
        /// How many there are.
        expected: usize,
    },
    /// Positions that do not rise, or lie outside the step.
    #[error("the forecast has a price at position {0}, which is out of order or beyond the step")]
    Position(u32),
}

impl Forecast {
    /// The setting that is best on the average, without a search.
    #[must_use]
    pub fn plain(step: &StepFuture, budget: u64) -> Self {
        Self::by(Clock::default(), step, budget)
    }

    /// The default setting on another clock.
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

    /// Makes it ready for the step that it was made for.
    ///
    /// # Errors
    /// If that is another one, or a number makes no sense: it may come from a file.
    pub fn foresight(&self, step: &Arc<StepFuture>) -> Result<Foresight, ForecastError> {
        let expected = step.key();
        if self.step != expected {
            return Err(ForecastError::Foreign { found: self.step, expected });
        }
        self.check(step)?;
        Ok(self.for_step(Arc::clone(step)))
    }

    /// The same without a look at it.
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
    /// When each position of the step comes, and its end. Rises from one to the next. Empty where nothing is measured.
    fn over(&self, step: &StepFuture, budget: u64) -> Vec<f64> {
        let time = step.time();
        let all = time.last().copied().unwrap_or(0.0);
        let mut clock = Vec::with_capacity(time.len());
        match self {
            Self::Age | Self::Dtr | Self::DtrEq => {}
            Self::Time { slack } => {
                // No two positions are at the same time.
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

/// Roots of scores are comparable as long as their exponent is not less.
const LEAST_TIME: f64 = 0.1;

/// A step that is known, and how that counts: what an evictor goes by while the step runs.
#[derive(Clone, Debug)]
pub struct Foresight {
    step: Arc<StepFuture>,
    /// When each position comes, and the end: one more than there are positions. Empty where nobody goes by it.
    clock: Vec<f64>,
    /// The formula of a policy that decides in place of all this.
    formula: Option<Formula>,
    /// Whether what the step holds does not fit.
    is_short: bool,
    setting: Setting,
    /// Of each gap; empty for 1.
    factors: Vec<f32>,
    min_evict_bytes: Option<u64>,
}

impl Foresight {
    /// By the setting that is best on the average, in so many bytes.
    #[must_use]
    pub fn plain(step: Arc<StepFuture>, budget: u64) -> Self {
        Forecast::plain(&step, budget).for_step(step)
    }

    /// The step.
    #[must_use]
    pub const fn step(&self) -> &Arc<StepFuture> {
        &self.step
    }

    /// Whether the step has to evict something in its budget.
    #[must_use]
    pub const fn is_short(&self) -> bool {
        self.is_short
    }

    /// The policy that decides, if it says that one is to that knows nothing of the step.
    pub(super) const fn formula(&self) -> Option<Formula> {
        self.formula
    }

    /// Smaller storages go only where nothing else is left; `None`: it does not say.
    pub(crate) const fn min_evict_bytes(&self) -> Option<u64> {
        self.min_evict_bytes
    }

    pub(super) const fn setting(&self) -> Setting {
        self.setting
    }

    /// The factor of a value at a position.
    #[inline]
    pub(super) fn factor(&self, ordinal: u32, at: u32) -> f64 {
        match self.factors.get(self.step.gap(ordinal, at)) {
            Some(&factor) => factor.into(),
            None => 1.0,
        }
    }

    /// Whether any factor is not 1.
    #[inline]
    pub(super) const fn has_factors(&self) -> bool {
        !self.factors.is_empty()
    }

    /// When a position comes on the clock. One beyond the step is at its end.
    #[inline]
    pub(super) fn time(&self, position: u32) -> f64 {
        self.clock[(position as usize).min(self.clock.len() - 1)]
    }

    /// When what is used at a position is due, as scores see it. What is [`NEVER`] used is due at the end.
    #[inline]
    pub(super) fn due(&self, position: u32) -> f64 {
        self.time(if self.setting.time < LEAST_TIME { NEVER } else { position })
    }

    /// What, divided by a distance, orders candidates as `score` does that is divided by its power: the same root of it.
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

    /// The score of a rank.
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
