//! Functions of floats that the compiler can vectorize, and functions with fixed rules for NaN.

mod error;
pub mod exact;
mod power;
mod sin_cos;
mod wide;

pub use error::{erf, gelu, gelu_slope};
pub use power::pow;
pub use sin_cos::{cos, sin};

use std::f32::consts::LOG2_E;

/// `e^x`, within 2 units in the last place, also for subnormal results.
///
/// `e^x = 2^n * e^r`, where `n` is the integer nearest to `x / ln 2` and `|r| <= ln 2 / 2`. The
/// function computes `e^r` by the Taylor polynomial of degree 7, whose remainder is below 6e-9.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Outside `LOW..HIGH`, the result is zero or infinite. The code uses two comparisons instead of
    // a clamp, so that a NaN stays NaN.
    const LOW: f32 = -104.5;
    const HIGH: f32 = 89.0;
    // Number that rounds to an integer when it is added: the low bits of `x + ROUND` are the
    // integer nearest to `x`.
    const ROUND: f32 = 12_582_912.0;
    // `ln 2` is split into the sum of a head and a tail. The head has few digits, so its product
    // with a small integer is exact.
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
    // `2^n` as a product of two factors, because `2^n` itself may be outside the range of normal
    // floats.
    let half = n >> 1;
    let power = |n: i32| f32::from_bits((n.wrapping_add(127) as u32) << 23);
    e * power(half) * power(n.wrapping_sub(half))
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// Hyperbolic tangent, within 2 units in the last place. Near zero, an odd polynomial interpolates
/// `tanh` at Chebyshev nodes (relative error 2e-8). Elsewhere, the result is `(1 - e^-2|x|) / (1 +
/// e^-2|x|)`.
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

/// `x / (1 + e^-x)`
#[inline(always)]
pub fn silu(x: f32) -> f32 {
    x * sigmoid(x)
}

/// Derivative of [`silu`].
#[inline(always)]
pub fn silu_slope(x: f32) -> f32 {
    let gate = sigmoid(x);
    gate * (1.0 + x * (1.0 - gate))
}

/// `ln(1 + e^x)`, within 2 units in the last place. The result is computed as `max(x, 0) + ln(1 +
/// z)` with `z = e^-|x|`. The logarithm is computed as `2 artanh(z / (2 + z))`, by a series whose
/// remainder is below 1e-9.
#[inline(always)]
pub fn softplus(x: f32) -> f32 {
    let z = exp(-x.abs());
    let s = z / (2.0 + z);
    let ss = s * s;
    let mut p = 1.0 / 15.0;
    for factor in [1.0 / 13.0, 1.0 / 11.0, 1.0 / 9.0, 1.0 / 7.0, 0.2, 1.0 / 3.0] {
        p = p * ss + factor;
    }
    relu(x) + 2.0 * (s + s * ss * p)
}

/// `x sigmoid(x (c + d x^2))`: the usual approximation of GELU.
#[inline(always)]
pub fn gelu_tanh(x: f32) -> f32 {
    x * sigmoid(x * (1.595_769_2 + 0.071_354_814 * x * x))
}

/// Derivative of [`gelu_tanh`].
#[inline(always)]
pub fn gelu_tanh_slope(x: f32) -> f32 {
    let xx = x * x;
    let gate = sigmoid(x * (1.595_769_2 + 0.071_354_814 * xx));
    gate + gate * (1.0 - gate) * (x * (1.595_769_2 + 3.0 * 0.071_354_814 * xx))
}

/// `max(x, 0)`; NaN stays NaN.
#[inline(always)]
pub fn relu(x: f32) -> f32 {
    if x < 0.0 { 0.0 } else { x }
}

/// The larger of two values; NaN if one of them is NaN.
#[inline(always)]
pub fn larger<T: Copy + PartialOrd>(a: T, b: T) -> T {
    // `a != a` holds for NaN only.
    #[allow(clippy::eq_op)]
    if a >= b || a != a { a } else { b }
}

