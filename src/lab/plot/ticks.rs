//! Round numbers on axes, with labels.

/// Smallest number of the form 1, 2 or 5 times a power of ten that divides a span into at most
/// `most` steps.
///
/// The span is positive and finite.
pub(super) fn step(span: f64, most: f64) -> f64 {
    debug_assert!(span > 0.0 && span.is_finite() && most >= 1.0);
    let rough = span / most;
    let power = 10f64.powf(rough.log10().floor());
    let digit = rough / power;
    // A tolerance of 1 % is needed for rounding errors: the quotient 0.2 / 0.1 may be slightly
    // above 2.
    let round = [1.0, 2.0, 5.0].into_iter().find(|&d| digit <= d * 1.01).unwrap_or(10.0);
    round * power
}

/// Multiples of `step` in a range, ends included.
pub(super) fn ticks(from: f64, to: f64, step: f64) -> Vec<f64> {
    let first = (from / step - 1e-6).ceil();
    let last = (to / step + 1e-6).floor();
    // If `from` is huge and the span is small, floats cannot represent all multiples, so there are
    // fewer ticks.
    let count = (last - first).clamp(0.0, 99.0) as usize;
    let mut at: Vec<f64> = (0..=count)
        .map(|i| (first + i as f64) * step)
        .filter(|at| (from - step * 1e-6..=to + step * 1e-6).contains(at))
        .collect();
    at.dedup();
    at
}

/// Label of a tick, with as many decimals as `step` has. Numbers from a million on are written like
/// 1.2e7.
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

/// Text, with three significant digits, of a number that is not a tick of an axis.
pub(in crate::lab) fn label_of(value: f64) -> String {
    let step = if value > 0.0 { 10f64.powf(value.log10().floor() - 2.0).min(1.0) } else { 1.0 };
    let text = label(value, step);
    let text = if text.contains('.') && !text.contains('e') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        &text
    };
    text.to_owned()
}

/// The largest unit of at most `bytes` bytes, as its number of bytes and its name.
pub(super) fn byte_unit(bytes: f64) -> (f64, &'static str) {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let (power, unit) =
        units.into_iter().find(|(p, _)| bytes >= f64::from(*p).exp2()).unwrap_or((0, "B"));
    (f64::from(power).exp2(), unit)
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
    }
}
