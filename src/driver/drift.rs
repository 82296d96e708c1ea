//! Comparison of recomputation in real turns with recomputation in the simulated turns of a
//! forecast.
//!
//! Measured costs change with the load of the machine, and memory may have holes that the
//! simulation lacks. If turns recompute much more than was forecast, some turns run without the
//! forecast, as a trial. After the trial, turns run with or without the forecast, whichever
//! recomputed less.

/// Limit on a turn's recomputation as a share of its work: `MOST.0` times the expected share, plus
/// `MOST.1`.
const MOST: (f64, f64) = (1.2, 0.01);

/// Number of consecutive turns that lead to a decision. A single turn may be an exception. For
/// example, the first turn after a change starts with storages that earlier turns left resident.
const TURNS: u32 = 2;

/// State of the comparison for one step with a forecast.
#[derive(Debug, Default)]
pub(super) struct Drift {
    /// Expected share of recomputation in turns with the forecast. `None` stands for the share of
    /// the simulated turns. If a trial without the forecast recomputed no less, the expected share
    /// becomes the share that turns had before the trial.
    expected: Option<f64>,
    /// Share recomputed with the forecast, before the current trial without it. `None` while turns
    /// run with the forecast.
    tried: Option<f64>,
    /// Number of turns counted towards the next decision.
    turns: u32,
}

/// How the next turn runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The next turn runs like the current turn.
    Same,
    /// The next turn begins a trial without the forecast, or ends the trial and uses the forecast
    /// again.
    Changed,
    /// The next turn and all later turns run without the forecast.
    Dropped,
}

impl Drift {
    /// Whether turns currently run without the forecast, as a trial.
    pub const fn is_tried(&self) -> bool {
        self.tried.is_some()
    }

    /// Notes the recomputation of a turn as a share of its work (`real`), and the share of the
    /// simulated turns (`simulated`). Returns how the next turn runs.
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

    /// Answers of [`Drift::turned`] for turns with the given shares. The simulated share is 0.1.
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
        // Turns with the forecast are better. After the trial, the expected share is the share of
        // the turns with the forecast, until turns recompute more than expected.
        let turns = [0.2, 0.2, 0.3, 0.25, 0.2, 0.2, 0.4, 0.4];
        assert_eq!(told(&turns), [Same, Changed, Same, Changed, Same, Same, Same, Changed]);
    }
}
