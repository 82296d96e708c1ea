//! Attributes of ops as text: JSON objects.

use super::check::Fault;
use super::definition::Registered;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// Text for an op that has no attributes.
const NONE: &str = "{}";

/// Attributes of `op`. If serde does not write the op as an object (a unit struct or a unit variant
/// of an enum), the op has no attributes besides its name, and the text is [`NONE`].
pub(super) fn text(op: &impl Serialize) -> String {
    let text = serde_json::to_string(op).expect("plain fields");
    if is_object(&text) { text } else { NONE.to_owned() }
}

/// Makes an op from its attributes as text; the op has the name of `like`.
pub(super) fn parse<O: Registered + Clone + Serialize + DeserializeOwned>(
    like: &O,
    attributes: &str,
) -> Result<O, Fault> {
    // Reject a list of values, because serde would accept a list in place of an object.
    if !is_object(attributes) {
        return Err("not a JSON object".to_owned());
    }
    if text(like) == NONE {
        return match serde_json::from_str(attributes) {
            Ok(Nothing {}) => Ok(like.clone()),
            Err(error) => Err(error.to_string()),
        };
    }
    let op: O = serde_json::from_str(attributes).map_err(|error| error.to_string())?;
    if op.name() == like.name() {
        Ok(op)
    } else {
        Err(format!("these are attributes of `{}`", op.name()))
    }
}

fn is_object(text: &str) -> bool {
    text.trim_start().starts_with('{')
}

/// Attributes of an op that has no attributes: a JSON object without fields.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// Text form of an f32 that keeps all bits. Finite numbers are JSON numbers. Infinities and the
/// usual NaN are the strings `"inf"`, `"-inf"` and `"NaN"`. Any other NaN is a string with its
/// bits, such as `"NaN(0xffc00000)"`.
pub mod float {
    use super::*;

