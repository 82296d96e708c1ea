//! Vectors of 4 floats in plain Rust, which compilers turn into SSE2 or NEON.

type V = [f32; LANES];
const LANES: usize = 4;
/// Vectors of a product tile of 4 rows: x86-64 has 16 registers at least, aarch64 has 32.
const TILE_VECTORS: [usize; 2] = [if cfg!(target_arch = "aarch64") { 4 } else { 2 }, 1];
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

/// Fewer than [`LANES`] floats; the other lanes are zero.
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

/// As many lanes as `to` has floats.
#[inline]
fn store_first(to: &mut [f32], x: V) {
    to.copy_from_slice(&x[..to.len()]);
}

/// `a * b + c`, fused only where the instruction surely exists: elsewhere `mul_add` is a slow library call.
#[inline]
fn fma(a: V, b: V, c: V) -> V {
    let mut out = c;
    for i in 0..LANES {
        out[i] = if cfg!(target_arch = "aarch64") {
            a[i].mul_add(b[i], c[i])
        } else {
            a[i] * b[i] + c[i]
        };
    }
    out
}

#[inline]
fn sum(x: V) -> f32 {
    (x[0] + x[2]) + (x[1] + x[3])
}

kernels!();
