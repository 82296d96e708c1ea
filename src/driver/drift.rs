//! Whether a forecast holds: what turns recompute, against what was simulated.
//!
//! Costs that are measured change with what else the machine does, and memory has holes that a simulation may not have. Where
//! turns recompute much more than was foreseen, some are run without the forecast: what recomputes less goes on.

/// A turn may recompute so many times what is expected, and so much of its work besides.
const MOST: (f64, f64) = (1.2, 0.01);

/// So many turns in a row say that it was no accident, such as that the one before was run otherwise.
const TURNS: u32 = 2;

/// How the turns of a step that has a forecast go.
#[derive(Debug, Default)]
pub(super) struct Drift {
    /// What turns recompute by the forecast, where they were tried without; else it is what was simulated.
    expected: Option<f64>,
    /// They are tried without it: what they recomputed with it.
    tried: Option<f64>,
    /// Turns since it looks so.
    turns: u32,
}

/// How the next turn is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// As this one.
    Same,
    /// Without the forecast for a while, or with it again.
    Changed,
    /// Without it for good.
    Dropped,
}

impl Drift {
    /// Whether turns are run without the forecast, to see what that gives.
    pub const fn is_tried(&self) -> bool {
        self.tried.is_some()
    }

    /// A turn recomputed this share of its work, where so much was simulated.
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

    /// What it says of turns that recompute so much, where .1 was simulated.
    fn told(turns: &[f64]) -> Vec<Next> {
        let mut drift = Drift::default();
        turns.iter().map(|&real| drift.turned(real, 0.1)).collect()
    }

    #[test]
    fn accidents_do_not_count() {
        assert_eq!(told(&[0.1, 0.3, 0.12, 0.3, 0.05]), [Same; 5]);
    }

    #[test]
    fn what_recomputes_less_goes_on() {
        // Better without.
        assert_eq!(told(&[0.1, 0.3, 0.3, 0.4, 0.2]), [Same, Same, Changed, Same, Dropped]);
        // Better with, and expected from then on; until it is worse than that.
        let turns = [0.2, 0.2, 0.3, 0.25, 0.2, 0.2, 0.4, 0.4];
        assert_eq!(told(&turns), [Same, Changed, Same, Changed, Same, Same, Same, Changed]);
    }
}