    pub fn serialize<S: Serializer>(x: &f32, serializer: S) -> Result<S::Ok, S::Error> {
        if x.is_finite() {
            serializer.serialize_f64(digits(*x))
        } else if x.is_nan() && x.to_bits() != f32::NAN.to_bits() {
            serializer.collect_str(&format_args!("NaN({:#x})", x.to_bits()))
        } else {
            serializer.collect_str(x)
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f32, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let x = match &value {
            Value::Number(x) => x.as_f64().map(|x| x as f32).filter(|x| x.is_finite()),
            Value::String(text) => no_number(text),
            _ => None,
        };
        x.ok_or_else(|| D::Error::custom(format!("{value} is not an f32")))
    }

    /// Text form of an optional f32, which is `null` for `None`.
    pub mod option {
        use super::*;

        #[derive(Serialize, Deserialize)]
        struct Float(#[serde(with = "super")] f32);

        pub fn serialize<S: Serializer>(x: &Option<f32>, serializer: S) -> Result<S::Ok, S::Error> {
            x.map(Float).serialize(serializer)
        }

        pub fn deserialize<'de, D: Deserializer<'de>>(
            deserializer: D,
        ) -> Result<Option<f32>, D::Error> {
            Ok(Some(Float::deserialize(deserializer)?.0))
        }
    }

    /// Returns the f64 with the shortest digits that identify the f32 `x`, such as `0.1` for
    /// `0.1_f32`. A reader parses the digits to an f64, which may be off by a few epsilons, and
    /// rounds the f64 to an f32. Digits near the middle between two f32 may be rounded to the wrong
    /// f32. For such an `x`, the function returns `x` itself as an f64.
    fn digits(x: f32) -> f64 {
        const OFF: f64 = 4.0 * f64::EPSILON;
        let short: f64 = format!("{x:e}").parse().expect("a number");
        let comes_back = [1.0 - OFF, 1.0 + OFF].iter().all(|off| (short * off) as f32 == x);
        if comes_back { short } else { x.into() }
    }

    fn no_number(text: &str) -> Option<f32> {
        match text {
            "inf" => Some(f32::INFINITY),
            "-inf" => Some(f32::NEG_INFINITY),
            "NaN" => Some(f32::NAN),
            _ => {
                let bits = text.strip_prefix("NaN(0x")?.strip_suffix(')')?;
                let x = f32::from_bits(u32::from_str_radix(bits, 16).ok()?);
                x.is_nan().then_some(x)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remat_rng::SplitMix64;

    #[derive(Serialize, Deserialize)]
    struct Float(#[serde(with = "float")] f32);

    fn comes_back(x: f32) -> String {
        let text = serde_json::to_string(&Float(x)).unwrap();
        let Float(again) = serde_json::from_str(&text).unwrap();
        assert_eq!(again.to_bits(), x.to_bits(), "{x:e} as {text}");
        text
    }

    #[test]
    fn floats_are_written_as_people_write_them() {
        for (x, text) in [
            (0.1, "0.1"),
            (1.0, "1.0"),
            (-0.0, "-0.0"),
            (f32::INFINITY, "\"inf\""),
            (f32::NEG_INFINITY, "\"-inf\""),
            (f32::NAN, "\"NaN\""),
            (f32::from_bits(0xffc0_0000), "\"NaN(0xffc00000)\""),
            // A signaling NaN.
            (f32::from_bits(0x7f80_0001), "\"NaN(0x7f800001)\""),
        ] {
            assert_eq!(comes_back(x), text);
        }
        // The smallest and largest numbers, with and without an exponent.
        for (x, digits) in [(1e-5, 1e-5), (f32::MAX, 3.4028235e38), (f32::from_bits(1), 1e-45)] {
            assert_eq!(comes_back(x).parse::<f64>(), Ok(digits));
        }
    }

    #[test]
    fn floats_come_back_to_the_bit() {
        // Read as an f64, the shortest digits of the f32 below lie halfway between two f32.
        let x = f32::from_bits(0x15ae_43fd);
        assert_eq!(x, 7.038531e-26);
        assert_ne!(7.038531e-26_f64 as f32, x);
        assert_eq!(comes_back(x).parse::<f64>(), Ok(x.into()));
        for exponent in 0..=255 {
            for fraction in [0, 1, 2, 0x3f_ffff, 0x40_0000, 0x7f_fffe, 0x7f_ffff] {
                for sign in 0..2 {
                    comes_back(f32::from_bits(sign << 31 | exponent << 23 | fraction));
                }
            }
        }
        let mut numbers = SplitMix64::new(1);
        for _ in 0..1_000_000 {
            comes_back(f32::from_bits(numbers.next() as u32));
        }
    }

    #[test]
    fn floats_are_read_and_other_values_refused() {
        for (text, expected) in [
            ("1", 1.0),
            ("-3", -3.0),
            ("0.10000000149011612", 0.1),
            ("1e-60", 0.0),
            ("18446744073709551615", 18_446_744_073_709_551_615.0),
        ] {
            assert_eq!(serde_json::from_str::<Float>(text).unwrap().0, expected);
        }
        for text in [
            "1e39",
            "-3.5e38",
            "null",
            "true",
            "[1.0]",
            "{}",
            "\"0.5\"",
            "\"\"",
            "\"nan\"",
            "\"+inf\"",
            "\"NaN()\"",
            "\"NaN(0x)\"",
            "\"NaN(0x3f800000)\"",
            "\"NaN(0x17f800001)\"",
            "\"NaN(0xffc00000\"",
        ] {
            let Err(error) = serde_json::from_str::<Float>(text) else { panic!("{text} is read") };
            assert!(error.to_string().contains(" is not an f32"), "{text}: {error}");
        }
        assert!(serde_json::from_str::<Float>("1e400").is_err());
        assert!(serde_json::from_str::<Float>(&"[".repeat(100_000)).is_err());
    }
}
