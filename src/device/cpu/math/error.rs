//! The error function, and GELU, computed from the error function.

use super::wide::exp;
use std::f64::consts::FRAC_1_SQRT_2;

/// `1 / sqrt(2 pi)`
const PEAK: f64 = 0.398_942_280_401_432_7;

/// `1 - erf x` for `x >= 0`, with a relative error of 2e-10. The result is computed as `e^-x^2 t
/// P(t)` with `t = 1 / (1 + 0.4 x)`. The polynomial `P` interpolates at Chebyshev nodes for `x` up
/// to 11. Beyond 11, the result rounds to 0 in f32.
#[inline(always)]
fn rest(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.4 * x);
    let mut p = 0.003_827_782_929_513_960_2;
    for factor in [
        -0.004_924_149_127_071_304,
        -0.075_879_291_132_532_89,
        0.328_327_088_855_734_9,
        -0.569_332_878_693_143_7,
        0.490_085_611_792_641_8,
        -0.288_994_739_944_539_1,
        0.195_759_294_765_826_25,
        0.084_036_964_242_241_82,
        0.179_025_361_436_807_54,
        0.206_645_414_692_952_47,
        0.225_750_221_555_093_65,
        0.225_673_317_655_897_13,
    ] {
        p = p * t + factor;
    }
    exp(-x * x) * t * p
}

/// The error function, within 1 unit in the last place.
#[inline(always)]
pub fn erf(x: f32) -> f32 {
    let wide = f64::from(x);
    // Near zero, an odd polynomial interpolates `erf` at Chebyshev nodes (relative error 1e-11).
    let z = wide * wide;
    let mut p = -0.000_769_453_427_914_230_8;
    for factor in [
        0.005_200_413_724_335_493,
        -0.026_863_143_032_249_387,
        0.112_837_740_131_795_38,
        -0.376_126_385_256_506_92,
        1.128_379_167_082_409_5,
    ] {
        p = p * z + factor;
    }
    let far = (1.0 - rest(wide.abs())).copysign(wide);
    (if wide.abs() < 0.5 { wide * p } else { far }) as f32
}

/// Cumulative distribution function of the standard normal distribution at `x`.
#[inline(always)]
fn below(x: f64) -> f64 {
    let outside = 0.5 * rest(x.abs() * FRAC_1_SQRT_2);
    if x < 0.0 { outside } else { 1.0 - outside }
}

/// `x` times the cumulative distribution function of the standard normal distribution at `x`,
/// within 1 unit in the last place.
#[inline(always)]
pub fn gelu(x: f32) -> f32 {
    let x = f64::from(x);
    (x * below(x)) as f32
}

/// Derivative of [`gelu`].
#[inline(always)]
pub fn gelu_slope(x: f32) -> f32 {
    let x = f64::from(x);
    (below(x) + x * PEAK * exp(-0.5 * x * x)) as f32
}
