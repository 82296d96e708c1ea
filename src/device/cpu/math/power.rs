use super::wide::{exp2, log2};

/// `x^y`, within 1 unit in the last place, with the special cases of C. `x^0` and `1^y` are 1 even
/// for NaN. A negative `x` to a power that is not an integer is NaN.
#[inline(always)]
pub fn pow(x: f32, y: f32) -> f32 {
    let (x, y) = (f64::from(x), f64::from(y));
    let log = log2(x.abs());
    // If `|x| = 1`, the absolute value of every power is 1, even for an infinite exponent, for
    // which `y * log` would be NaN.
    let p = exp2(if log == 0.0 { 0.0 } else { y * log });
    let is_integer = y.trunc() == y;
    let is_odd = is_integer && (0.5 * y).trunc() != 0.5 * y;
    let p = if x.is_sign_negative() && is_odd { -p } else { p };
    let p = if x < 0.0 && x > f64::NEG_INFINITY && !is_integer { f64::NAN } else { p };
    (if y == 0.0 || x == 1.0 { 1.0 } else { p }) as f32
}
