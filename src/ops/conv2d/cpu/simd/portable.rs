//! Vectors of 4 floats in plain Rust, for processors without AVX-512, AVX2 and NEON.

type V = [f32; LANES];
const LANES: usize = 4;
/// Number of vectors in a row of a tile of 4 rows. Tiles of 8 rows are not used.
const TILE_VECTORS: [usize; 2] = [2, 0];
const DOT_ROWS: usize = 2;
const DOT_TAPS: usize = 4;

#[inline]
fn splat(x: f32) -> V {
    [x; LANES]
}

#[inline]
fn load(from: &[f32; LANES]) -> V {
    *from
}

/// Loads fewer than [`LANES`] floats, and sets the remaining lanes to zero.
#[inline]
fn load_first(from: &[f32]) -> V {
    let mut lanes = [0.0; LANES];
    lanes[..from.len()].copy_from_slice(from);
    lanes
}

#[inline]
fn store(to: &mut [f32; LANES], x: V) {
    *to = x;
}

/// Stores as many lanes as `to` has floats.
#[inline]
fn store_first(to: &mut [f32], x: V) {
    to.copy_from_slice(&x[..to.len()]);
}

/// `a * b + c` with two roundings. `mul_add` would be a slow library call on a processor that has
/// no instruction for it.
#[inline]
fn fma(a: V, b: V, c: V) -> V {
    std::array::from_fn(|i| a[i] * b[i] + c[i])
}

/// Sum of the lanes of each vector.
#[inline]
fn sums(x: [V; DOT_ROWS]) -> [f32; DOT_ROWS] {
    x.map(|x| (x[0] + x[2]) + (x[1] + x[3]))
}

kernels!();
