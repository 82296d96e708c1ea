//! Positions of the largest or smallest elements, on the CPU.

use super::super::Extreme;
use crate::device::cpu::lanes::Lanes;
use crate::device::cpu::math::{larger, smaller};
use crate::device::cpu::split::{PIECE, pieces};

/// Number of neighbouring results that are computed together.
const BLOCK: usize = 256;

/// Writes the index of the extreme element along the middle dimension of `x [outer, n, inner]`, for
/// each position of the outer and the inner dimension.
pub fn arg(kind: Extreme, out: &mut [i32], x: &[f32], [n, inner]: [usize; 2]) {
    match kind {
        Extreme::Max => places(out, x, [n, inner], f32::NEG_INFINITY, larger),
        Extreme::Min => places(out, x, [n, inner], f32::INFINITY, smaller),
    }
}

/// Finds the indices of the extreme elements. `join` returns the larger or the smaller of two
/// numbers, or NaN if one of them is NaN.
fn places(
    out: &mut [i32],
    x: &[f32],
    [n, inner]: [usize; 2],
    start: f32,
    join: impl Fn(f32, f32) -> f32 + Copy + Sync,
) {
    if out.is_empty() {
        return;
    }
    let work = x.len();
    if inner == 1 {
        let len = (PIECE / n).max(1);
        pieces(out, len, work, |piece, out| {
            for (i, out) in out.iter_mut().enumerate() {
                let row = &x[(piece * len + i) * n..][..n];
                let mut lanes = Lanes::new(start);
                lanes.add(row, join);
                let best = lanes.join(join);
                let is_best = |x: &f32| *x == best || (x.is_nan() && best.is_nan());
                *out = row.iter().position(is_best).expect("one of the row") as i32;
            }
        });
        return;
    }
    // A piece of `out` has the results for one or more whole positions of the outer dimension.
    let parts = (PIECE / (n * inner)).max(1);
    pieces(out, parts * inner, work, |piece, out| {
        for (i, out) in out.chunks_exact_mut(inner).enumerate() {
            let x = &x[(piece * parts + i) * n * inner..][..n * inner];
            for (block, out) in out.chunks_mut(BLOCK).enumerate() {
                let mut best = [start; BLOCK];
                out.fill(0);
                for (row, x) in x.chunks_exact(inner).enumerate() {
                    let x = &x[block * BLOCK..][..out.len()];
                    for (out, (best, &x)) in out.iter_mut().zip(best.iter_mut().zip(x)) {
                        let next = join(*best, x);
                        // The index changes only if `best` changes. A NaN never equals itself, so
                        // test separately that `best` is not NaN already.
                        let is_new = next != *best && !best.is_nan();
                        *out = if is_new { row as i32 } else { *out };
                        *best = next;
                    }
                }
            }
        }
    });
}
