//! Round numbers on axes, and their text.

/// The smallest of 1, 2, 5 times a power of ten that divides a span into at most `most` steps.
///
/// The span is positive and finite.
pub(super) fn step(span: f64, most: f64) -> f64 {
    debug_assert!(span > 0.0 && span.is_finite() && most >= 1.0);
    let rough = span / most;
    let power = 10f64.powf(rough.log10().floor());
    let digit = rough / power;
    // 1 % of mercy: 0.2 / 0.1 is a little above 2.
    let round = [1.0, 2.0, 5.0].into_iter().find(|&d| digit <= d * 1.01).unwrap_or(10.0);
    round * power
}

/// The multiples of `step` in a range, ends included.
pub(super) fn ticks(from: f64, to: f64, step: f64) -> Vec<f64> {
    let first = (from / step - 1e-6).ceil();
    let last = (to / step + 1e-6).floor();
    // Where `from` is huge and the span small, multiples run out of digits: then there are few ticks.
    let count = (last - first).clamp(0.0, 99.0) as usize;
    let mut at: Vec<f64> = (0..=count)
        .map(|i| (first + i as f64) * step)
        .filter(|at| (from - step * 1e-6..=to + step * 1e-6).contains(at))
        .collect();
    at.dedup();
    at
}

/// A tick's number with as many decimals as its step has; numbers past a million as 1.2e7.
pub(super) fn label(value: f64, step: f64) -> String {
    if value.abs() >= 1e6 {
        return format!("{value:.3e}").replace(".000e", "e");
    }
    if step < 1e-6 {
        return format!("{value:.1e}");
    }
    let decimals = (-step.log10() - 1e-6).ceil().max(0.0) as usize;
    // A tick at zero may be -0 after rounding.
    let value = if value.abs() < step * 1e-3 { 0.0 } else { value };
    format!("{value:.decimals$}")
}

/// A number on its own, with three digits that count.
pub(super) fn label_of(value: f64) -> String {
    let step = if value > 0.0 { 10f64.powf(value.log10().floor() - 2.0).min(1.0) } else { 1.0 };
    let text = label(value, step);
    let text = if text.contains('.') && !text.contains('e') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        &text
    };
    text.to_owned()
}

/// The divisor and the unit in which sizes up to `bytes` read best.
pub(super) fn byte_unit(bytes: f64) -> (f64, &'static str) {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let (power, unit) =
        units.into_iter().find(|(p, _)| bytes >= f64::from(*p).exp2()).unwrap_or((0, "B"));
    (f64::from(power).exp2(), unit)
}

/// The divisor and the unit in which times up to `most` read best.
///
/// Nanoseconds have names for their multiples; of any other unit, thousands are counted by a power of ten.
pub(super) fn time_unit(most: f64, unit: &str) -> (f64, String) {
    if unit == "ns" {
        let units = [(1e9, "s"), (1e6, "ms"), (1e3, "\u{b5}s")];
        // From 2 s on: 0.2 s to 1.8 s reads better as 200 ms to 1800 ms.
        let (scale, name) =
            units.into_iter().find(|(scale, _)| most >= 2.0 * scale).unwrap_or((1.0, "ns"));
        return (scale, name.to_owned());
    }
    if most < 1e5 || !most.is_finite() {
        return (1.0, unit.to_owned());
    }
    let power = (most.log10() / 3.0).floor() as i32 * 3;
    let digits: String = power.to_string().chars().map(superscript).collect();
    (10f64.powi(power), format!("10{digits} {unit}").trim_end().to_owned())
}

/// A length of time with its unit.
pub(super) fn time(value: f64, unit: &str) -> String {
    let (scale, name) = time_unit(value, unit);
    let times = if scale > 1.0 && unit != "ns" { "\u{d7} " } else { "" };
    format!("{} {times}{name}", label_of(value / scale)).trim_end().to_owned()
}

fn superscript(digit: char) -> char {
    const DIGITS: [char; 10] = [
        '\u{2070}', '\u{b9}', '\u{b2}', '\u{b3}', '\u{2074}', '\u{2075}', '\u{2076}', '\u{2077}',
        '\u{2078}', '\u{2079}',
    ];
    digit.to_digit(10).map_or(digit, |d| DIGITS[d as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round() {
        for (span, most, want) in [
            (1.0, 5.0, 0.2),
            (100.0, 6.0, 20.0),
            (0.1, 5.0, 0.02),
            (7.0, 7.0, 1.0),
            (0.9, 1.0, 1.0),
        ] {
            let got = step(span, most);
            assert!((got / want - 1.0).abs() < 1e-9, "{span} {most}: {got}");
        }
        let texts: Vec<_> = ticks(1.0, 2.0, 0.2).iter().map(|t| label(*t, 0.2)).collect();
        assert_eq!(texts, ["1.0", "1.2", "1.4", "1.6", "1.8", "2.0"]);
        assert_eq!(label(-0.0, 1.0), "0");
        assert_eq!(label(12e6, 1e6), "1.200e7");
    }

    #[test]
    fn huge_numbers_make_few_ticks() {
        assert!(ticks(1e300, 1e300 + 1.0, 1.0).len() <= 100);
        assert!(ticks(1e16, 1e16 + 4.0, 1.0).len() <= 5);
    }

    #[test]
    fn units_fit() {
        assert_eq!(byte_unit(1023.0), (1.0, "B"));
        assert_eq!(byte_unit(3e9).1, "GiB");
        assert_eq!(time_unit(5e9, "ns").1, "s");
        assert_eq!(time_unit(5e7, "ns").1, "ms");
        assert_eq!(time_unit(5.0, "flop"), (1.0, "flop".to_owned()));
        assert_eq!(time(5.25e6, "flop"), "5.25 \u{d7} 10\u{2076} flop");
        assert_eq!(time(52_500.0, "ns"), "52.5 \u{b5}s");
        assert_eq!(time(0.5, ""), "0.5");
        assert_eq!(time_unit(5e9, "flop"), (1e9, "10\u{2079} flop".to_owned()));
    }
}
