//! Random numbers: Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as
//! 1, 2, 3", SC 2011.
//!
//! Element `i` of a tensor comes from word `i % 4` of block `i / 4`, whose counter is the block's number
//! and the tensor's. So it depends on nothing but key, counter and `i`.

use super::split::{PIECE, pieces};
use crate::ops::Distribution;
use std::f32::consts::TAU;

/// Draws all of `out` from one stream.
pub fn random(out: &mut [f32], distribution: Distribution, key: u64, counter: u64) {
    match distribution {
        Distribution::Uniform { low, high } => {
            // Rounding could reach `high`, which is excluded; nothing else is left where it is `low`.
            let below = if low < high { high.next_down() } else { low };
            let draw = |word| {
                let x = low + (high - low) * unit(word);
                if x > below { below } else { x }
            };
            blocks(out, key, counter, |words| words.map(draw));
        }
        Distribution::Normal { mean, std } => blocks(out, key, counter, |[a, b, c, d]| {
            let ([a, b], [c, d]) = (box_muller(a, b), box_muller(c, d));
            [a, b, c, d].map(|z| mean + std * z)
        }),
        Distribution::Bernoulli { p } => {
            blocks(out, key, counter, |words| {
                words.map(|word| f32::from(u8::from(unit(word) < p)))
            });
        }
    }
}

/// Evenly in `[0, 1)`, in steps of 2^-24.
fn unit(word: u32) -> f32 {
    (word >> 8) as f32 * (1.0 / 16_777_216.0)
}

/// Two independent standard normals.
fn box_muller(a: u32, b: u32) -> [f32; 2] {
    // In (0, 1], so that the logarithm is finite.
    let radius = (-2.0 * (1.0 - unit(a)).ln()).sqrt();
    let (sin, cos) = (TAU * unit(b)).sin_cos();
    [radius * cos, radius * sin]
}

fn blocks(out: &mut [f32], key: u64, counter: u64, draw: impl Fn([u32; 4]) -> [f32; 4] + Sync) {
    let work = out.len();
    pieces(out, PIECE, work, |i, part| {
        let first = (i * PIECE / 4) as u64;
        for (block, out) in (first..).zip(part.chunks_mut(4)) {
            let words =
                [block as u32, (block >> 32) as u32, counter as u32, (counter >> 32) as u32];
            let drawn = draw(philox(words, [key as u32, (key >> 32) as u32]));
            out.copy_from_slice(&drawn[..out.len()]);
        }
    });
}

/// Ten rounds.
fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
    const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
    for _ in 0..10 {
        let product = |m: u32, x: u32| u64::from(m) * u64::from(x);
        let [a, b] = [product(MULTIPLIERS[0], counter[0]), product(MULTIPLIERS[1], counter[2])];
        let high = |x: u64| (x >> 32) as u32;
        counter =
            [high(b) ^ counter[1] ^ key[0], b as u32, high(a) ^ counter[3] ^ key[1], a as u32];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers published with Random123 (`kat_vectors`, philox4x32, 10 rounds).
    #[test]
    fn philox_gives_the_published_answers() {
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            philox([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        let counter = [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344];
        let key = [0xa409_3822, 0x299f_31d0];
        assert_eq!(philox(counter, key), [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]);
    }

    #[test]
    fn the_ends_of_the_range_are_where_they_should_be() {
        assert_eq!((unit(0), unit(u32::MAX)), (0.0, 1.0 - f32::EPSILON / 2.0));
        assert!(box_muller(u32::MAX, 0)[0].is_finite() && box_muller(0, 0)[0] == 0.0);
    }
}
