//! Vectors of 4 floats in 32 registers: aarch64, which always has NEON.

use std::arch::aarch64::*;

type V = float32x4_t;
const LANES: usize = 4;
/// Number of vectors in a row of a tile of 4 rows, and in a row of a tile of 8 rows. The registers
/// hold 16 sums, 2 or 4 inputs and a weight.
const TILE_VECTORS: [usize; 2] = [4, 2];
const DOT_ROWS: usize = 4;
const DOT_TAPS: usize = 4;

#[inline]
#[target_feature(enable = "neon")]
fn splat(x: f32) -> V {
    vdupq_n_f32(x)
}

#[inline]
#[target_feature(enable = "neon")]
fn load(from: &[f32; LANES]) -> V {
    // SAFETY: the reference covers the 4 floats that are read.
    unsafe { vld1q_f32(from.as_ptr()) }
}

/// Loads fewer than [`LANES`] floats, and sets the remaining lanes to zero.
#[inline]
#[target_feature(enable = "neon")]
fn load_first(from: &[f32]) -> V {
    let mut lanes = [0.0; LANES];
    lanes[..from.len()].copy_from_slice(from);
    load(&lanes)
}

#[inline]
#[target_feature(enable = "neon")]
fn store(to: &mut [f32; LANES], x: V) {
    // SAFETY: the reference covers the 4 floats that are written.
    unsafe { vst1q_f32(to.as_mut_ptr(), x) }
}

/// Stores as many lanes as `to` has floats.
#[inline]
#[target_feature(enable = "neon")]
fn store_first(to: &mut [f32], x: V) {
    let mut lanes = [0.0; LANES];
    store(&mut lanes, x);
    to.copy_from_slice(&lanes[..to.len()]);
}

#[inline]
#[target_feature(enable = "neon")]
fn fma(a: V, b: V, c: V) -> V {
    vfmaq_f32(c, a, b)
}

/// Sum of the lanes of each vector.
#[inline]
#[target_feature(enable = "neon")]
fn sums(x: [V; DOT_ROWS]) -> [f32; DOT_ROWS] {
    let mut out = [0.0; DOT_ROWS];
    for (out, x) in out.iter_mut().zip(x) {
        *out = vaddvq_f32(x);
    }
    out
}

kernels!(#[target_feature(enable = "neon")]);
