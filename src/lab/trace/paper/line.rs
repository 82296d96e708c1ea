//! One line of a log, with the fields of all instructions. Texts are borrowed from the line if
//! possible.

use serde::de::{self, Deserialize, Deserializer, Unexpected};
use std::borrow::Cow;
use std::fmt;

#[derive(serde::Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) struct Line<'a> {
    #[serde(borrow)]
    pub instruction: Text<'a>,
    #[serde(borrow)]
    pub name: Option<Text<'a>>,
    /// Number of bytes.
    pub memory: Option<Count>,
    /// Time in nanoseconds.
    pub time: Option<Count>,
    pub alias: Option<Alias>,
    #[serde(borrow)]
    pub args: Option<Vec<Text<'a>>>,
    #[serde(borrow)]
    pub result: Option<Vec<Text<'a>>>,
    /// Positions of the changed arguments.
    pub mutate: Option<Vec<Count>>,
    #[serde(borrow)]
    pub dst: Option<Text<'a>>,
    #[serde(borrow)]
    pub src: Option<Text<'a>>,
    #[serde(borrow)]
    pub annotation: Option<Text<'a>>,
}

/// A text that is copied only if it contains escapes. (Without this type, serde would copy every
/// text within an `Option`.)
#[derive(serde::Deserialize)]
#[serde(transparent)]
pub(super) struct Text<'a>(#[serde(borrow)] pub Cow<'a, str>);

/// A whole number from 0 up, in quotes in the logs.
#[derive(Clone, Copy)]
pub(super) struct Count(pub u64);

/// Position of the argument that a result is a view of. `None`, -1 in the log, if the result has
/// its own storage.
#[derive(Clone, Copy)]
pub(super) struct Alias(pub Option<u64>);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = deserializer.deserialize_any(Whole { negative_one: false })?;
        Ok(Self(value.expect("-1 was not allowed")))
    }
}

impl<'de> Deserialize<'de> for Alias {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Whole { negative_one: true }).map(Self)
    }
}

/// Visitor that reads a whole number, with or without quotes. Reads -1 as `None` if `negative_one`
/// is set.
struct Whole {
    negative_one: bool,
}

impl de::Visitor<'_> for Whole {
    type Value = Option<u64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = if self.negative_one { -1 } else { 0 };
        write!(f, "a whole number from {from} to {}", u64::MAX)
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Self::Value, E> {
        Ok(Some(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Self::Value, E> {
        match u64::try_from(value) {
            Ok(value) => Ok(Some(value)),
            Err(_) if value == -1 && self.negative_one => Ok(None),
            Err(_) => Err(E::invalid_value(Unexpected::Signed(value), &self)),
        }
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        match text.parse() {
            Ok(value) => Ok(Some(value)),
            Err(_) if text == "-1" && self.negative_one => Ok(None),
            Err(_) => Err(E::invalid_value(Unexpected::Str(text), &self)),
        }
    }
}
