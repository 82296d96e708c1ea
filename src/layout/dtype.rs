use std::fmt;
use std::str::FromStr;

/// Element type of a tensor. The type prints as its lower-case name, such as `f32` or `bf16`, and
/// can be parsed from this name.
///
/// ```
/// use remat::DType;
/// assert_eq!("bf16".parse(), Ok(DType::BF16));
/// assert_eq!(DType::BF16.to_string(), "bf16");
/// assert_eq!(DType::BF16.bytes(), 2);
/// assert!("float".parse::<DType>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum DType {
    /// 64-bit IEEE float.
    F64,
    /// 32-bit IEEE float: the type of most values and gradients of the crate's ops.
    F32,
    /// 16-bit IEEE float: 5 bits of exponent, 10 of fraction.
    F16,
    /// 16-bit "brain" float: the upper half of an [`F32`](Self::F32).
    BF16,
    /// 64-bit signed integer.
    I64,
    /// 32-bit signed integer: the type of labels and indices in the crate's ops.
    I32,
    /// 32-bit unsigned integer.
    U32,
    /// 8-bit unsigned integer. [`Layout::raw`](super::Layout::raw) describes a tensor only by its
    /// number of bytes, as elements of type `u8`.
    U8,
    /// A byte that is 0 (false) or 1 (true).
    Bool,
}

impl DType {
    /// All element types.
    pub const ALL: [Self; 9] = [
        Self::F64,
        Self::F32,
        Self::F16,
        Self::BF16,
        Self::I64,
        Self::I32,
        Self::U32,
        Self::U8,
        Self::Bool,
    ];

    /// Size of one element in bytes.
    ///
    /// ```
    /// use remat::DType;
    ///
    /// assert_eq!([DType::F64, DType::F32, DType::Bool].map(DType::bytes), [8, 4, 1]);
    /// ```
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::F64 | Self::I64 => 8,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::U8 | Self::Bool => 1,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::F64 => "f64",
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::I64 => "i64",
            Self::I32 => "i32",
            Self::U32 => "u32",
            Self::U8 => "u8",
            Self::Bool => "bool",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Text that is not the name of an element type.
///
/// ```
/// let error = "float".parse::<remat::DType>().unwrap_err();
/// assert!(error.to_string().starts_with("`float` is not an element type"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is not an element type, expected one of {}", names())]
pub struct ParseDTypeError {
    given: String,
}

fn names() -> String {
    DType::ALL.map(DType::name).join(", ")
}

impl FromStr for DType {
    type Err = ParseDTypeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = Self::ALL.into_iter().find(|dtype| dtype.name() == text);
        named.ok_or_else(|| ParseDTypeError { given: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_name_is_read_as_it_is_printed() {
        for dtype in DType::ALL {
            assert_eq!(dtype.to_string().parse(), Ok(dtype));
            // The digits in the name of a type are the number of bits of an element.
            let bits = dtype.name().trim_start_matches(char::is_alphabetic).parse();
            assert_eq!(bits.unwrap_or(8), 8 * dtype.bytes(), "{dtype}");
        }
        assert_eq!(BTreeSet::from(DType::ALL).len(), DType::ALL.len(), "each once");
        assert_eq!(format!("{:>5}|{:<5}|", DType::F32, DType::Bool), "  f32|bool |");
    }

    #[test]
    fn other_names_are_refused_with_those_there_are() {
        for text in ["", "F32", " f32", "f32 ", "float", "f8", "int32", "boolean"] {
            let error = text.parse::<DType>().unwrap_err().to_string();
            let names = "f64, f32, f16, bf16, i64, i32, u32, u8, bool";
            let expected = format!("`{text}` is not an element type, expected one of {names}");
            assert_eq!(error, expected);
        }
    }
}
