//! The portfolio: forecasts that a search tries first. Each forecast is the best for some program.

use crate::bound::Absence;
use crate::evict::{Clock, Forecast, Setting};
use crate::step::StepFuture;
use rustc_hash::FxHashMap;

/// Shares of the budget for which prices of memory are computed. In a smaller budget, memory is
/// short for a longer part of the step, so more positions have a price.
const SHARES: [f64; 3] = [1.0, 0.95, 0.88];

/// Divisors of the budget that give values for `min_evict_bytes`, the size of the smallest storage
/// to evict. A smaller storage is evicted only if no larger storage is left to evict.
pub(super) const SMALLEST: [u64; 5] = [u64::MAX, 16384, 4096, 1024, 256];

/// Number of forecasts kept to climb from.
const KEPT: usize = 3;

/// A solution of the relaxed problem of the [bound](crate::bound).
pub(super) struct Solved {
    /// Price of memory at each position.
    pub prices: Vec<(u32, f64)>,
    /// Share of each value that is evicted between two uses. A use is given by its position in the
    /// step.
    pub absences: Vec<Absence>,
}

/// All forecasts of the portfolio. The setting that is best on average comes first. The policies
/// that do not know the step follow, so that the best forecast is no worse than these policies.
pub(super) fn forecasts(
    step: &StepFuture,
    budget: u64,
    solved: impl Fn(u64) -> Option<Solved>,
) -> Vec<Forecast> {
    let plain = Forecast::plain(step, budget);
    let solved: Vec<Solved> =
        SHARES.iter().filter_map(|share| solved((budget as f64 * share) as u64)).collect();
    let mut forecasts = vec![plain.clone()];
    forecasts.extend(Clock::UNKNOWING.map(|clock| Forecast::by(clock, step, budget)));
    forecasts.extend(solved.iter().flat_map(|solved| rounded(step, &plain, solved)));
    let mut add = |clock: Clock, setting: Setting| {
        let forecast = Forecast { clock, setting, ..plain.clone() };
        if forecast != plain {
            forecasts.push(forecast);
        }
    };
    for (live, time) in [(0.3, 0.5), (0.0, 0.25), (1.0, 0.5), (1.0, 1.0), (0.3, 1.0)] {
        for slack in [0.1, 1.0] {
            for shared in [0.2, 1.0] {
                add(Clock::Time { slack }, Setting { live, shared, time });
            }
        }
    }
    for Solved { prices, .. } in solved {
        for slack in [0.3, 0.02] {
            for (live, time) in [(0.3, 1.0), (0.0, 1.0), (0.0, 0.5), (1.0, 1.0)] {
                for shared in [0.2, 1.0] {
                    let clock = Clock::Prices { prices: prices.clone(), slack };
                    add(clock, Setting { live, shared, time });
                }
            }
        }
    }
    forecasts
}

/// Forecasts made by rounding the relaxed solution. A value gets a higher score in gaps in which
/// the solution keeps the value, and a lower score in gaps in which the solution evicts the value.
/// 192 rounding rules were compared at 72 points of 16 traces and recordings. The function uses the
/// set of four rules that recomputes least.
fn rounded(step: &StepFuture, plain: &Forecast, solved: &Solved) -> [Forecast; 4] {
    let time = |slack| Clock::Time { slack };
    let prices = |slack| Clock::Prices { prices: solved.prices.clone(), slack };
    let shares = shares(step, &solved.absences);
    [
        (prices(0.3), 0.0, 0.5, 0.7),
        (time(1.0), 1.0, 1.0, 0.7),
        (time(0.1), 1.0, 0.5, 3.0),
        (prices(0.02), 1.0, 0.5, 0.7),
    ]
    .map(|(clock, live, time, strength)| {
        let factor = |share: &Option<f64>| {
            share.map_or(1.0, |share| (strength * (1.0 - 2.0 * share)).exp() as f32)
        };
        let factors = shares.iter().map(factor).collect();
        Forecast { clock, setting: Setting { live, shared: 0.2, time }, factors, ..plain.clone() }
    })
}

/// Evicted share in each gap of the step; `None` where memory is not short. A gap is identified by
/// its two ends and the bytes of its value. Gaps with the same ends and bytes get the mean of their
/// shares.
fn shares(step: &StepFuture, absences: &[Absence]) -> Vec<Option<f64>> {
    let mut sums: FxHashMap<(u32, u32, u64), (f64, f64)> = FxHashMap::default();
    for &Absence { from, to, bytes, share } in absences {
        let (sum, count) = sums.entry((from, to, bytes)).or_default();
        *sum += share;
        *count += 1.0;
    }
    let mut shares = vec![None; step.gaps()];
    for value in 0..step.values() as u32 {
        for (gap, from, to) in step.gaps_before_uses(value) {
            shares[gap] = sums.get(&(from, to, step.bytes(value))).map(|(sum, count)| sum / count);
        }
    }
    shares
}

/// Forecasts with other values of `min_evict_bytes`. `usual` is the value in the settings.
pub(super) fn of_other_sizes<'a>(
    best: impl Iterator<Item = &'a Forecast>,
    budget: u64,
    usual: Option<u64>,
) -> Vec<Forecast> {
    let usual = usual.unwrap_or(budget / 4096).max(1);
    let sizes = || SMALLEST.iter().map(|share| (budget / share).max(1));
    let mut forecasts: Vec<Forecast> = Vec::new();
    for forecast in best {
        for bytes in sizes().filter(|&bytes| bytes != usual) {
            let plain = Forecast { excess: None, least: None, ..forecast.clone() };
            let other = Forecast { min_evict_bytes: Some(bytes), ..plain };
            if !forecasts.contains(&other) {
                forecasts.push(other);
            }
        }
    }
    forecasts
}

/// Inserts a forecast that passed into the list of the best forecasts, best first. A forecast whose
/// clock leaves the choice to another policy is left out, because climbing could not change its
/// choices.
pub(super) fn keep(kept: &mut Vec<Forecast>, tried: &Forecast) {
    let Some(excess) = tried.excess.filter(|_| tried.clock.formula().is_none()) else { return };
    let at = kept.partition_point(|other| other.excess.is_some_and(|other| other <= excess));
    kept.insert(at, tried.clone());
    kept.truncate(KEPT);
}
