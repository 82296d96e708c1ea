//! Numbers as text, for messages.

use indicatif::HumanCount;
use std::fmt;

/// Count and noun: prints as `1 step` or `1,437 steps`.
pub struct Counted(pub u64, pub &'static str);

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(number, noun) = *self;
        let plural = if number == 1 { "" } else { "s" };
        write!(f, "{} {noun}{plural}", HumanCount(number))
    }
}

/// Number of ranks of a run: prints as ` on 4 ranks`, or as nothing for one rank.
pub struct OnRanks(pub usize);

impl fmt::Display for OnRanks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 > 1 { write!(f, " on {} ranks", self.0) } else { Ok(()) }
    }
}

/// Duration in seconds: prints as `1.2 ms`, `3.45 s` or `12 min 3 s`.
pub struct Seconds(pub f64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            s if s < 1.0 => write!(f, "{:.1} ms", s * 1e3),
            s if s < 120.0 => write!(f, "{s:.2} s"),
            s => {
                let seconds = s.round() as u64;
                write!(f, "{} min {} s", seconds / 60, seconds % 60)
            }
        }
    }
}

/// Text of a share with at most one decimal: `40 %`, `12.8 %`.
pub fn percent(ratio: f64) -> String {
    format!("{} %", (ratio * 1e3).round() / 10.0)
}

/// Text of a lower bound in percent. The bound is rounded down, so that it stays a lower bound:
/// 0.1279 gives 12.7.
pub fn at_least(share: f64) -> String {
    format!("{:.1}", rounded_down(100.0 * share, 1))
}

/// Rounds a number down to a number of decimals.
pub fn rounded_down(number: f64, decimals: i32) -> f64 {
    let scale = 10f64.powi(decimals);
    (number * scale).floor() / scale
}

/// Rounds a number to a number of decimals.
pub fn rounded(number: f64, decimals: i32) -> f64 {
    let scale = 10f64.powi(decimals);
    (number * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_no_plural() {
        for (number, text) in [(0, "0 steps"), (1, "1 step"), (2, "2 steps"), (1437, "1,437 steps")]
        {
            assert_eq!(Counted(number, "step").to_string(), text);
        }
    }

    #[test]
    fn seconds_have_the_unit_that_suits_them() {
        for (seconds, text) in
            [(0.0012, "1.2 ms"), (3.451, "3.45 s"), (119.0, "119.00 s"), (723.4, "12 min 3 s")]
        {
            assert_eq!(Seconds(seconds).to_string(), text);
        }
    }

    #[test]
    fn a_bound_is_never_rounded_up() {
        assert_eq!(at_least(0.1279), "12.7");
        assert_eq!(at_least(0.0), "0.0");
        assert_eq!(at_least(1.9999), "199.9");
        assert_eq!(rounded_down(1.0004, 3), 1.0);
    }
}
