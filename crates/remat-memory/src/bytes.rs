//! Sizes in bytes, as numbers and as text.

use std::fmt;
use std::str::FromStr;

/// Number of bytes, parsed from and printed as text such as `1.5GiB`.
///
/// Text is a number and a unit, in any case. `B` is a byte. `K`, `M`, `G`, `T` and `KiB`, `MiB`,
/// `GiB`, `TiB` are powers of 1024. `KB`, `MB`, `GB`, `TB` are powers of 1000. `docker`, `java`,
/// `systemd` and `ls` also take a single letter as a power of 1024. A number without a unit is in
/// bytes and must be whole.
///
/// ```
/// use remat_memory::ByteSize;
/// assert_eq!("1.5GiB".parse(), Ok(ByteSize(1_610_612_736)));
/// assert_eq!("1.5G".parse(), Ok(ByteSize(1_610_612_736)));
/// assert_eq!("64 mb".parse(), Ok(ByteSize(64_000_000)));
/// assert_eq!(ByteSize(1_610_612_736).to_string(), "1.50 GiB");
/// assert!("-1GiB".parse::<ByteSize>().is_err());
/// assert!("1.5".parse::<ByteSize>().is_err());
/// assert!(ByteSize::try_from(0.4).is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

/// Error: the text or number is not a size in bytes.
///
/// ```
/// let error = "64 pages".parse::<remat_memory::ByteSize>().unwrap_err();
/// assert!(error.to_string().starts_with("`64 pages` is not a size in bytes"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is {problem}")]
pub struct ParseByteSizeError {
    given: String,
    problem: Problem,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Problem {
    #[error(
        "not a size in bytes; write a number and a unit, such as 64MiB or 1.5G: B, K (or KiB), M (MiB), \
         G (GiB) and T (TiB) are powers of 1024, KB, MB, GB and TB powers of 1000"
    )]
    NotASize,
    #[error("not a whole number of bytes; write for example 64MiB, 1.5G or 1073741824")]
    Fraction,
}

impl ParseByteSizeError {
    fn new(given: impl fmt::Display, problem: Problem) -> Self {
        Self { given: given.to_string(), problem }
    }
}

const UNITS: [(&str, u64); 14] = [
    ("", 1),
    ("b", 1),
    ("k", 1 << 10),
    ("m", 1 << 20),
    ("g", 1 << 30),
    ("t", 1 << 40),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kb", 1000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
];

impl FromStr for ByteSize {
    type Err = ParseByteSizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = |problem| ParseByteSizeError::new(text, problem);
        let trimmed = text.trim();
        let split = trimmed.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(split);
        let (number, unit) = (number.trim(), unit.to_ascii_lowercase());
        let (_, scale) =
            UNITS.iter().find(|(name, _)| *name == unit).ok_or(error(Problem::NotASize))?;
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(*scale).map(Self).ok_or(error(Problem::NotASize));
        }
        let value = number.parse::<f64>().map_err(|_| error(Problem::NotASize))?;
        let bytes = value * *scale as f64;
        // Fractions of a larger unit are rounded down to whole bytes: 1.3 GiB is not a whole number
        // of bytes.
        let bytes = if *scale > 1 && bytes >= 1.0 { bytes.floor() } else { bytes };
        Self::try_from(bytes).map_err(|ParseByteSizeError { problem, .. }| error(problem))
    }
}

impl TryFrom<&str> for ByteSize {
    type Error = ParseByteSizeError;
    fn try_from(text: &str) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl TryFrom<String> for ByteSize {
    type Error = ParseByteSizeError;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

/// Converts any whole number from 0 up.
macro_rules! from_number {
    ($($number:ty),*) => {$(
        impl TryFrom<$number> for ByteSize {
            type Error = ParseByteSizeError;
            fn try_from(bytes: $number) -> Result<Self, Self::Error> {
                u64::try_from(bytes)
                    .map(Self)
                    .map_err(|_| ParseByteSizeError::new(bytes, Problem::NotASize))
            }
        }
    )*};
}
from_number!(i32, i64, u32, u64, usize);

impl TryFrom<f64> for ByteSize {
    type Error = ParseByteSizeError;
    /// Refuses fractions of a byte: a number such as 0.4 is probably a mistake.
    fn try_from(bytes: f64) -> Result<Self, Self::Error> {
        // The range check is false for NaN, too.
        if !(0.0..u64::MAX as f64).contains(&bytes) {
            Err(ParseByteSizeError::new(bytes, Problem::NotASize))
        } else if bytes.fract() != 0.0 {
            Err(ParseByteSizeError::new(bytes, Problem::Fraction))
        } else {
            Ok(Self(bytes as u64))
        }
    }
}

impl ByteSize {
    /// Formats two sizes with enough digits to show their difference.
    ///
    /// ```
    /// use remat_memory::ByteSize;
    /// assert_eq!(ByteSize::apart(4 << 20, 5 << 20), ["4.00 MiB", "5.00 MiB"]);
    /// assert_eq!(ByteSize::apart(4 << 20, (4 << 20) + 64), ["4.0000 MiB", "4.0001 MiB"]);
    /// ```
    #[must_use]
    pub fn apart(a: u64, b: u64) -> [String; 2] {
        let sizes = [a, b].map(Self);
        let with = |digits| sizes.map(|size| format!("{size:.digits$}"));
        // 13 digits suffice, because a TiB has 13 digits in bytes.
        let differ = |sizes: &[String; 2]| a == b || sizes[0] != sizes[1];
        (2..=13).map(with).find(differ).unwrap_or_else(|| with(2))
    }
}

/// Prints two digits behind the point, or as many as the precision of the format.
impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0;
        for (unit, scale) in
            [("TiB", 1u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)]
        {
            if bytes >= scale {
                let digits = f.precision().unwrap_or(2);
                return write!(f, "{:.digits$} {unit}", bytes as f64 / scale as f64);
            }
        }
        write!(f, "{bytes} B")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_back() {
        for (text, bytes) in [
            ("0", 0),
            ("17", 17),
            ("2KB", 2000),
            ("2kib", 2048),
            (" 1.5 MiB ", 3 << 19),
            ("10G", 10 << 30),
            ("10m", 10 << 20),
            ("1.5K", 1536),
            ("2T", 2 << 40),
            ("1TiB", 1 << 40),
            ("0.3GiB", 322_122_547),
            ("1024.0", 1024),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        for text in [
            "",
            "GiB",
            "-3",
            "-3MB",
            "1.2.3GB",
            "3XB",
            "NaN",
            "inf",
            "1e30",
            "99999999999999999999",
            "40%",
            "10Gi",
            "10 G B",
            "5P",
        ] {
            let error = text.parse::<ByteSize>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")), "{error}");
            assert!(error.contains("K (or KiB)") && error.contains("GB and TB"), "{error}");
        }
    }

    #[test]
    fn a_fraction_of_a_byte_is_an_error() {
        for text in ["1.5", "0.5b", "0.4", "1023.999", "0.0001K"] {
            let error = text.parse::<ByteSize>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{text}` is not a whole number")), "{error}");
            assert!(error.contains("64MiB"), "{error}");
        }
        for bytes in [0.4, 1.5, 1e-300, 1e15 + 0.5] {
            let error = ByteSize::try_from(bytes).unwrap_err().to_string();
            assert!(error.contains("not a whole number of bytes"), "{error}");
        }
        for bytes in [-1.0, f64::NAN, f64::INFINITY, 1e30] {
            assert!(ByteSize::try_from(bytes).is_err());
        }
        assert_eq!(ByteSize::try_from(3e9), Ok(ByteSize(3_000_000_000)));
    }
}
