//! Climbing: a few numbers of a forecast are changed at random, and improvements are kept. Most
//! numbers of a forecast are factors. A forecast has a factor for each gap between two uses of a
//! value; the factor multiplies the value's score in the gap.

use super::Search;
use super::guide::Guide;
use super::portfolio;
use crate::driver::Allowance;
use crate::error::Error;
use crate::evict::{Clock, Forecast};
use crate::step::StepFuture;
use remat_rng::SplitMix64;

/// Values smaller than the budget divided by this number have little effect, so climbing leaves
/// their factors unchanged.
const SMALL: u64 = 2048;

/// Number of runs for each of the best forecasts of the portfolio. After the runs for each of the
/// best forecasts, the climb continues only from the best forecast found.
const TRIAL: u64 = 60;

/// State of a climb that starts from several forecasts, one after the other.
#[derive(Debug)]
pub(super) struct Climb {
    /// Forecasts from which the climb has not started yet, the next forecast first.
    starts: Vec<Forecast>,
    /// The current forecast to change, and the gaps in which a run with this forecast recomputed.
    now: Option<(Forecast, Guide)>,
    /// Number of runs left for the current start, the forecast that the climb started from. Runs
    /// from the last start are not limited.
    left: u64,
    /// Gaps whose factors may have an effect. A gap is the part of the step between two uses of a
    /// value.
    open: Vec<u32>,
}

impl Climb {
    /// A climb from the forecasts `starts`, best first.
    pub fn new(starts: Vec<Forecast>, step: &StepFuture, budget: u64) -> Self {
        Self { starts, now: None, left: 0, open: open(step, budget) }
    }

    /// Tries a change. Returns false if nothing can be changed.
    pub fn advance(
        &mut self,
        search: &mut Search,
        allowance: &mut Allowance,
    ) -> Result<bool, Error> {
        if self.open.is_empty() {
            return Ok(false);
        }
        let (now, guide) = match &mut self.now {
            Some(now) if self.left > 0 => now,
            _ => {
                let Some(start) = self.next_start(search) else { return Ok(false) };
                let mut guide = Guide::default();
                let start = search.simulate(start, f64::INFINITY, allowance, Some(&mut guide))?;
                if start.excess.is_none() {
                    self.left = 0;
                    return Ok(!self.starts.is_empty());
                }
                self.now = Some((start, guide));
                return Ok(true);
            }
        };
        self.left -= 1;
        let mut next = now.clone();
        let changes = 1 + search.rng.below(3);
        for _ in 0..changes {
            change(&mut next, guide, &self.open, &mut search.rng, search.replay.budget);
        }
        let excess = now.excess.unwrap_or(f64::INFINITY);
        let tried = search.simulate(next, excess, allowance, None)?;
        if tried.excess.is_some_and(|tried| tried < excess) {
            // One more simulated run finds the gaps in which the new forecast recomputes.
            let again = search.simulate(tried.clone(), f64::INFINITY, allowance, Some(guide))?;
            *now = if again.excess.is_some() { again } else { tried };
        }
        Ok(true)
    }

    fn next_start(&mut self, search: &Search) -> Option<Forecast> {
        let start = match self.starts.is_empty() {
            false => {
                self.left = TRIAL;
                self.starts.remove(0)
            }
            true => {
                self.left = u64::MAX;
                let best = search.best.clone().filter(|best| best.clock.formula().is_none());
                best.or_else(|| self.now.take().map(|(now, _)| now))?
            }
        };
        let factors = match start.factors.is_empty() {
            true => vec![1.0; search.step.gaps()],
            false => start.factors.clone(),
        };
        Some(Forecast { factors, ..start })
    }
}

/// Gaps whose factors may have an effect: gaps of large values, between two uses, during which
/// memory is short.
fn open(step: &StepFuture, budget: u64) -> Vec<u32> {
    let mut short = vec![0u32];
    for &used in step.usage() {
        short.push(short.last().copied().unwrap_or(0) + u32::from(used > budget));
    }
    let mut open = Vec::new();
    for value in (0..step.values() as u32).filter(|&value| step.bytes(value) >= budget / SMALL) {
        for (gap, from, to) in step.gaps_before_uses(value) {
            if to > from + 1 && short[to as usize] > short[from as usize + 1] {
                open.push(gap as u32);
            }
        }
    }
    open
}

/// Changes some numbers of a forecast at random. The probabilities and step sizes are the best that
/// were found with a prototype.
fn change(forecast: &mut Forecast, guide: &Guide, open: &[u32], rng: &mut SplitMix64, budget: u64) {
    let kind = rng.unit();
    let large = |rng: &mut SplitMix64| rng.unit() * 3.0 + 0.3;
    if kind < 0.30
        && let Some(gap) = guide.draw(rng)
    {
        // Makes the eviction of a value that had to be regenerated less likely.
        multiply(&mut forecast.factors[gap], large(rng));
    } else if kind < 0.55 {
        // Makes an eviction less likely in one gap with an eviction, or more likely in one gap
        // without an eviction.
        let gap = open[rng.below(open.len())] as usize;
        let by = large(rng);
        multiply(&mut forecast.factors[gap], if guide.is_evicted(gap) { by } else { -by });
    } else if kind < 0.75 {
        // Changes neighbouring gaps by the same factor.
        let from = rng.below(open.len());
        let count = 2 + rng.below((open.len() / 8).clamp(2, 60));
        let by = rng.normal();
        for &gap in open.iter().skip(from).take(count) {
            multiply(&mut forecast.factors[gap as usize], by);
        }
    } else if kind < 0.88
        && let Clock::Prices { prices, .. } = &mut forecast.clock
    {
        // Changes the prices of memory over a part of the step.
        let from = rng.below(prices.len());
        let count = 1 + rng.below(prices.len().div_ceil(4));
        let by = (rng.normal() * 0.8).exp();
        let mean = prices.iter().map(|(_, price)| price).sum::<f64>() / prices.len() as f64;
        let more = if rng.unit() < 0.3 { mean * rng.unit() } else { 0.0 };
        for (_, price) in prices.iter_mut().skip(from).take(count) {
            *price = (*price * by + more).min(f64::MAX);
        }
    } else if kind < 0.93 {
        // Changes the weights that evicted ancestors have in scores.
        let setting = &mut forecast.setting;
        setting.live = (setting.live + rng.normal() * 0.2).clamp(0.0, 1.5);
        setting.shared = (setting.shared + rng.normal() * 0.2).clamp(0.0, 1.5);
    } else if kind < 0.94 {
        // Chooses another value of `min_evict_bytes`.
        let shares = portfolio::SMALLEST;
        forecast.min_evict_bytes = Some((budget / shares[rng.below(shares.len())]).max(1));
    } else if kind < 0.97 {
        // Changes the exponent of the distance to the next use.
        let time = &mut forecast.setting.time;
        *time = (*time + rng.normal() * 0.15).clamp(0.1, 1.5);
    } else if let Clock::Time { slack } | Clock::Prices { slack, .. } = &mut forecast.clock {
        // Changes the slack: the weight of time in which memory is not short.
        *slack = (*slack * rng.normal().exp()).clamp(1e-3, 1.0);
    }
}

/// Multiplies a factor by `e` to the power of `by`. The result is clamped to 1e-9 to 1e9.
fn multiply(factor: &mut f32, by: f64) {
    *factor = (f64::from(*factor) * by.exp()).clamp(1e-9, 1e9) as f32;
}
