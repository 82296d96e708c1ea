//! Functions of one float that the compiler can vectorize, and the rules for NaN.

use std::f32::consts::LOG2_E;

/// `e^x`, within 2 units in the last place; subnormal results included.
///
/// With `n` the integer nearest to `x / ln 2`, it is `2^n * e^r`, `|r| <= ln 2 / 2`, and `e^r` is
/// its Taylor polynomial of degree 7, whose remainder is below 6e-9.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Beyond these the result is infinite or zero. Comparisons, so that NaN passes through.
    const LOW: f32 = -104.5;
    const HIGH: f32 = 89.0;
    // Adding this leaves the nearest integer in the low bits of the sum.
    const ROUND: f32 = 12_582_912.0;
    // ln 2 in two parts; a small integer times the first is exact.
    const LN_2_HEAD: f32 = 0.693_359_4;
    const LN_2_TAIL: f32 = -2.121_944_4e-4;
    let x = if x < LOW { LOW } else { x };
    let x = if x > HIGH { HIGH } else { x };
    let sum = x * LOG2_E + ROUND;
    let n = (sum.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let whole = sum - ROUND;
    let r = (x - whole * LN_2_HEAD) - whole * LN_2_TAIL;
    let mut e = 1.0 / 5040.0;
    for factor in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        e = e * r + factor;
    }
    // 2^n in two steps, as it may be outside the range of normal floats.
    let half = n >> 1;
    let power = |n: i32| f32::from_bits((n.wrapping_add(127) as u32) << 23);
    e * power(half) * power(n.wrapping_sub(half))
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// Hyperbolic tangent, within 2 units in the last place: near zero an odd polynomial that interpolates it
/// at Chebyshev nodes (relative error 2e-8), farther out `(1 - e^-2|x|) / (1 + e^-2|x|)`.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    const NEAR: f32 = 0.625;
    let z = x * x;
    let mut p = -6.096_714e-3;
    for factor in [2.099_718e-2, -5.385_091e-2, 1.333_277e-1, -3.333_333e-1] {
        p = p * z + factor;
    }
    let e = exp(-2.0 * x.abs());
    let far = ((1.0 - e) / (1.0 + e)).copysign(x);
    if x.abs() < NEAR { x * (1.0 + z * p) } else { far }
}

/// `max(x, 0)`; NaN stays NaN.
#[inline(always)]
pub fn relu(x: f32) -> f32 {
    if x < 0.0 { 0.0 } else { x }
}

/// The larger of two; NaN if either is.
#[inline(always)]
pub fn larger<T: Copy + PartialOrd>(a: T, b: T) -> T {
    // Only NaN differs from itself.
    #[allow(clippy::eq_op)]
    if a >= b || a != a { a } else { b }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The largest distance of `f` from `reference` in units in the last place, over every 997th float of
    /// either sign up to `limit`.
    fn distance(f: fn(f32) -> f32, reference: fn(f64) -> f64, limit: f32) -> i64 {
        let floats = (0..=limit.to_bits())
            .step_by(997)
            .flat_map(|bits| [f32::from_bits(bits), -f32::from_bits(bits)]);
        let distance = |x: f32| {
            let expected = reference(f64::from(x)) as f32;
            (i64::from(f(x).to_bits()) - i64::from(expected.to_bits())).abs()
        };
        floats.map(distance).max().unwrap()
    }

    #[test]
    fn functions_are_exact_to_a_few_units_in_the_last_place() {
        assert!(distance(exp, f64::exp, 110.0) <= 2);
        assert!(distance(tanh, f64::tanh, 20.0) <= 2);
        assert_eq!(
            [exp(0.0), exp(f32::INFINITY), exp(f32::NEG_INFINITY)],
            [1.0, f32::INFINITY, 0.0]
        );
        assert_eq!([tanh(0.0), tanh(f32::INFINITY), tanh(f32::NEG_INFINITY)], [0.0, 1.0, -1.0]);
        assert!(exp(f32::NAN).is_nan() && tanh(f32::NAN).is_nan());
        assert!(tanh(-0.0).is_sign_negative());
    }

    #[test]
    fn nan_wins() {
        assert!(larger(f32::NAN, 1.0).is_nan() && larger(1.0, f32::NAN).is_nan());
        assert_eq!(
            [larger(1.0, 2.0), larger(2.0, 1.0), relu(-1.0), relu(2.0)],
            [2.0, 2.0, 0.0, 2.0]
        );
        assert!(relu(f32::NAN).is_nan());
    }
}