/// The smaller of two values; NaN if one of them is NaN.
#[inline(always)]
pub fn smaller<T: Copy + PartialOrd>(a: T, b: T) -> T {
    // `a != a` holds for NaN only.
    #[allow(clippy::eq_op)]
    if a <= b || a != a { a } else { b }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Largest distance between `f` and `reference`, in units in the last place. The test tries
    /// every 997th float of either sign up to `limit`.
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
    fn curves_are_exact_to_a_few_units_in_the_last_place() {
        let below = |x: f64| 0.5 * exact::erfc(-x * std::f64::consts::FRAC_1_SQRT_2);
        assert!(distance(erf, exact::erf, f32::MAX) <= 1);
        assert!(distance(softplus, |x| x.max(0.0) + (-x.abs()).exp().ln_1p(), 80.0) <= 2);
        for x in (0..200_000).map(|i| (i - 100_000) as f32 / 8000.0) {
            let (wide, near) = (f64::from(x), |found: f32, expected: f64, tolerance: f64| {
                let error = (f64::from(found) - expected).abs();
                assert!(error <= tolerance * expected.abs().max(1e-38), "{x}: {found}, {expected}");
            });
            near(gelu(x), wide * below(wide), 1e-7);
            let gate = 1.0 / (1.0 + (-wide).exp());
            near(silu(x), wide * gate, 4e-7);
            // Near the zeros of the derivatives, terms cancel and relative errors are large. The
            // tests therefore limit the absolute error.
            let bell = (-0.5 * wide * wide).exp() / std::f64::consts::TAU.sqrt();
            let slope = below(wide) + wide * bell;
            assert!((f64::from(gelu_slope(x)) - slope).abs() <= 1e-7, "{x}");
            let slope = gate * (1.0 + wide * (1.0 - gate));
            assert!((f64::from(silu_slope(x)) - slope).abs() <= 1e-6, "{x}");
        }
        for f in [erf, gelu, gelu_slope, softplus, silu, silu_slope, gelu_tanh, gelu_tanh_slope] {
            assert!(f(f32::NAN).is_nan());
        }
        let inf = f32::INFINITY;
        assert_eq!([erf(inf), erf(-inf), erf(0.0)], [1.0, -1.0, 0.0]);
        assert!(erf(-0.0).is_sign_negative() && gelu(-0.0).is_sign_negative());
        assert_eq!([softplus(inf), softplus(-inf), gelu(inf), silu(inf)], [inf, 0.0, inf, inf]);
        assert_eq!(erf(f32::from_bits(3)), f32::from_bits(3));
    }

    #[test]
    fn sine_and_cosine_are_exact_of_any_angle() {
        // The system's f64 functions are exact also for large angles.
        assert!(distance(sin, f64::sin, f32::MAX) <= 1);
        assert!(distance(sin, f64::sin, 10.0) <= 1);
        assert!(distance(cos, f64::cos, f32::MAX) <= 1);
        // Small and large floats that lie close to a multiple of `pi / 2`.
        for x in [
            std::f32::consts::FRAC_PI_2,
            std::f32::consts::PI,
            16_367_173.0 * f32::from_bits((127 + 72) << 23),
            6.0e37,
        ] {
            for x in [x, -x] {
                let (exact, off) = (f64::from(x).sin() as f32, f64::from(x).cos() as f32);
                assert!((sin(x).to_bits() as i64 - exact.to_bits() as i64).abs() <= 1, "{x}");
                assert!((cos(x).to_bits() as i64 - off.to_bits() as i64).abs() <= 1, "{x}");
            }
        }
        for x in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert!(sin(x).is_nan() && cos(x).is_nan());
        }
        assert!(sin(-0.0).is_sign_negative() && sin(0.0).is_sign_positive());
        let least = f32::from_bits(1);
        assert_eq!([sin(least), sin(-least), cos(least)], [least, -least, 1.0]);
    }

    #[test]
    fn powers_are_those_of_c() {
        let inf = f32::INFINITY;
        let special = [0.0, 1.0, 2.0, 3.0, 0.5, 2.5, 1e30, 1e-40, f32::MAX, 16_777_217.0, inf];
        let signed: Vec<f32> = special
            .iter()
            .flat_map(|&x| [x, -x])
            .chain([f32::NAN, 1.000_000_1, 0.999_999_9])
            .collect();
        let check = |x: f32, y: f32| {
            let (found, expected) = (pow(x, y), f64::from(x).powf(f64::from(y)) as f32);
            let near = (i64::from(found.to_bits()) - i64::from(expected.to_bits())).abs() <= 1;
            assert!(near || found.is_nan() && expected.is_nan(), "{x}^{y}: {found}, {expected}");
        };
        signed.iter().for_each(|&x| signed.iter().for_each(|&y| check(x, y)));
        let mut numbers = remat_rng::SplitMix64::new(1);
        for _ in 0..300_000 {
            let bits = numbers.next();
            let [x, y] = [f32::from_bits(bits as u32), f32::from_bits((bits >> 32) as u32)];
            check(x, y);
            // For random exponents, most powers are infinite or zero, so also try small exponents.
            check(x, (y.to_bits() >> 8) as f32 / (1 << 21) as f32 - 4.0);
        }
    }

    #[test]
    fn nan_wins() {
        assert!(larger(f32::NAN, 1.0).is_nan() && larger(1.0, f32::NAN).is_nan());
        assert_eq!(
            [larger(1.0, 2.0), larger(2.0, 1.0), relu(-1.0), relu(2.0)],
            [2.0, 2.0, 0.0, 2.0]
        );
        assert!(relu(f32::NAN).is_nan());
        assert!(smaller(f32::NAN, 1.0).is_nan() && smaller(1.0, f32::NAN).is_nan());
        assert_eq!([smaller(1.0, 2.0), smaller(2.0, 1.0)], [1.0, 1.0]);
    }
}
