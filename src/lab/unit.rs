//! Units of costs.

use crate::cost::CostModelKind;
use std::fmt;
use std::sync::Arc;

/// Unit of the costs of a program, and of the engine's clock during its run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CostUnit {
    /// Time, as in the DTR paper's logs.
    #[default]
    Nanoseconds,
    /// Time, as [`CostModelKind::Measured`] counts it.
    Milliseconds,
    /// Arithmetic operations, where each byte read or written counts as ten operations:
    /// [`CostModelKind::Flops`].
    Gigaflops,
    /// Bytes read and written: [`CostModelKind::Bytes`].
    HundredMegabytes,
    /// Unit of a cost model that the user wrote, given by the name of the model.
    Other(Arc<str>),
}

/// Units: power of ten, and name. The largest unit comes first.
type Names = &'static [(i32, &'static str)];

const SECONDS: Names = &[(0, "s"), (-3, "ms"), (-6, "\u{b5}s"), (-9, "ns")];
const FLOPS: Names = &[(12, "Tflop"), (9, "Gflop"), (6, "Mflop"), (3, "kflop"), (0, "flop")];
const BYTES: Names = &[(12, "TB"), (9, "GB"), (6, "MB"), (3, "kB"), (0, "B")];

impl CostUnit {
    /// Unit of the cost model with this name.
    #[must_use]
    pub fn of_model(name: &str) -> Self {
        match name.parse() {
            Ok(CostModelKind::Measured) => Self::Milliseconds,
            Ok(CostModelKind::Flops) => Self::Gigaflops,
            Ok(CostModelKind::Bytes) => Self::HundredMegabytes,
            _ => Self::Other(name.into()),
        }
    }

    /// Seconds of one unit; `None` if the unit is no time.
    #[must_use]
    pub const fn seconds(&self) -> Option<f64> {
        match self {
            Self::Nanoseconds => Some(1e-9),
            Self::Milliseconds => Some(1e-3),
            _ => None,
        }
    }

    /// Text of a cost, for people.
    ///
    /// ```
    /// use remat::unstable::lab::CostUnit;
    /// assert_eq!(CostUnit::Gigaflops.show(0.5), "500 Mflop");
    /// assert_eq!(CostUnit::HundredMegabytes.show(25.0), "2.5 GB");
    /// assert_eq!(CostUnit::Nanoseconds.show(3e9), "3 s");
    /// ```
    #[must_use]
    pub fn show(&self, cost: f64) -> String {
        let (scale, unit) = self.scale(cost, 1.0);
        let number = super::plot::number(cost / scale);
        match self {
            Self::Other(name) if unit.is_empty() => format!("{number} {name}"),
            Self::Other(name) => format!("{number} \u{d7} {unit} {name}"),
            _ => format!("{number} {unit}"),
        }
        .trim_end()
        .to_owned()
    }

    /// Divisor of costs up to `most` on an axis, and the title of the axis.
    pub(super) fn axis(&self, most: f64) -> (f64, String) {
        // The largest value must be at least 2 in the chosen unit, because 200 ms to 1800 ms is
        // more readable than 0.2 s to 1.8 s.
        let (scale, unit) = self.scale(most, 2.0);
        let what = match self {
            Self::Nanoseconds | Self::Milliseconds => "time",
            Self::Gigaflops => "work",
            Self::HundredMegabytes => "bytes moved",
            Self::Other(name) if name.is_empty() => "cost",
            Self::Other(name) => &format!("cost by {name}"),
        };
        let unit = match self {
            _ if unit.is_empty() => unit,
            Self::Gigaflops => format!(" ({unit}; 10 flop per byte moved)"),
            _ => format!(" ({unit})"),
        };
        (scale, format!("{what}, recomputation included{unit}"))
    }

