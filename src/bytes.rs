//! Sizes in bytes, as numbers and as text.

use std::fmt;
use std::str::FromStr;

/// A number of bytes that reads and prints like `1.5GiB`.
///
/// Text is a number and a unit: `B`, `KB`, `MB`, `GB`, `TB` (powers of 1000), `KiB`, `MiB`, `GiB`,
/// `TiB` (powers of 1024), in any case, or no unit for bytes.
///
/// ```
/// use remat::ByteSize;
/// assert_eq!("1.5GiB".parse(), Ok(ByteSize(1_610_612_736)));
/// assert_eq!("64 mb".parse(), Ok(ByteSize(64_000_000)));
/// assert_eq!(ByteSize(1_610_612_736).to_string(), "1.50 GiB");
/// assert!("-1GiB".parse::<ByteSize>().is_err());
/// assert!("NaN".parse::<ByteSize>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

/// Text that is not a size in bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a size in bytes; write for example 64MiB, 1.5GiB or 1073741824")]
pub struct ParseByteSizeError(String);

const UNITS: [(&str, u64); 10] = [
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kb", 1000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("b", 1),
    ("", 1),
];

impl FromStr for ByteSize {
    type Err = ParseByteSizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseByteSizeError(text.to_owned());
        let trimmed = text.trim();
        let split = trimmed.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(split);
        let unit = unit.to_ascii_lowercase();
        let (_, scale) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(error)?;
        if let Ok(whole) = number.trim().parse::<u64>() {
            return whole.checked_mul(*scale).map(Self).ok_or_else(error);
        }
        let value = number.trim().parse::<f64>().map_err(|_| error())? * *scale as f64;
        Self::try_from(value).map_err(|_| error())
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

/// Sizes come as any number; a negative one, NaN or infinity is an error.
macro_rules! from_number {
    ($($number:ty),*) => {$(
        impl TryFrom<$number> for ByteSize {
            type Error = ParseByteSizeError;
            fn try_from(bytes: $number) -> Result<Self, Self::Error> {
                u64::try_from(bytes).map(Self).map_err(|_| ParseByteSizeError(bytes.to_string()))
            }
        }
    )*};
}
from_number!(i32, i64, u32, u64, usize);

impl TryFrom<f64> for ByteSize {
    type Error = ParseByteSizeError;
    fn try_from(bytes: f64) -> Result<Self, Self::Error> {
        // The range check is false for NaN, too.
        if (0.0..u64::MAX as f64).contains(&bytes) {
            Ok(Self(bytes as u64))
        } else {
            Err(ParseByteSizeError(bytes.to_string()))
        }
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0;
        for (unit, scale) in
            [("TiB", 1u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)]
        {
            if bytes >= scale {
                return write!(f, "{:.2} {unit}", bytes as f64 / scale as f64);
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
            ("0.5b", 0),
            ("1TiB", 1 << 40),
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
        ] {
            let error = text.parse::<ByteSize>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")), "{error}");
        }
    }
}
