//! Budgets as text: a percentage of the full budget, a size, or the free memory.

use remat_memory::ByteSize;
use std::fmt;
use std::str::FromStr;

/// Error of a text that is not a budget. The message gives examples.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseBudgetError(String);

impl From<ParseBudgetError> for String {
    fn from(ParseBudgetError(message): ParseBudgetError) -> Self {
        message
    }
}

/// A size in bytes, or a percentage of the smallest budget that evicts nothing.
///
/// ```
/// use remat::tune::Share;
///
/// assert_eq!("40%".parse(), Ok(Share::Percent(40.0)));
/// assert_eq!("64MiB".parse(), Ok(Share::Bytes(64 << 20)));
/// assert!("40".parse::<Share>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Share {
    /// A percentage, such as `40%`.
    Percent(f64),
    /// A size in bytes, such as `64MiB`.
    Bytes(u64),
}

impl Share {
    /// Converts to bytes; `full` is 100 %.
    ///
    /// ```
    /// use remat::tune::Share;
    ///
    /// assert_eq!(Share::Percent(25.0).of(1000), 250);
    /// assert_eq!(Share::Bytes(64).of(1000), 64);
    /// ```
    #[must_use]
    pub fn of(self, full: u64) -> u64 {
        match self {
            Self::Percent(percent) => (full as f64 * (percent / 100.0)) as u64,
            Self::Bytes(bytes) => bytes,
        }
    }
}

impl FromStr for Share {
    type Err = ParseBudgetError;

    fn from_str(text: &str) -> Result<Self, ParseBudgetError> {
        const WRITE: &str = "write for example 40% or 64MiB";
        const UNITS: &str = "B, K, M, G, T, KiB, MiB, GiB, TiB, KB, MB, GB or TB";
        let wrong = |message| Err(ParseBudgetError(message));
        if let Some(percent) = meant_percent(text) {
            return wrong(format!(
                "without a unit, this is {} B; did you mean {percent}%?",
                text.trim()
            ));
        }
        let Some(percent) = text.trim().strip_suffix('%') else {
            return match text.parse::<ByteSize>() {
                Ok(ByteSize(0)) => wrong(format!("0 bytes hold no tensor; {WRITE}")),
                Ok(ByteSize(bytes)) => Ok(Self::Bytes(bytes)),
                Err(_) => wrong(format!(
                    "neither a percentage nor a size in bytes ({UNITS}, at most 16777215TiB); {WRITE}"
                )),
            };
        };
        match percent.trim().parse::<f64>() {
            // A larger percentage is probably a typing mistake. The comparison is false for NaN,
            // too.
            Ok(percent) if percent > 0.0 && percent <= 1e6 => Ok(Self::Percent(percent)),
            _ => wrong(format!("a percentage must be above 0 and at most 1000000; {WRITE}")),
        }
    }
}

/// Guesses the percentage that a small number without a unit means, because such a number is hardly
/// a size in bytes.
fn meant_percent(text: &str) -> Option<f64> {
    match text.trim().parse::<f64>().ok()? {
        part if part > 0.0 && part < 1.0 => Some((part * 1e9).round() / 1e7),
        percent if (1.0..=100.0).contains(&percent) => Some(percent),
        _ => None,
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Percent(percent) => write!(f, "{percent}%"),
            Self::Bytes(bytes) => ByteSize(*bytes).fmt(f),
        }
    }
}

/// The memory that a run may use.
///
/// ```
/// use remat::tune::{Budget, Share};
///
/// assert_eq!("auto".parse(), Ok(Budget::Auto));
/// assert_eq!(" 40%".parse(), Ok(Budget::Share(Share::Percent(40.0))));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Budget {
    /// The free memory of the device, written `auto`.
    Auto,
    /// A size, or a percentage of the full budget.
    Share(Share),
}

impl FromStr for Budget {
    type Err = ParseBudgetError;

    fn from_str(text: &str) -> Result<Self, ParseBudgetError> {
        match text.trim() {
            "auto" => Ok(Self::Auto),
            _ => text.parse().map(Self::Share).map_err(|ParseBudgetError(error)| {
                ParseBudgetError(match error.ends_with('?') {
                    true => error,
                    false => format!("{error}, or auto"),
                })
            }),
        }
    }
}

/// Conversions of a type from text and from bytes, for the arguments of a [`Tuner`](super::Tuner).
macro_rules! given {
    ($type:ty, $of_bytes:expr) => {
        impl TryFrom<&str> for $type {
            type Error = ParseBudgetError;
            fn try_from(text: &str) -> Result<Self, ParseBudgetError> {
                text.parse()
            }
        }

        impl TryFrom<String> for $type {
            type Error = ParseBudgetError;
            fn try_from(text: String) -> Result<Self, ParseBudgetError> {
                text.parse()
            }
        }

        impl From<u64> for $type {
            fn from(bytes: u64) -> Self {
                $of_bytes(bytes)
            }
        }
    };
}
given!(Share, Self::Bytes);
given!(Budget, |bytes| Self::Share(Share::Bytes(bytes)));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_full_budget_or_in_bytes() {
        for (text, bytes) in
            [("40%", 400), ("100%", 1000), (" 101 % ", 1010), ("64KiB", 65536), ("107", 107)]
        {
            assert_eq!(text.parse::<Share>().unwrap().of(1000), bytes, "{text}");
        }
        for text in ["", "%", "NaN", "NaN%", "inf%", "-5%", "0%", "0", "-1", "1e30GiB", "1e9%"] {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_bare_number_is_asked_about() {
        for (text, percent) in [("40", "40%"), (" 7 ", "7%"), ("0.4", "40%"), ("0.125", "12.5%")] {
            let error = text.parse::<Share>().unwrap_err().to_string();
            assert!(error.ends_with(&format!("did you mean {percent}?")), "{text}: {error}");
        }
        assert!("40B".parse::<Share>().is_ok(), "whoever writes the unit means it");
        assert!("40".parse::<Budget>().unwrap_err().to_string().ends_with("did you mean 40%?"));
    }

    #[test]
    fn a_budget_is_a_share_or_auto() {
        assert_eq!("auto".parse(), Ok(Budget::Auto));
        assert_eq!("40%".parse(), Ok(Budget::Share(Share::Percent(40.0))));
        let error = "automatic".parse::<Budget>().unwrap_err().to_string();
        assert!(error.ends_with("40% or 64MiB, or auto"));
        assert!("auto".parse::<Share>().is_err());
    }
}
