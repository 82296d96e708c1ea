//! Powers of two and logarithms in double precision, with relative errors below 1e-10. Callers
//! round their results to f32.

/// Number that rounds to an integer when it is added: the low bits of `x + ROUND` are the integer
/// nearest to `x`.
pub(super) const ROUND: f64 = 6_755_399_441_055_744.0;

/// `2^x`; NaN stays NaN.
#[inline(always)]
pub(super) fn exp2(x: f64) -> f64 {
    // Outside `-LIMIT..LIMIT`, the result rounds to zero or infinity in f32, even after the caller
    // has multiplied the result.
    const LIMIT: f64 = 1000.0;
    let x = if x < -LIMIT { -LIMIT } else { x };
    let x = if x > LIMIT { LIMIT } else { x };
    let sum = x + ROUND;
    let n = (sum.to_bits() as i64).wrapping_sub(ROUND.to_bits() as i64);
    let r = (x - (sum - ROUND)) * std::f64::consts::LN_2;
    let mut e = 1.0 / 362_880.0;
    for factor in [
        1.0 / 40320.0,
        1.0 / 5040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ] {
        e = e * r + factor;
    }
    e * f64::from_bits((n.wrapping_add(1023) as u64) << 52)
}

/// `e^x`; NaN stays NaN.
#[inline(always)]
pub(super) fn exp(x: f64) -> f64 {
    exp2(x * std::f64::consts::LOG2_E)
}

/// Binary logarithm of a float that is not negative; NaN stays NaN.
#[inline(always)]
pub(super) fn log2(x: f64) -> f64 {
    const SQRT_HALF: i64 = std::f64::consts::FRAC_1_SQRT_2.to_bits() as i64;
    // `x = 2^e m` with `m` from `sqrt(1/2)` to `sqrt(2)`. `ln m = 2 artanh s` is computed by a
    // series in `s^2 < 0.03`.
    let bits = x.to_bits() as i64;
    let e = bits.wrapping_sub(SQRT_HALF) >> 52;
    let m = f64::from_bits(bits.wrapping_sub(e << 52) as u64);
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    let mut p = 1.0 / 15.0;
    for factor in [1.0 / 13.0, 1.0 / 11.0, 1.0 / 9.0, 1.0 / 7.0, 0.2, 1.0 / 3.0, 1.0] {
        p = p * z + factor;
    }
    // Convert `e` to 32 bits first, because every vector instruction set can convert 32-bit
    // integers to floats.
    let log = f64::from(e as i32) + p * s * (2.0 * std::f64::consts::LOG2_E);
    let log = if x == 0.0 { f64::NEG_INFINITY } else { log };
    if x < f64::INFINITY { log } else { x }
}