    /// Divisor of costs up to `most`, and the unit of the quotient. In the chosen unit, the largest
    /// cost is at least `least`, if some unit is small enough. For a cost model that the user
    /// wrote, the text of the unit is a power of ten, or empty.
    fn scale(&self, most: f64, least: f64) -> (f64, String) {
        let (power, names) = match self {
            Self::Nanoseconds => (-9, SECONDS),
            Self::Milliseconds => (-3, SECONDS),
            Self::Gigaflops => (9, FLOPS),
            Self::HundredMegabytes => (8, BYTES),
            Self::Other(_) => return power_of_ten(most),
        };
        let fits = |&&(to, _): &&(i32, &str)| most >= 0.999 * least * 10f64.powi(to - power);
        let (to, name) = names.iter().find(fits).unwrap_or(&names[names.len() - 1]);
        (10f64.powi(to - power), (*name).to_owned())
    }
}

impl fmt::Display for CostUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nanoseconds => "ns",
            Self::Milliseconds => "ms",
            Self::Gigaflops => "Gflop",
            Self::HundredMegabytes => "1e8 B",
            Self::Other(name) => name,
        })
    }
}

/// Divisor and text of a power of 1000. For numbers below 1e5, the divisor is 1 and the text is
/// empty.
fn power_of_ten(most: f64) -> (f64, String) {
    if most < 1e5 || !most.is_finite() {
        return (1.0, String::new());
    }
    const DIGITS: [char; 10] = [
        '\u{2070}', '\u{b9}', '\u{b2}', '\u{b3}', '\u{2074}', '\u{2075}', '\u{2076}', '\u{2077}',
        '\u{2078}', '\u{2079}',
    ];
    let power = (most.log10() / 3.0).floor() as i32 * 3;
    let digits = power.to_string();
    let raised = digits.chars().filter_map(|c| c.to_digit(10)).map(|d| DIGITS[d as usize]);
    (10f64.powi(power), format!("10{}", raised.collect::<String>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_shown_in_the_unit_that_fits() {
        let other = |name: &str| CostUnit::Other(name.into());
        for (unit, cost, text) in [
            (CostUnit::Nanoseconds, 1.0, "1 ns"),
            (CostUnit::Nanoseconds, 52_500.0, "52.5 \u{b5}s"),
            (CostUnit::Nanoseconds, 7.2e12, "7200 s"),
            (CostUnit::Nanoseconds, 0.0, "0 ns"),
            (CostUnit::Milliseconds, 1500.0, "1.5 s"),
            (CostUnit::Milliseconds, 0.25, "250 \u{b5}s"),
            (CostUnit::Gigaflops, 12.34, "12.3 Gflop"),
            (CostUnit::Gigaflops, 2e-9, "2 flop"),
            (CostUnit::HundredMegabytes, 0.01, "1 MB"),
            (other("mine"), 5.25e6, "5.25 \u{d7} 10\u{2076} mine"),
            (other("mine"), 17.0, "17 mine"),
            (other(""), 5e6, "5 \u{d7} 10\u{2076}"),
        ] {
            assert_eq!(unit.show(cost), text);
        }
    }

    #[test]
    fn an_axis_says_what_it_counts() {
        for (unit, most, scale, name) in [
            (CostUnit::Nanoseconds, 5e9, 1e9, "time, recomputation included (s)"),
            (CostUnit::Nanoseconds, 1e9, 1e6, "time, recomputation included (ms)"),
            (CostUnit::Milliseconds, 5.0, 1.0, "time, recomputation included (ms)"),
            (
                CostUnit::Gigaflops,
                0.3,
                1e-3,
                "work, recomputation included (Mflop; 10 flop per byte moved)",
            ),
            (CostUnit::HundredMegabytes, 30.0, 10.0, "bytes moved, recomputation included (GB)"),
            (CostUnit::Other("mine".into()), 5.0, 1.0, "cost by mine, recomputation included"),
            (CostUnit::Other("".into()), 5e9, 1e9, "cost, recomputation included (10\u{2079})"),
        ] {
            let (divisor, text) = unit.axis(most);
            assert!((divisor / scale - 1.0).abs() < 1e-12, "{divisor} {scale}");
            assert_eq!(text, name);
        }
    }

    #[test]
    fn the_crates_cost_models_have_their_units() {
        for kind in CostModelKind::NAMES {
            assert!(!matches!(CostUnit::of_model(kind), CostUnit::Other(_)), "{kind}");
        }
        assert_eq!(CostUnit::of_model("mine"), CostUnit::Other("mine".into()));
        assert_eq!(CostUnit::of_model("flops").to_string(), "Gflop");
    }
}
