//! Numbers in sentences.

use indicatif::HumanCount;
use std::fmt;

/// Prints as `1 step` or `1,437 steps`.
pub struct Counted(pub u64, pub &'static str);

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(number, noun) = *self;
        let plural = if number == 1 { "" } else { "s" };
        write!(f, "{} {noun}{plural}", HumanCount(number))
    }
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
}
