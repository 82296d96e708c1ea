//! Slow and exact reference functions, for tests.

use std::f64::consts::PI;

/// The error function.
pub fn erf(x: f64) -> f64 {
    if x.abs() < 2.0 {
        // All terms have the same sign: `2 / sqrt(pi) e^-x^2 sum 2^n x^(2n+1) / (2n+1)!!`
        let (mut term, mut sum) = (x, x);
        for n in 1..80 {
            term *= 2.0 * x * x / f64::from(2 * n + 1);
            sum += term;
        }
        2.0 / PI.sqrt() * (-x * x).exp() * sum
    } else {
        (1.0 - erfc(x.abs())).copysign(x)
    }
}

/// `1 - erf x`
pub fn erfc(x: f64) -> f64 {
    if x < 2.0 {
        return 1.0 - erf(x);
    }
    // For large `x`, compute a continued fraction.
    let rest = (1..200).rev().fold(x, |rest, n| x + 0.5 * f64::from(n) / rest);
    (-x * x).exp() / (PI.sqrt() * rest)
}
