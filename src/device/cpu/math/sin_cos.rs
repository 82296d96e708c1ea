//! Sine and cosine.

use super::wide::ROUND;

/// Binary digits of `1 / 2 pi` after the point.
const TURN: [u64; 4] =
    [0x28be_60db_9391_054a, 0x7f09_d5f4_7d4d_3770, 0x36d8_a566_4f10_e410, 0x7f98_0000_0000_0000];

/// Fractional part of `2^e / 2 pi`, for each exponent `e`. The first number of an entry has the
/// first 29 binary digits of the fraction, and the second number has the next 53 digits. The table
/// has more entries than floats need, so that the index needs no check.
static TURNS: [[f64; 2]; 128] = {
    let mut all = [[0.0; 2]; 128];
    let mut e = 0;
    while e < 128 {
        let (head, tail) = (digits(e, 29) as f64, digits(e + 29, 53) as f64);
        all[e] = [head / (1u64 << 29) as f64, tail / (1u128 << 82) as f64];
        e += 1;
    }
    all
};

/// Digits `from..from + count` of [`TURN`], as an integer.
const fn digits(from: usize, count: usize) -> u64 {
    let (mut all, mut i) = (0, from);
    while i < from + count {
        let digit = if i < 256 { TURN[i / 64] >> (63 - i % 64) & 1 } else { 0 };
        all = all << 1 | digit;
        i += 1;
    }
    all
}

/// The integer `q` for which `q pi / 2` is nearest to `x`, and the angle `x - q pi / 2`. The low
/// two bits of the returned integer are `q` modulo 4.
///
/// `x = m 2^e` with `e >= 0`, where `m` has at most 24 binary digits. The product of `m` with the
/// first 29 digits is therefore exact. The remainder after the subtraction of whole quarter turns
/// is exact as well. The angle has an error of at most 2^-60. An error of 2^-60 is small enough,
/// because no float except 0 is so near to a multiple of a quarter turn.
#[inline(always)]
fn quarters(x: f32) -> (u64, f64) {
    let exponent = (x.to_bits() >> 23 & 255) as i32;
    let e = if exponent > 150 { exponent - 150 } else { 0 } as u64;
    let m = f64::from(x) * f64::from_bits((1023 - e) << 52);
    let [head, tail] = TURNS[(e & 127) as usize];
    let (head, tail) = (m * head, m * tail);
    let sum = (head + tail) * 4.0 + ROUND;
    let rest = (head - (sum - ROUND) * 0.25) + tail;
    (sum.to_bits(), rest * std::f64::consts::TAU)
}

/// Sine of an angle `a` plus a number of quarter turns.
#[inline(always)]
fn turned((quarters, a): (u64, f64)) -> f32 {
    let z = a * a;
    let mut sin = -1.0 / 39_916_800.0;
    for factor in [1.0 / 362_880.0, -1.0 / 5040.0, 1.0 / 120.0, -1.0 / 6.0] {
        sin = sin * z + factor;
    }
    // The factor `a` keeps the sign of zero: the sine of -0 is -0.
    let sin = a * (1.0 + z * sin);
    let mut cos = 1.0 / 479_001_600.0;
    for factor in [-1.0 / 3_628_800.0, 1.0 / 40320.0, -1.0 / 720.0, 1.0 / 24.0, -0.5, 1.0] {
        cos = cos * z + factor;
    }
    let value = if quarters & 1 == 0 { sin } else { cos };
    (if quarters & 2 == 0 { value } else { -value }) as f32
}

/// Sine of an angle in radians, within 1 unit in the last place for angles of any size.
#[inline(always)]
pub fn sin(x: f32) -> f32 {
    turned(quarters(x))
}

/// Cosine of an angle in radians, within 1 unit in the last place for angles of any size.
#[inline(always)]
pub fn cos(x: f32) -> f32 {
    let (quarters, angle) = quarters(x);
    turned((quarters.wrapping_add(1), angle))
}
