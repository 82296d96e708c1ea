//! Cumulative sums on the CPU. Sums are in double precision, so that rounding errors do not grow.

use crate::device::cpu::split::{PIECE, pieces};

/// Number of neighbouring sums that are computed together.
const BLOCK: usize = 256;

/// Writes the cumulative sums of `x` along the middle dimension to `y [outer, n, inner]`.
pub fn cumsum(y: &mut [f32], x: &[f32], [n, inner]: [usize; 2], reverse: bool) {
    let whole = n * inner;
    if y.is_empty() {
        return;
    }
    let (parts, work) = ((PIECE / whole).max(1), y.len());
    pieces(y, parts * whole, work, |piece, y| {
        let x = &x[piece * parts * whole..][..y.len()];
        for (y, x) in y.chunks_exact_mut(whole).zip(x.chunks_exact(whole)) {
            for first in (0..inner).step_by(BLOCK) {
                let width = BLOCK.min(inner - first);
                let mut sums = [0.0; BLOCK];
                for i in 0..n {
                    let at = if reverse { n - 1 - i } else { i } * inner + first;
                    let row = y[at..][..width].iter_mut().zip(&x[at..][..width]);
                    for (sum, (y, &x)) in sums.iter_mut().zip(row) {
                        *sum += f64::from(x);
                        *y = *sum as f32;
                    }
                }
            }
        }
    });
}
