//! Vectors of 8 floats in 16 registers: x86-64 with AVX2 and FMA.

use std::arch::x86_64::*;

type V = __m256;
const LANES: usize = 8;
/// Number of vectors in a row of a tile of 4 rows; tiles of 8 rows are not used. With 2 vectors,
/// the registers hold 8 sums, 2 inputs and a weight. With 3 vectors, the tile would need more than
/// 16 registers.
const TILE_VECTORS: [usize; 2] = [2, 0];
const DOT_ROWS: usize = 3;
const DOT_TAPS: usize = 4;

#[inline]
#[target_feature(enable = "avx2,fma")]
fn splat(x: f32) -> V {
    _mm256_set1_ps(x)
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn load(from: &[f32; LANES]) -> V {
    // SAFETY: the reference covers the 8 floats that are read, and the load needs no alignment.
    unsafe { _mm256_loadu_ps(from.as_ptr()) }
}

/// Loads fewer than [`LANES`] floats, and sets the remaining lanes to zero.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn load_first(from: &[f32]) -> V {
    let mut lanes = [0.0; LANES];
    lanes[..from.len()].copy_from_slice(from);
    load(&lanes)
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn store(to: &mut [f32; LANES], x: V) {
    // SAFETY: the reference covers the 8 floats that are written, and the store needs no alignment.
    unsafe { _mm256_storeu_ps(to.as_mut_ptr(), x) }
}

/// Stores as many lanes as `to` has floats.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn store_first(to: &mut [f32], x: V) {
    let mut lanes = [0.0; LANES];
    store(&mut lanes, x);
    to.copy_from_slice(&lanes[..to.len()]);
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn fma(a: V, b: V, c: V) -> V {
    _mm256_fmadd_ps(a, b, c)
}

/// Sum of the lanes of each vector.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn sums(x: [V; DOT_ROWS]) -> [f32; DOT_ROWS] {
    let mut out = [0.0; DOT_ROWS];
    for (out, x) in out.iter_mut().zip(x) {
        let x = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
        let x = _mm_add_ps(x, _mm_movehl_ps(x, x));
        *out = _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
    }
    out
}

kernels!(#[target_feature(enable = "avx2,fma")]);
