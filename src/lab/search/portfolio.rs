//! Forecasts to begin with: settings of which each is best somewhere.

use crate::evict::{Clock, Forecast, Setting};
use crate::graph::StepFuture;

/// Shares of the budget that prices are found for: in a smaller one memory is short for longer.
const SHARES: [f64; 3] = [1.0, 0.95, 0.88];

/// As many of those that passed are kept to climb from.
const KEPT: usize = 3;

/// All of them, the setting that is best on the average first, and then what does without any knowledge, so that
/// knowledge does no harm.
pub(super) fn forecasts(
    step: &StepFuture,
    budget: u64,
    prices: impl Fn(u64) -> Vec<(u32, f64)>,
) -> Vec<Forecast> {
    let plain = Forecast::plain(step, budget);
    let by_age = Forecast { clock: Clock::Age, ..plain.clone() };
    let mut forecasts = vec![plain.clone(), by_age];
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
    for share in SHARES {
        let prices = prices((budget as f64 * share) as u64);
        if prices.is_empty() {
            continue;
        }
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

/// Keeps the best of those that passed, best first. Where age counts, there is nothing to change.
pub(super) fn keep(kept: &mut Vec<Forecast>, tried: &Forecast) {
    let Some(excess) = tried.excess.filter(|_| tried.clock != Clock::Age) else { return };
    let at = kept.partition_point(|other| other.excess.is_some_and(|other| other <= excess));
    kept.insert(at, tried.clone());
    kept.truncate(KEPT);
}
