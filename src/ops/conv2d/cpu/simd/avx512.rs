//! Vectors of 16 floats in 32 registers: x86-64 with AVX-512.

use std::arch::x86_64::*;

type V = __m512;
const LANES: usize = 16;
/// Number of vectors in a row of a tile of 4 rows, and in a row of a tile of 8 rows. The registers
/// hold 24 sums, 3 or 6 inputs and a weight.
const TILE_VECTORS: [usize; 2] = [6, 3];
const DOT_ROWS: usize = 4;
const DOT_TAPS: usize = 6;

#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
fn splat(x: f32) -> V {
    _mm512_set1_ps(x)
}

#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
fn load(from: &[f32; LANES]) -> V {
    // SAFETY: the reference covers the 16 floats that are read, and the load needs no alignment.
    unsafe { _mm512_loadu_ps(from.as_ptr()) }
}

/// Loads fewer than [`LANES`] floats, and sets the remaining lanes to zero.
#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
fn load_first(from: &[f32]) -> V {
    let mask = (1_u32 << from.len().min(LANES)) - 1;
    // SAFETY: only lanes set in the mask are read. At most as many lanes are set in the mask as the
    // slice has floats.
    unsafe { _mm512_maskz_loadu_ps(mask as u16, from.as_ptr()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
fn store(to: &mut [f32; LANES], x: V) {
    // SAFETY: the reference covers the 16 floats that are written, and the store needs no
    // alignment.
    unsafe { _mm512_storeu_ps(to.as_mut_ptr(), x) }
}

/// Stores as many lanes as `to` has floats.
#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
fn store_first(to: &mut [f32], x: V) {
    let mask = (1_u32 << to.len().min(LANES)) - 1;
    // SAFETY: only lanes set in the mask are written. At most as many lanes are set in the mask as
    // the slice has floats.
    unsafe { _mm512_mask_storeu_ps(to.as_mut_ptr(), mask as u16, x) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
fn fma(a: V, b: V, c: V) -> V {
    _mm512_fmadd_ps(a, b, c)
}

/// Sum of the lanes of each vector. The four vectors are transposed and then added, at half the
/// cost of a separate sum for each vector.
#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
fn sums(x: [V; DOT_ROWS]) -> [f32; DOT_ROWS] {
    // The vectors are called a, b, c and d. Within each 128-bit part, `ab` has partial sums of a,
    // b, a, b, and `abcd` has partial sums of a, b, c, d.
    let ab = _mm512_add_ps(_mm512_unpacklo_ps(x[0], x[1]), _mm512_unpackhi_ps(x[0], x[1]));
    let cd = _mm512_add_ps(_mm512_unpacklo_ps(x[2], x[3]), _mm512_unpackhi_ps(x[2], x[3]));
    let abcd = _mm512_add_ps(
        _mm512_shuffle_ps::<0b01_00_01_00>(ab, cd),
        _mm512_shuffle_ps::<0b11_10_11_10>(ab, cd),
    );
    // Add the upper half to the lower half, twice.
    let abcd = _mm512_add_ps(abcd, _mm512_shuffle_f32x4::<0b11_10_11_10>(abcd, abcd));
    let abcd = _mm_add_ps(_mm512_castps512_ps128(abcd), _mm512_extractf32x4_ps::<1>(abcd));
    let mut out = [0.0; DOT_ROWS];
    // SAFETY: the array has 4 floats, as many as are written, and the store needs no alignment.
    unsafe { _mm_storeu_ps(out.as_mut_ptr(), abcd) };
    out
}

kernels!(#[target_feature(enable = "avx512f,avx512vl")]);
