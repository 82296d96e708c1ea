//! Random numbers on the CPU: Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random
//! numbers: as easy as 1, 2, 3", SC 2011.
//!
//! Philox generates blocks of four words. Element `i` of a tensor is made from word `i % 4` of
//! block `i / 4`. The Philox counter of a block consists of the block's number and the tensor's
//! number. An element therefore depends only on the key, the tensor's number and `i`.

use super::Distribution;
use crate::device::cpu::split::{PIECE, pieces};
use crate::device::cpu::wide::widest;
use std::f32::consts::TAU;

/// Fills `out` with the random numbers of the stream that `key` and `counter` identify.
pub fn random(out: &mut [f32], distribution: Distribution, key: u64, counter: u64) {
    match distribution {
        Distribution::Uniform { low, high } => {
            // Rounding could give the excluded bound `high`, so limit the result to the float below
            // `high`. If the interval is empty, the result is `low`.
            let below = if low < high { high.next_down() } else { low };
            blocks(
                out,
                key,
                counter,
                #[inline(always)]
                |words| {
                    words.map(
                        #[inline(always)]
                        |word| {
                            let x = low + (high - low) * unit(word);
                            if x > below { below } else { x }
                        },
                    )
                },
            );
        }
        Distribution::Normal { mean, std } => blocks(
            out,
            key,
            counter,
            #[inline(always)]
            |[a, b, c, d]| {
                let ([a, b], [c, d]) = (box_muller(a, b), box_muller(c, d));
                [a, b, c, d].map(|z| mean + std * z)
            },
        ),
        Distribution::Bernoulli { p } => {
            blocks(
                out,
                key,
                counter,
                #[inline(always)]
                |words| words.map(|word| f32::from(u8::from(unit(word) < p))),
            );
        }
    }
}

/// A number in `[0, 1)`, in steps of 2^-24.
#[inline(always)]
fn unit(word: u32) -> f32 {
    (word >> 8) as f32 * (1.0 / 16_777_216.0)
}

/// Two independent standard normal numbers.
fn box_muller(a: u32, b: u32) -> [f32; 2] {
    // `1 - unit(a)` is in (0, 1], so the logarithm is finite.
    let radius = (-2.0 * (1.0 - unit(a)).ln()).sqrt();
    let (sin, cos) = (TAU * unit(b)).sin_cos();
    [radius * cos, radius * sin]
}

fn blocks(out: &mut [f32], key: u64, counter: u64, draw: impl Fn([u32; 4]) -> [f32; 4] + Sync) {
    let work = out.len();
    pieces(out, PIECE, work, |i, part| {
        let first = (i * PIECE / 4) as u64;
        for (group, out) in part.chunks_mut(4 * WIDE).enumerate() {
            let drawn = widest(
                #[inline(always)]
                || group_of_blocks(first + (group * WIDE) as u64, key, counter, &draw),
            );
            let (whole, rest) = out.as_chunks_mut();
            whole.copy_from_slice(&drawn[..whole.len()]);
            if !rest.is_empty() {
                rest.copy_from_slice(&drawn[whole.len()][..rest.len()]);
            }
        }
    });
}

/// Number of blocks that are computed together.
const WIDE: usize = 16;

/// Computes the Philox blocks `first..first + WIDE`.
#[inline(always)]
fn group_of_blocks(
    first: u64,
    key: u64,
    counter: u64,
    draw: impl Fn([u32; 4]) -> [f32; 4],
) -> [[f32; 4]; WIDE] {
    let halves = |x: u64| [x as u32, (x >> 32) as u32];
    let [low, high] = halves(counter);
    let [mut near, mut far] = [[0; WIDE]; 2];
    for (i, (near, far)) in (first..).zip(near.iter_mut().zip(&mut far)) {
        [*near, *far] = halves(i);
    }
    let words = philox([near, far, [low; WIDE], [high; WIDE]], halves(key));
    let mut drawn = [[0.0; 4]; WIDE];
    for (i, drawn) in drawn.iter_mut().enumerate() {
        *drawn = draw([words[0][i], words[1][i], words[2][i], words[3][i]]);
    }
    drawn
}

/// Ten rounds of Philox for `W` counters together, with one key.
#[inline(always)]
fn philox<const W: usize>(mut counter: [[u32; W]; 4], mut key: [u32; 2]) -> [[u32; W]; 4] {
    const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
    const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
    for _ in 0..10 {
        let [first, second, third, fourth] = &mut counter;
        for ((first, second), (third, fourth)) in
            first.iter_mut().zip(second).zip(third.iter_mut().zip(fourth))
        {
            let a = u64::from(MULTIPLIERS[0]) * u64::from(*first);
            let b = u64::from(MULTIPLIERS[1]) * u64::from(*third);
            *first = (b >> 32) as u32 ^ *second ^ key[0];
            *second = b as u32;
            *third = (a >> 32) as u32 ^ *fourth ^ key[1];
            *fourth = a as u32;
        }
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with the known answers that were published with Random123 (`kat_vectors`,
    /// philox4x32, 10 rounds).
    #[test]
    fn philox_gives_the_published_answers() {
        let counter = [
            [0, u32::MAX, 0x243f_6a88],
            [0, u32::MAX, 0x85a3_08d3],
            [0, u32::MAX, 0x1319_8a2e],
            [0, u32::MAX, 0x0370_7344],
        ];
        for (i, (key, expected)) in [
            ([0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            ([0xa409_3822, 0x299f_31d0], [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]),
        ]
        .into_iter()
        .enumerate()
        {
            assert_eq!(philox(counter, key).map(|words| words[i]), expected);
        }
    }

    #[test]
    fn the_ends_of_the_range_are_where_they_should_be() {
        assert_eq!((unit(0), unit(u32::MAX)), (0.0, 1.0 - f32::EPSILON / 2.0));
        assert!(box_muller(u32::MAX, 0)[0].is_finite() && box_muller(0, 0)[0] == 0.0);
    }
}
