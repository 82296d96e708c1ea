//! Comparison of a forecast with reality: what turns recompute against what was simulated.
//!
//! Measured costs change with the load of the machine, and memory may have holes that the
//! simulation lacks. If turns recompute much more than was forecast, some turns run without the
//! forecast. The better way is kept.

/// Tolerance for a turn's recomputation: a factor on the expected share, and a share of its work on
/// top.
const MOST: (f64, f64) = (1.2, 0.01);

/// Number of turns in a row that make a verdict. A single turn may be an accident, for example
/// after a turn that ran the other way.
const TURNS: u32 = 2;

/// State of the comparison for one step with a forecast.
#[derive(Debug, Default)]
pub(super) struct Drift {
    /// Share recomputed with the forecast when a trial without it was no better. `None`: the
    /// simulated share is expected.
    expected: Option<f64>,
    /// Share recomputed with the forecast before the trial; `Some` while turns run without the
    /// forecast.
    tried: Option<f64>,
    /// Number of turns counted towards the next verdict.
    turns: u32,
}

/// How the next turn runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Like the current turn.
    Same,
    /// Changed: without the forecast for a trial, or with it again.
    Changed,
    /// Without the forecast for good.
    Dropped,
}

impl Drift {
    /// Whether turns run without the forecast, as a trial.
    pub const fn is_tried(&self) -> bool {
        self.tried.is_some()
    }

    /// Notes the share of its work that a turn recomputed, and the simulated share.
    pub fn turned(&mut self, real: f64, simulated: f64) -> Next {
        let limit = MOST.0 * self.expected.unwrap_or(simulated) + MOST.1;
        if self.tried.is_none() && real <= limit {
            self.turns = 0;
            return Next::Same;
        }
        self.turns += 1;
        if self.turns < TURNS {
            return Next::Same;
        }
        self.turns = 0;
        match self.tried.take() {
            None => {
                self.tried = Some(real);
                Next::Changed
            }
            Some(with) if real < with => Next::Dropped,
            Some(with) => {
                self.expected = Some(with);
                Next::Changed
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Next::{Changed, Dropped, Same};
    use super::*;

    /// Answers for turns with the given shares, where .1 was simulated.
    fn told(turns: &[f64]) -> Vec<Next> {
        let mut drift = Drift::default();
        turns.iter().map(|&real| drift.turned(real, 0.1)).collect()
    }

    #[test]
    fn accidents_do_not_count() {
        assert_eq!(told(&[0.1, 0.3, 0.12, 0.3, 0.05]), [Same; 5]);
    }

    #[test]
    fn a_forecast_is_kept_while_it_recomputes_less() {
        // Turns without the forecast are better.
        assert_eq!(told(&[0.1, 0.3, 0.3, 0.4, 0.2]), [Same, Same, Changed, Same, Dropped]);
        // Turns with the forecast are better. Their share is expected afterwards, until turns are
        // worse than that.
        let turns = [0.2, 0.2, 0.3, 0.25, 0.2, 0.2, 0.4, 0.4];
        assert_eq!(told(&turns), [Same, Changed, Same, Changed, Same, Same, Same, Changed]);
    }
}
